"""Calls, and the place where they wait to be sent."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from tampu.errors import ServerError
from tampu.server.command import Reply


class Call:
    """One packed command and the future that gets its reply."""

    __slots__ = ("block_s", "future", "packed", "refusal", "repeatable", "sent", "timer")

    def __init__(
        self,
        packed: bytes,
        *,
        future: asyncio.Future[Reply],
        repeatable: bool = False,
        block_s: float = 0.0,
    ) -> None:
        self.packed = packed
        self.future = future
        self.repeatable = repeatable
        self.block_s = block_s
        self.sent = False  # it may have been carried out
        self.refusal: Exception | None = None  # why it was not, as far as we know
        self.timer: asyncio.TimerHandle | None = None

    def answer(self, reply: Reply) -> None:
        """Hand over the reply; one that nobody waits for any more is dropped."""
        if not self.future.done():
            self.future.set_result(reply)
        self._end()

    def fail(self, error: ServerError) -> None:
        """Hand over an error; one that nobody waits for any more is dropped."""
        if not self.future.done():
            self.future.set_exception(error)
        self._end()

    def refused(self, refusal: Exception) -> None:
        """Note that the server did not carry it out and that it may be sent again."""
        self.sent = False
        self.refusal = refusal

    def _end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Outbox:
    """Calls that wait to be sent, in order; `filled` is set when there may be some."""

    def __init__(self) -> None:
        self.filled = asyncio.Event()
        self._calls: deque[Call] = deque()
        self._closed: ServerError | None = None

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def put(self, call: Call) -> None:
        """Add a call at the end."""
        if self._closed is not None:
            call.fail(self._closed)
            return
        self._calls.append(call)
        self.filled.set()

    def put_back(self, calls: Iterable[Call]) -> None:
        """Put calls before all others, in their order, to be sent again."""
        self._calls.extendleft(reversed(list(calls)))
        self.filled.set()

    def take(self) -> list[Call]:
        """All calls that somebody still waits for; they count as sent from now on."""
        taken = []
        while self._calls:
            call = self._calls.popleft()
            if not call.future.done():
                call.sent = True
                taken.append(call)
        self.filled.clear()
        return taken

    def fail(self, error: ServerError) -> None:
        """Fail every call that waits here."""
        while self._calls:
            self._calls.popleft().fail(error)

    def close(self, error: ServerError) -> None:
        """Fail every call that waits here, and every one that is put here from now on."""
        self._closed = error
        self.fail(error)
