"""Stopping on a signal: once to stop in good order, twice to stop at once."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final, Self

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class ExitReason(Enum):
    """Why a command or a worker process stops; the value is what the log says."""

    TOLD = "told to stop"
    EMPTY = "nothing left to do"  # with --burst
    RECYCLED = "recycled"  # it reached --max-jobs or --max-rss
    DRAINED = "drained from outside"  # with `tampu worker drain`


class StopRequest:
    """A request to stop. The first reason counts; a second signal sets `forced`."""

    def __init__(self) -> None:
        self.reason: ExitReason | None = None
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()
        self._signals = 0

    def stop(self, reason: ExitReason = ExitReason.TOLD) -> None:
        """Request to stop in good order."""
        self.reason = self.reason or reason
        self.requested.set()

    @contextmanager
    def listen(self) -> Iterator[Self]:
        """Take SIGTERM and SIGINT as requests to stop, inside the block."""
        loop = asyncio.get_running_loop()
        for each in STOP_SIGNALS:
            loop.add_signal_handler(each, self._receive_signal)
        try:
            yield self
        finally:
            for each in STOP_SIGNALS:
                loop.remove_signal_handler(each)

    def _receive_signal(self) -> None:
        self._signals += 1
        self.stop()
        if self._signals > 1:
            self.forced.set()


async def wait_for_any(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Return when one of the events is set, or when the time is up."""
    waiting = [asyncio.create_task(event.wait(), name="tampu-wait-for-any") for event in events]
    try:
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
