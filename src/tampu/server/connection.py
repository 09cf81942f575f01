"""The life of one connection: calls go out, replies come back in the same order."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from redis.exceptions import AskError, MovedError

from tampu.errors import ServerError
from tampu.server.errors import (
    CONNECTION_ERRORS,
    REPLY_ERRORS,
    connection_problem,
    refusal_code,
    refusal_error,
)
from tampu.server.protocol import pack, start_protocol
from tampu.server.redis_py import place_of
from tampu.server.send_queue import PendingCall
from tampu.util.lifecycle import ignore_outcome

if TYPE_CHECKING:
    from tampu.server.connect import Server
    from tampu.server.protocol import Answer, LaneProtocol, PublicProtocol, Reply
    from tampu.server.redis_py import Connection, Place
    from tampu.server.send_queue import SendQueue

# This node no longer serves the keys. Nothing was done, so the call is sent to the right node.
_WRONG_NODE = frozenset({"MOVED", "READONLY", "UNBLOCKED"})
# This node cannot serve the call yet. Nothing was done, so the call is sent again a little later.
_NOT_YET = frozenset({"TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN"})
_NOT_YET_PAUSE_S = 0.02
_CLIENT_ID = pack("CLIENT", "ID")
_ASKING = pack("ASKING")
_TICKS_PER_PATIENCE = 4
_CHECK_NODE_EVERY_S = 1.0


class LaneConnection:
    """Sends the calls of a queue and matches replies to them, until the connection ends.

    The server answers in the order of the calls. So a call stays in `_in_flight` until its reply
    arrives, even if its caller has given up: a cancelled call cannot shift the replies of others.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        server: Server,
        send_queue: SendQueue,
        patience_s: float,
    ) -> None:
        self.leaving: Exception | None = None  # why this node is no longer the right one
        self.proven = False  # the last call was answered by the right node
        self.place: Place | None = place_of(connection)
        self._connection = connection
        self._server = server
        self._send_queue = send_queue
        self._patience_s = patience_s
        self._in_flight: deque[PendingCall] = deque()
        self._redirected: set[PendingCall] = set()  # sent to another node
        self._refused: list[PendingCall] = []  # to be sent again to another node
        self._silent_s = 0.0
        self._problem = ""  # why the connection ends
        self._group: asyncio.TaskGroup | None = None
        self._protocol: LaneProtocol | PublicProtocol | None = None
        self._client_id: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._client_id.add_done_callback(ignore_outcome)

    def has_blocking_read(self) -> bool:
        """Whether a blocking read is in flight."""
        return any(call.block_s for call in self._in_flight)

    async def client_id(self) -> int | None:
        """The id of this connection on the server; None for a user who may not ask."""
        with suppress(ServerError):
            reply = await asyncio.shield(self._client_id)
            return reply if isinstance(reply, int) else None
        return None

    async def run(self) -> str:
        """Exchange calls and replies until the connection ends; returns why it ended."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._exchange(group)
        except* CONNECTION_ERRORS as errors:
            self._problem = connection_problem(errors.exceptions[0])
        finally:
            await self.disconnect()
        return self._problem

    async def _exchange(self, group: asyncio.TaskGroup) -> None:
        protocol = start_protocol(self._connection, take=self._take, drained=self._flush)
        self._protocol = protocol
        self._in_flight.append(PendingCall(_CLIENT_ID, future=self._client_id))
        protocol.write([_CLIENT_ID])
        work = (self._watch_silence(), self._watch_node(), *protocol.work())
        helpers = [group.create_task(each, name="tampu-connection") for each in work]
        try:
            with self._send_queue.flush_by(self._flush):
                await protocol.ended
        finally:
            self._group = None  # replies may still arrive: they must not start new tasks
            for helper in helpers:
                helper.cancel()

    def leftovers(self) -> list[PendingCall]:
        """The calls without a reply, oldest first; this connection forgets them."""
        left = [*self._refused, *self._redirected, *self._in_flight]
        if not self._client_id.done():
            self._client_id.set_result(None)
            left = [call for call in left if call.future is not self._client_id]
        self._refused.clear()
        self._redirected.clear()
        self._in_flight.clear()
        return left

    async def disconnect(self) -> None:
        """Close the connection. May be called twice."""
        await self._connection.disconnect(nowait=True)

    def _flush(self) -> None:
        """Write the calls of the queue, if the connection takes them."""
        protocol = self._protocol
        if self.leaving is not None or protocol is None or not protocol.takes_more:
            return
        if calls := self._send_queue.take():
            if not self._in_flight:
                self._silent_s = 0.0
            self._in_flight.extend(calls)
            protocol.write([call.packed for call in calls])

    def _take(self, reply: Answer) -> None:
        """Match a reply to its call."""
        self._silent_s = 0.0
        if not self._in_flight:
            raise ConnectionError("it sent a reply to no call")
        call = self._in_flight.popleft()
        self.proven = self.leaving is None and call.future is not self._client_id
        if isinstance(reply, Exception):
            self._handle_refusal(call, reply)
        else:
            call.answer(reply)
        if self.leaving is not None:
            self._end_if_done()

    def _handle_refusal(self, call: PendingCall, refusal: Exception) -> None:
        code = refusal_code(refusal)
        if code in _WRONG_NODE:
            call.note_refusal(refusal)
            self._refused.append(call)
            self._leave(refusal, f"the node no longer serves these keys ({code})")
        elif isinstance(refusal, AskError) and not call.block_s and self._group is not None:
            call.note_refusal(refusal)
            self._redirected.add(call)
            self._group.create_task(self._redirect(call, refusal), name="tampu-redirect")
        elif code in _NOT_YET or code == "ASK":
            self._send_later(call, refusal)
        else:
            call.fail(refusal_error(refusal, self._server.name))

    def _send_later(self, call: PendingCall, refusal: Exception) -> None:
        if call.unblocked:  # while it was in flight
            call.answer(None)
            return
        call.note_refusal(refusal)
        asyncio.get_running_loop().call_later(_NOT_YET_PAUSE_S, self._send_queue.put, call)

    async def _redirect(self, call: PendingCall, ask: AskError) -> None:
        """Send one call to the node that its slot is moving to; the others stay here.

        If the connection to that node breaks, this one ends too, and the call is a leftover.
        """
        own_host, _ = self.place or ("", 0)
        with suppress(*CONNECTION_ERRORS, ServerError):
            other = await self._server.open_to((ask.host or own_host, ask.port))
            try:
                async with asyncio.timeout(self._patience_s):
                    call.sent = True
                    await other.send_packed_command([_ASKING, call.packed], check_health=False)
                    await other.read_response()
                    call.answer(await other.read_response(disable_decoding=True, timeout=math.inf))
            except REPLY_ERRORS as refusal:
                self._handle_redirected_refusal(call, refusal)
            finally:
                await other.disconnect(nowait=True)
            self._redirected.discard(call)
            return
        problem = "the connection to the node of a moving slot broke"
        self._leave(ConnectionError(problem), problem)

    def _handle_redirected_refusal(self, call: PendingCall, refusal: Exception) -> None:
        if isinstance(refusal, MovedError) or refusal_code(refusal) in _NOT_YET:
            self._send_later(call, refusal)
        else:
            call.fail(refusal_error(refusal, self._server.name))

    async def _watch_silence(self) -> None:
        """End the connection if no reply arrives for too long while a call is in flight.

        Counts ticks instead of measuring time: a handler that blocks the loop leaves replies in the
        socket, and the server is not to blame for that.
        """
        tick_s = self._patience_s / _TICKS_PER_PATIENCE
        while True:
            await asyncio.sleep(tick_s)
            self._silent_s += tick_s
            if self._in_flight:
                allowed_s = self._patience_s + self._in_flight[0].block_s
                if self._silent_s > allowed_s:
                    raise ConnectionError(f"no reply for {allowed_s:g} s")

    async def _watch_node(self) -> None:
        """Leave when another node has taken the place of this one."""
        while self.place is not None and self.leaving is None:
            await asyncio.sleep(_CHECK_NODE_EVERY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    if await self._server.has_moved(self.place):
                        problem = "the sentinels name another master"
                        self._leave(ConnectionError(problem), problem)

    def _leave(self, reason: Exception, problem: str) -> None:
        """Write nothing more; replies that are on their way are still taken."""
        self.leaving, self._problem = reason, problem
        self.proven = False
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._protocol is not None and not self._in_flight:
            self._protocol.end()
