"""Calls, and the place where they wait to be sent."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tampu.errors import ConnectionLost, ServerError, Verdict
from tampu.server.errors import ScriptUnknown
from tampu.server.protocol import Reply


class PendingCall:
    """One packed command and the future that gets its reply."""

    __slots__ = (
        "block_s",
        "ended",
        "future",
        "limit_s",
        "packed",
        "refusal",
        "repeatable",
        "sent",
        "unknown",
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
        self.limit_s = self.until = math.inf  # how long it may take, and the loop's time then
        self.sent = False  # on its way, or carried out
        self.unknown = False  # an earlier sending may have been carried out
        self.ended = False  # a blocking read that is not to be sent again
        self.refusal: Exception | None = None  # the last certain no, to be told at the time limit

    def answer(self, reply: Reply) -> None:
        """Hand over the reply; one that nobody waits for any more is dropped."""
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: ServerError) -> None:
        """Hand over an error; one that nobody waits for any more is dropped.

        A refusal says only that the last sending did nothing: what was unknown before stays so.
        """
        if self.future.done():
            return
        if isinstance(error, ScriptUnknown):
            error.unknown = self.unknown  # who loads the script sends the call again
        elif self.unknown and error.verdict is not Verdict.UNKNOWN:
            error = ConnectionLost(error.server, f"and when it was sent again: {error}")
        self.future.set_exception(error)

    def note_refusal(self, refusal: Exception) -> None:
        """The server did not carry it out, and it may be sent again."""
        self.sent = False
        self.refusal = refusal


class SendQueue:
    """Calls that wait to be sent, in order."""

    def __init__(self) -> None:
        self._calls: deque[PendingCall] = deque()
        self._empty: Callable[[], None] | None = None

    @contextmanager
    def emptied_by(self, empty: Callable[[], None]) -> Iterator[None]:
        """Have somebody called, for a while, when there is a call to `take`."""
        self._empty = empty
        self._tell()
        try:
            yield
        finally:
            self._empty = None

    def put(self, call: PendingCall) -> None:
        """Add a call at the end."""
        calls = self._calls
        while calls and calls[0].future.done():  # given up while there was no connection
            calls.popleft()
        calls.append(call)
        self._tell()

    def put_back(self, calls: Iterable[PendingCall]) -> None:
        """Put calls before all others, in their order, to be sent again."""
        self._calls.extendleft(reversed(list(calls)))
        self._tell()

    def take(self) -> list[PendingCall]:
        """All calls that somebody still waits for; they count as sent from now on."""
        taken = []
        while self._calls:
            call = self._calls.popleft()
            if not call.future.done():
                call.sent = True
                taken.append(call)
        return taken

    def _tell(self) -> None:
        if self._empty is not None and self._calls:
            self._empty()
