"""Sends items to the server in batches, as soon as the server can take them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from tampu.errors import ServerError
from tampu.server.outage import Trouble
from tampu.server.service import Background

logger = logging.getLogger(__name__)
T = TypeVar("T")
# A single item is sent at once. After a call, items gather for this long: 10 000 jobs/s whose
# handlers wait for something then take 500 calls/s instead of 10 000. Items that somebody awaits
# gather only if others came during the call: if there are few, each is sent at once.
_LINGER_S: Final = 0.002


async def _prepare_nothing() -> None:
    pass


class SendSteps(NamedTuple, Generic[T]):
    """What is done with a batch: `prepare` and `send` each time, `before` once, between them.

    `send` must be safe to repeat. What `before` writes leaves together with the batch. `limit` says
    how many items a batch can have now, if that is less than usual.
    """

    send: Callable[[list[T]], Awaitable[None]]
    prepare: Callable[[], Awaitable[None]] = _prepare_nothing
    before: Callable[[list[T]], None] | None = None
    limit: Callable[[], int] | None = None


class BatchSender(Background, Generic[T]):
    """Sends what is put in, in batches of at most `most`, until the server has taken it.

    After an error the batch is sent again, with growing pauses. `awaited` says that somebody may
    wait for the items to be sent.
    """

    def __init__(
        self,
        name: str,
        steps: SendSteps[T],
        *,
        trouble: Trouble,
        most: int,
        awaited: bool = False,
    ) -> None:
        self.name = name
        self._send, self._prepare, self._before, self._limit = steps
        self._is_new = True  # `before` has not been called yet
        self._trouble = trouble
        self._usual_most = self._most = most
        self._awaited = awaited
        self._items: list[T] = []
        self._in_flight: list[T] = []
        self._wake: asyncio.Future[None] | None = None
        self._full: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()  # set while there is nothing to send
        self._hurry = False
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._items) + len(self._in_flight)

    @property
    def items(self) -> list[T]:
        """All items that the server has not taken yet."""
        return self._in_flight + self._items

    def put(self, item: T) -> None:
        """Send an item soon."""
        self._items.append(item)
        wake = self._wake
        if wake is not None:
            self._wake = None
            self._idle.clear()
            _resolve(wake)  # it is done already if we were stopped
        elif self._full is not None and len(self._items) >= self._most:
            self._end_linger()

    async def drain(self, limit_s: float) -> bool:
        """Send all items without waiting for more; False if that takes longer than the limit."""
        self._hurry = True
        self._end_linger()
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        finally:
            self._hurry = False
        return True

    async def run(self) -> None:
        """Send batches until cancelled."""
        while True:
            if not self._items:
                self._idle.set()
                self._wake = self._loop.create_future()
                await self._wake
            if self._limit is not None:
                self._most = min(self._usual_most, self._limit())
            self._in_flight = self._next_batch()
            self._is_new = self._before is not None
            await self._send_batch()
            # To free hundreds of items takes as long as to send the next ones: these leave first.
            self._loop.call_soon(_free, self._in_flight)
            self._in_flight = []
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

    async def _send_batch(self) -> None:
        try:
            await self._send_until_taken(self._in_flight)
        except Exception:  # border: one bad item must not stop the others
            logger.exception("a batch of %s failed, sending its items one by one", self.name)
            for item in self._in_flight:
                await self._send_alone(item)

    async def _send_alone(self, item: T) -> None:
        try:
            await self._send_until_taken([item])
        except Exception:  # border: as above
            logger.exception("one of the %s cannot be sent: its entry stays pending", self.name)

    async def _send_until_taken(self, batch: list[T]) -> None:
        while True:
            try:
                await self._prepare()
                if self._is_new and self._before is not None:
                    self._is_new = False
                    self._before(self._in_flight)
                await self._send(batch)
            except ServerError as error:
                await asyncio.sleep(self._trouble.begin(error))
            else:
                self._trouble.end()
                return

    async def _linger(self) -> None:
        full = self._full = self._loop.create_future()
        timer = self._loop.call_later(_LINGER_S, _resolve, full)
        await full
        timer.cancel()
        self._full = None

    def _end_linger(self) -> None:
        full, self._full = self._full, None
        if full is not None:
            _resolve(full)


def _free(batch: list[T]) -> None:
    """Nobody has the batch any more when this returns."""


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
