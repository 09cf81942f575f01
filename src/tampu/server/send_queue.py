"""Calls, and the queue in which they wait to be sent."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tampu.errors import ConnectionLost, ServerError, Verdict
from tampu.server.errors import ScriptUnknown

if TYPE_CHECKING:
    from tampu.server.protocol import Answer, Reply


class TakesReplies(Protocol):
    """Who sent a call, and takes the reply to it."""

    def take(self, call: PendingCall, reply: Answer) -> None:
        """Give a call its reply."""


class PendingCall:
    """One packed command and the future that gets its reply."""

    __slots__ = (
        "block_s",
        "future",
        "lane",
        "limit_s",
        "maybe_done",
        "packed",
        "refusal",
        "repeatable",
        "sent",
        "unblocked",
        "until",
    )

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
        self.limit_s = self.until = math.inf  # its time limit, and the loop's time at its end
        self.lane: TakesReplies | None = None  # who takes the reply
        self.sent = False  # in flight: the server may have carried it out
        self.maybe_done = False  # was in flight before, on a connection that broke
        self.unblocked = False  # a blocking read that must not be sent again
        self.refusal: Exception | None = None  # the last refusal, reported at the time limit

    def answer(self, reply: Reply) -> None:
        """Set the reply, unless the caller has given up."""
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: ServerError) -> None:
        """Set an error, unless the caller has given up.

        A refusal says only that nothing was done this time. If the call was in flight before, its
        outcome stays unknown.
        """
        if self.future.done():
            return
        if isinstance(error, ScriptUnknown):
            error.maybe_done = self.maybe_done  # whoever loads the script sends the call again
        elif self.maybe_done and error.verdict is not Verdict.UNKNOWN:
            error = ConnectionLost(error.server, f"and when it was sent again: {error}")
        self.future.set_exception(error)

    def note_refusal(self, refusal: Exception) -> None:
        """Remember that the server did nothing, so that the call can be sent again."""
        self.sent = False
        self.refusal = refusal


class SendQueue:
    """Calls that wait to be sent, in order."""

    def __init__(self) -> None:
        self._calls: deque[PendingCall] = deque()
        self._flush: Callable[[], None] | None = None

    @contextmanager
    def flush_by(self, flush: Callable[[], None]) -> Iterator[None]:
        """Call `flush` whenever there are calls to `take`, until the context ends."""
        self._flush = flush
        self._notify()
        try:
            yield
        finally:
            self._flush = None

    def put(self, call: PendingCall) -> None:
        """Add a call at the end."""
        calls = self._calls
        while calls and calls[0].future.done():  # given up while there was no connection
            calls.popleft()
        calls.append(call)
        self._notify()

    def put_back(self, calls: Iterable[PendingCall]) -> None:
        """Put calls before all others, in their order, to be sent again."""
        self._calls.extendleft(reversed(list(calls)))
        self._notify()

    def take(self, lane: TakesReplies) -> list[PendingCall]:
        """Remove all calls and return those still awaited; they count as sent by `lane`."""
        taken = []
        while self._calls:
            call = self._calls.popleft()
            if not call.future.done():
                call.sent, call.lane = True, lane
                taken.append(call)
        return taken

    def _notify(self) -> None:
        if self._flush is not None and self._calls:
            self._flush()
