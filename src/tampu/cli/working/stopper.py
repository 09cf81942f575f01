"""Why a worker process is to end, and whether at once."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tampu.cli.working.words import Reason

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stopper:
    """The first who asks says why. A second signal hurries."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self._signals = 0

    def ask(self, reason: Reason) -> None:
        """Have it end; running jobs get the grace."""
        self.reason = self.reason or reason
        self.asked.set()

    def signal(self) -> None:
        """A signal came."""
        self._signals += 1
        self.ask(Reason.TOLD)
        if self._signals > 1:
            self.hurried.set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals that end a worker."""
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self.signal)
        try:
            yield
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)


async def first_of(*events: asyncio.Event, limit_s: float | None = None) -> None:
    """Return when one of the events is set, or the time is up."""
    waiting = [asyncio.create_task(event.wait(), name="tampu-first-of") for event in events]
    try:
        await asyncio.wait(waiting, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
