"""What is started once and stopped once, whoever asks for it and however often."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Self, TypeVar

from tampu.errors import WrongContext

T = TypeVar("T")


class Lifetime(Generic[T]):
    """From the opening of something to the end of its closing.

    `close` gives what runs in there so many seconds. `hurry` tells a `close` that is under way of
    another limit. Who cancels `run` or `start` has it closed at once.
    """

    def __init__(
        self,
        what: str,
        opened: Callable[[], Coroutine[Any, Any, T]],
        close: Callable[[T, float], Awaitable[None]],
        *,
        hurry: Callable[[T, float], Awaitable[None]] | None = None,
    ) -> None:
        self._what = what
        self._opened = opened
        self._close = close
        self._hurry = hurry
        self._starting: asyncio.Task[T] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Open it, and return when it has been stopped."""
        await self.start()
        try:
            await self._stopped.wait()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Open it; raises what keeps it from that."""
        if self._starting is not None or self._stopping is not None:
            raise WrongContext(
                f"start this {self._what} again", "it can be started only once; create a new one"
            )
        self._starting = asyncio.create_task(self._opened(), name=f"tampu-{self._what}-start")
        try:
            await self._starting
        except asyncio.CancelledError:
            self._starting.cancel()
            await self.stop()  # it may have been through already
            raise

    @property
    def opened(self) -> T | None:
        """What was opened, also when it is closed already; None before."""
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled():
            return None
        return None if starting.exception() is not None else starting.result()

    async def stop(self, grace_s: float = 0.0) -> None:
        """Close it, once; all who ask wait for the end of that, and may hurry it."""
        if self._stopping is None:
            stopping = self._stop(grace_s)
            self._stopping = asyncio.create_task(stopping, name=f"tampu-{self._what}-stop")
        elif self._hurry is not None and not self._stopping.done():
            opened = self.opened
            if opened is not None:
                await self._hurry(opened, grace_s)
        await asyncio.shield(self._stopping)

    async def _stop(self, grace_s: float) -> None:
        try:
            if self._starting is not None:
                await asyncio.wait([self._starting])
                if not self._starting.cancelled() and self._starting.exception() is None:
                    await self._close(self._starting.result(), grace_s)
        finally:
            self._stopped.set()


class Runnable(ABC):
    """What users start and stop once: by calls, by `run`, or by `async with`."""

    _life: Lifetime[Any]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def run(self) -> None:
        """Start, and work until `stop`. When it is cancelled, what runs gets no grace."""
        await self._life.run()

    async def start(self) -> None:
        """Connect and begin to work; raises what keeps it from that, and leaves nothing behind."""
        await self._life.start()

    @abstractmethod
    async def stop(self) -> None:
        """Stop to work and disconnect. May be called twice."""
