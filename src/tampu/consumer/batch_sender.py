"""A batch that leaves as soon as it may: what many put in, one call carries to the server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, Generic, TypeVar

from tampu.errors import ServerError
from tampu.server.lane import LaneOptions, Pauses

logger = logging.getLogger(__name__)
T = TypeVar("T")
# A single item leaves at once. Behind a call, others gather for this long: 10 000 jobs/s of
# handlers that wait for something then make 500 calls/s instead of 10 000. What is awaited gathers
# only where others came during the call: where there are few, each leaves at once.
_LINGER_S: Final = 0.002


class BatchSender(Generic[T]):
    """Sends what is put in, in batches of at most `most`, until it is sent.

    A refusal or a lost connection is logged once and the batch is sent again with growing pauses:
    what `send` does must be safe to repeat. `awaited` says that people wait for what is sent.
    """

    def __init__(
        self,
        what: str,
        send: Callable[[list[T]], Awaitable[None]],
        *,
        most: int,
        awaited: bool = False,
    ) -> None:
        self._what = what
        self._send = send
        self._most = most
        self._awaited = awaited
        self._items: list[T] = []
        self._leaving: list[T] = []
        self._wake: asyncio.Future[None] | None = None
        self._full: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()  # set while there is nothing to send
        self._hurry = False
        self._loop = asyncio.get_running_loop()
        self._pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients

    def start(self) -> None:
        """Begin to send."""
        self._task = self._loop.create_task(self._run(), name=f"tampu-{self._what}")

    def __len__(self) -> int:
        return len(self._items) + len(self._leaving)

    @property
    def items(self) -> list[T]:
        """All that has not been carried out yet."""
        return self._leaving + self._items

    def put(self, item: T) -> None:
        """Add one; it leaves as soon as it may."""
        self._items.append(item)
        wake = self._wake
        if wake is not None:
            self._wake = None
            self._idle.clear()
            _end(wake)  # it is done already if we are closed
        elif self._full is not None and len(self._items) >= self._most:
            full, self._full = self._full, None
            _end(full)

    async def drain(self, limit_s: float) -> bool:
        """Send all that is there without lingering; False if that was not done in time."""
        self._hurry = True
        if self._full is not None:
            full, self._full = self._full, None
            _end(full)
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        finally:
            self._hurry = False
        return True

    async def close(self) -> None:
        """Stop sending."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            if not self._items:
                self._idle.set()
                self._wake = self._loop.create_future()
                await self._wake
            self._leaving = self._next_batch()
            await self._carry_out()
            self._leaving = []
            if self._may_gather():
                await self._linger()

    def _may_gather(self) -> bool:
        if self._hurry or (self._awaited and not self._items):
            return False
        return len(self._items) < self._most

    def _next_batch(self) -> list[T]:
        items, most = self._items, self._most
        self._items = items[most:]
        if self._items:
            del items[most:]
        return items

    async def _carry_out(self) -> None:
        try:
            await self._send_until_sent(self._leaving)
        except Exception:  # border: what is wrong with one item must not stop the others
            logger.exception("a batch cannot be settled whole", extra={"what": self._what})
            for item in self._leaving:
                await self._send_alone(item)

    async def _send_alone(self, item: T) -> None:
        try:
            await self._send_until_sent([item])
        except Exception:  # border: as above
            logger.exception("an entry cannot be settled: it stays", extra={"what": self._what})

    async def _send_until_sent(self, batch: list[T]) -> None:
        troubled = False
        while True:
            try:
                await self._send(batch)
            except ServerError as error:
                if not troubled:
                    logger.warning(
                        "settling is delayed", extra={"what": self._what, "problem": str(error)}
                    )
                troubled = True
                await asyncio.sleep(self._pauses.next_s())
            else:
                self._pauses.reset()
                if troubled:
                    logger.info("settling goes on", extra={"what": self._what})
                return

    async def _linger(self) -> None:
        full = self._full = self._loop.create_future()
        timer = self._loop.call_later(_LINGER_S, _end, full)
        await full
        timer.cancel()
        self._full = None


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
