"""From `run` to `shutdown`, for what tampu starts and stops."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from tampu.compat.adapter.errors import as_theirs


class Work(Protocol):
    """A worker, or a service without one."""

    async def run(self) -> None:
        """Work until it is stopped."""

    async def stop(self) -> None:
        """Have it end; returns when it has."""


class Shift:
    """Runs works until it is over; then none is begun any more."""

    def __init__(self) -> None:
        self._over = False
        self._works: dict[Work, asyncio.AbstractEventLoop] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    async def run(self, make: Callable[[], Work]) -> None:
        """Make a work and run it to its end; returns at once if the shift is over."""
        if self._over:
            return
        with as_theirs():
            work = make()
            self._works[work] = asyncio.get_running_loop()
            try:
                await work.run()
            finally:
                del self._works[work]
                if self._stopping:
                    await asyncio.wait(self._stopping)

    def end(self) -> None:
        """Have everything stop, and do not wait for it; from any thread, any number of times."""
        self._over = True
        for work, loop in list(self._works.items()):
            with suppress(RuntimeError):  # a loop that is closed has stopped everything
                loop.call_soon_threadsafe(self._stop, work)

    def _stop(self, work: Work) -> None:
        if work not in self._works:
            return  # it has ended by itself
        stopping = asyncio.create_task(work.stop(), name="tampu-compat-stop")
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
