"""One connection's life: calls go out, replies come back in step."""

import asyncio
import math
from collections import deque
from contextlib import suppress

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, MovedError

from tampu.errors import ServerError
from tampu.server.connect import Server
from tampu.server.errors import LINK_ERRORS, REPLIES, link_problem, refusal_code, refusal_error
from tampu.server.protocol import Answer, LaneProtocol, Reply, pack
from tampu.server.send_queue import PendingCall, SendQueue

# Said by a node that is not the one to ask any more; nothing was done, so the call goes elsewhere.
_ELSEWHERE = frozenset({"MOVED", "READONLY", "UNBLOCKED"})
# Said by a node that will be able to before long; nothing was done, so the call is sent again.
_NOT_YET = frozenset({"TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN"})
_NOT_YET_PAUSE_S = 0.02
_CLIENT_ID = pack("CLIENT", "ID")
_ASKING = pack("ASKING")
_TICKS_PER_PATIENCE = 4
_ASK_PLACE_EVERY_S = 1.0


class LaneConnection:
    """Sends what waits in the outbox and matches replies to calls, until the connection ends.

    The server answers in the order it was asked. So a call keeps its place in `in_flight` until its
    reply has come, whether or not somebody still waits for it: that is all it takes for a cancelled
    call not to shift the replies of others.
    """

    def __init__(
        self,
        connection: AbstractConnection,
        *,
        server: Server,
        outbox: SendQueue,
        patience_s: float,
    ) -> None:
        self.leaving: Exception | None = None  # why this node is not the one to ask any more
        self.proven = False  # the last call was answered by the right node
        self._in_flight: deque[PendingCall] = deque()
        self._asked: set[PendingCall] = set()  # carried to another node
        self._rejected: list[PendingCall] = []  # to be sent again elsewhere
        self._connection = connection
        self._server = server
        self._outbox = outbox
        self._patience_s = patience_s
        self._silent_s = 0.0
        self._group: asyncio.TaskGroup | None = None
        self._pipe: LaneProtocol | None = None
        self._identity: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._identity.add_done_callback(ignore_outcome)

    @property
    def host(self) -> str | None:
        """The node at the other end; None for a unix socket."""
        return getattr(self._connection, "host", None)

    @property
    def port(self) -> int:
        """The node's port; 0 for a unix socket."""
        return getattr(self._connection, "port", 0)

    def blocks(self) -> bool:
        """Whether a blocking read is on its way or waiting at the server."""
        return any(call.block_s for call in self._in_flight)

    async def client_id(self) -> int | None:
        """Who we are to the server; None for a user without the right to ask."""
        with suppress(ServerError):
            reply = await asyncio.shield(self._identity)
            return reply if isinstance(reply, int) else None
        return None

    async def run(self) -> str:
        """Exchange calls and replies until the connection breaks or moves; say why it ended."""
        problem = "the node is not the one to ask any more"
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                work = (self._watch_silence(), self._watch_place())
                helpers = [group.create_task(each, name="tampu-link") for each in work]
                try:
                    await self._exchange()
                finally:
                    self._group = None  # replies may still come: they are to begin nothing
                    for helper in helpers:
                        helper.cancel()
        except* LINK_ERRORS as errors:
            problem = link_problem(errors.exceptions[0])
        finally:
            await self.disconnect()
        return problem

    async def _exchange(self) -> None:
        self._pipe = pipe = LaneProtocol(self._connection, take=self._take, drained=self._flush)
        self._in_flight.append(PendingCall(_CLIENT_ID, future=self._identity))
        pipe.write([_CLIENT_ID])
        with self._outbox.emptied_by(self._flush):
            await pipe.ended

    def leftovers(self) -> list[PendingCall]:
        """The calls without a reply, oldest first; they are not this link's any more."""
        left = [*self._rejected, *self._asked, *self._in_flight]
        if not self._identity.done():
            self._identity.set_result(None)
            left = [call for call in left if call.future is not self._identity]
        self._rejected.clear()
        self._asked.clear()
        self._in_flight.clear()
        return left

    async def disconnect(self) -> None:
        """Close the connection. May be called twice."""
        await self._connection.disconnect(nowait=True)

    def _flush(self) -> None:
        """Write what waits, unless it has to wait on."""
        pipe = self._pipe
        if self.leaving is not None or pipe is None or not pipe.takes_more:
            return
        if calls := self._outbox.take():
            if not self._in_flight:
                self._silent_s = 0.0
            self._in_flight.extend(calls)
            pipe.write([call.packed for call in calls])

    def _take(self, reply: Answer) -> None:
        """Match a reply to its call."""
        self._silent_s = 0.0
        if not self._in_flight:
            raise ConnectionError("it sent what nobody asked for")
        call = self._in_flight.popleft()
        self.proven = self.leaving is None and call.future is not self._identity
        if isinstance(reply, Exception):
            self._sort_refusal(call, reply)
        else:
            call.answer(reply)
        if self.leaving is not None:
            self._end_if_done()

    def _sort_refusal(self, call: PendingCall, refusal: Exception) -> None:
        code = refusal_code(refusal)
        if code in _ELSEWHERE:
            call.note_refusal(refusal)
            self._rejected.append(call)
            self._leave(refusal)
        elif isinstance(refusal, AskError) and not call.block_s and self._group is not None:
            call.note_refusal(refusal)
            self._asked.add(call)
            self._group.create_task(self._ask(call, refusal), name="tampu-link-ask")
        elif code in _NOT_YET or code == "ASK":
            self._send_later(call, refusal)
        else:
            call.fail(refusal_error(refusal, self._server.name))

    def _send_later(self, call: PendingCall, refusal: Exception) -> None:
        if call.ended:  # while it was on its way
            call.answer(None)
            return
        call.note_refusal(refusal)
        asyncio.get_running_loop().call_later(_NOT_YET_PAUSE_S, self._outbox.put, call)

    async def _ask(self, call: PendingCall, ask: AskError) -> None:
        """Carry one call to the node its slot is moving to; the others stay here.

        If that node is lost, the call is among the leftovers and shares their fate.
        """
        with suppress(*LINK_ERRORS, ServerError):
            other = await self._server.open_to(ask.host or self.host or "", ask.port)
            try:
                async with asyncio.timeout(self._patience_s):
                    call.sent = True
                    await other.send_packed_command([_ASKING, call.packed], check_health=False)
                    await other.read_response()
                    call.answer(await other.read_response(disable_decoding=True, timeout=math.inf))
            except REPLIES as refusal:
                self._sort_answer_elsewhere(call, refusal)
            finally:
                await other.disconnect(nowait=True)
            self._asked.discard(call)
            return
        self._leave(ConnectionError("the node that it passes calls on to was lost"))

    def _sort_answer_elsewhere(self, call: PendingCall, refusal: Exception) -> None:
        if isinstance(refusal, MovedError) or refusal_code(refusal) in _NOT_YET:
            self._send_later(call, refusal)
        else:
            call.fail(refusal_error(refusal, self._server.name))

    async def _watch_silence(self) -> None:
        """Give up on a connection that has been silent for too long with a call in flight.

        Ticks are counted rather than time measured: a handler that blocks the loop for a while
        leaves the reply in the socket, and that is not the server's silence.
        """
        tick_s = self._patience_s / _TICKS_PER_PATIENCE
        while True:
            await asyncio.sleep(tick_s)
            self._silent_s += tick_s
            if self._in_flight:
                allowed_s = self._patience_s + self._in_flight[0].block_s
                if self._silent_s > allowed_s:
                    raise ConnectionError(f"no reply for {allowed_s:g} s")

    async def _watch_place(self) -> None:
        """Leave in good order when others say that this node is not the one to ask any more."""
        while self.host is not None and self.leaving is None:
            await asyncio.sleep(_ASK_PLACE_EVERY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    if await self._server.left(self.host, self.port):
                        self._leave(ConnectionError("the server is another one now"))

    def _leave(self, reason: Exception) -> None:
        """Write nothing more here; replies that are on their way are still taken."""
        self.leaving = reason
        self.proven = False
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._pipe is not None and not self._in_flight:
            self._pipe.end()


def ignore_outcome(future: asyncio.Future[Reply]) -> None:
    """Look at a failure that nobody asks about, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()
