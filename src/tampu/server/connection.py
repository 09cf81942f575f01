"""The life of a connection: calls go out, replies come back in the same order.

Several lanes may share a connection. Each leaves it on its own when its keys have moved.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from contextlib import suppress
from typing import TYPE_CHECKING

from redis.exceptions import AskError, MovedError

from tampu.errors import ServerError
from tampu.server.errors import (
    CONNECTION_ERRORS,
    HUNG_UP,
    REPLY_ERRORS,
    connection_problem,
    refusal_code,
    refusal_error,
)
from tampu.server.protocol import pack, start_protocol
from tampu.server.redis_py import place_of
from tampu.server.send_queue import PendingCall
from tampu.util.lifecycle import cancel_all, ignore_outcome

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


class NodeConnection:
    """One connection to a node, for one lane or several.

    The server answers in the order of the calls. So a call stays in `_in_flight` until its reply
    arrives, even if its caller has given up: a cancelled call cannot shift the replies of others.
    """

    def __init__(self, connection: Connection, *, server: Server, patience_s: float) -> None:
        self.place: Place | None = place_of(connection)
        self.is_retired = False  # no other lane may join it
        self._connection = connection
        self._server = server
        self.patience_s = patience_s
        self._lanes: list[LaneConnection] = []
        self._in_flight: deque[PendingCall] = deque()
        self._silent_s = 0.0
        self.protocol: LaneProtocol | PublicProtocol | None = None  # None until it has started
        self._client_id: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._client_id.add_done_callback(ignore_outcome)
        self._task: asyncio.Task[None] | None = None

    # --- lanes ----------------------------------------------------------------------------------

    def join(self, lane: LaneConnection) -> None:
        """Take the calls of one more lane."""
        self._lanes.append(lane)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tampu-connection")

    async def leave(self, lane: LaneConnection) -> None:
        """Take no more calls of a lane; the last one closes the connection. May be called twice."""
        if lane in self._lanes:
            self._lanes.remove(lane)
        if not self._lanes:
            await self._close()

    def retire(self) -> None:
        """Let no other lane join: the node is not what it was."""
        self.is_retired = True

    # --- calls ----------------------------------------------------------------------------------

    def add(self, calls: list[PendingCall]) -> None:
        """Expect replies to calls that are written now, in this order."""
        if not self._in_flight:
            self._silent_s = 0.0
        self._in_flight.extend(calls)

    def calls_of(self, lane: LaneConnection) -> list[PendingCall]:
        """The calls of a lane without a reply, oldest first."""
        return [call for call in self._in_flight if call.lane is lane]

    async def client_id(self) -> int | None:
        """The id of this connection on the server; None for a user who may not ask."""
        with suppress(ServerError):
            reply = await asyncio.shield(self._client_id)
            return reply if isinstance(reply, int) else None
        return None

    # --- the connection -------------------------------------------------------------------------

    async def _run(self) -> None:
        """Exchange calls and replies until the connection ends, then tell its lanes why."""
        problem = HUNG_UP
        try:
            async with asyncio.TaskGroup() as group:
                await self._exchange(group)
        except* CONNECTION_ERRORS as errors:
            problem = connection_problem(errors.exceptions[0])
        finally:
            self.is_retired = True
            await self._connection.disconnect(nowait=True)
            if not self._client_id.done():
                self._client_id.set_result(None)
            for lane in self._lanes:
                lane.end(problem)

    async def _exchange(self, group: asyncio.TaskGroup) -> None:
        protocol = start_protocol(self._connection, take=self._take, drained=self._flush_lanes)
        self.protocol = protocol
        self.add([PendingCall(_CLIENT_ID, future=self._client_id)])
        protocol.write([_CLIENT_ID])
        work = (self._watch_silence(), self._watch_node(), *protocol.work())
        helpers = [group.create_task(each, name="tampu-connection") for each in work]
        try:
            self._flush_lanes()
            await protocol.ended
        finally:
            for helper in helpers:
                helper.cancel()

    def _flush_lanes(self) -> None:
        for lane in self._lanes:
            lane.flush()

    def _take(self, reply: Answer) -> None:
        """Match a reply to its call."""
        self._silent_s = 0.0
        if not self._in_flight:
            raise ConnectionError("it sent a reply to no call")
        call = self._in_flight.popleft()
        lane = call.lane
        if lane is not None:
            lane.take(call, reply)
        elif isinstance(reply, Exception):
            call.fail(refusal_error(reply, self._server.name))
        else:
            call.answer(reply)

    async def _watch_silence(self) -> None:
        """End the connection if no reply arrives for too long while a call is in flight.

        Counts ticks instead of measuring time: a handler that blocks the loop leaves replies in the
        socket, and the server is not to blame for that.
        """
        tick_s = self.patience_s / _TICKS_PER_PATIENCE
        while True:
            await asyncio.sleep(tick_s)
            self._silent_s += tick_s
            if self._in_flight:
                allowed_s = self.patience_s + self._in_flight[0].block_s
                if self._silent_s > allowed_s:
                    raise ConnectionError(f"no reply for {allowed_s:g} s")

    async def _watch_node(self) -> None:
        """Let the lanes leave when another node has taken the place of this one."""
        if self.place is None or not self._server.may_move:
            return
        while True:
            await asyncio.sleep(_CHECK_NODE_EVERY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.patience_s):
                    if await self._server.has_moved(self.place):
                        break
        problem = "the sentinels name another master"
        self.retire()
        for lane in list(self._lanes):
            lane.move_on(ConnectionError(problem), problem)

    async def _close(self) -> None:
        self.is_retired = True
        if self._task is not None:
            await cancel_all([self._task])
        await self._connection.disconnect(nowait=True)


class LaneConnection:
    """The part of one lane in a connection: its calls, and what the node says about its keys."""

    def __init__(self, node: NodeConnection, *, server: Server, send_queue: SendQueue) -> None:
        self.node = node
        self.leaving: Exception | None = None  # why this node is no longer the right one
        self.proven = False  # the last call was answered by the right node
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server = server
        self._send_queue = send_queue
        self._unanswered = 0
        self._redirecting: set[asyncio.Task[None]] = set()
        self._redirected: set[PendingCall] = set()  # sent to another node
        self._refused: list[PendingCall] = []  # to be sent again to another node
        self._problem = ""  # why it ends
        node.join(self)

    def has_blocking_read(self) -> bool:
        """Whether a blocking read is in flight."""
        return any(call.block_s for call in self.node.calls_of(self))

    async def run(self) -> str:
        """Exchange calls and replies until this ends; returns why it ended."""
        try:
            with self._send_queue.flush_by(self.flush):
                problem = await asyncio.shield(self.ended)
            if self._redirecting and self._unanswered == 0:
                await asyncio.wait(self._redirecting)
            return problem
        finally:
            await self.disconnect()

    def end(self, problem: str) -> None:
        """Let `run` return; only the first problem counts."""
        if not self.ended.done():
            self.ended.set_result(problem)

    def leftovers(self) -> list[PendingCall]:
        """The calls without a reply, oldest first. No reply to them is taken from now on."""
        left = [*self._refused, *self._redirected, *self.node.calls_of(self)]
        for call in left:
            call.lane = None
        self._refused.clear()
        self._redirected.clear()
        return left

    async def disconnect(self) -> None:
        """Leave the connection. May be called twice."""
        self.end(HUNG_UP)
        await cancel_all(self._redirecting)
        await self.node.leave(self)

    def flush(self) -> None:
        """Write the calls of the queue, if the connection takes them."""
        protocol = self.node.protocol
        if self.leaving is not None or protocol is None or not protocol.takes_more:
            return
        if calls := self._send_queue.take(self):
            self._unanswered += len(calls)
            self.node.add(calls)
            protocol.write([call.packed for call in calls])

    def take(self, call: PendingCall, reply: Answer) -> None:
        """Give a call its reply."""
        self._unanswered -= 1
        self.proven = self.leaving is None
        if isinstance(reply, Exception):
            self._handle_refusal(call, reply)
        else:
            call.answer(reply)
        if self.leaving is not None:
            self._end_if_done()

    def move_on(self, reason: Exception, problem: str) -> None:
        """Write nothing more to this node; replies that are on their way are still taken."""
        self.leaving, self._problem = reason, problem
        self.proven = False
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._unanswered == 0:
            self.end(self._problem)

    def _handle_refusal(self, call: PendingCall, refusal: Exception) -> None:
        code = refusal_code(refusal)
        if code in _WRONG_NODE:
            call.note_refusal(refusal)
            self._refused.append(call)
            if code != "MOVED":
                self.node.retire()  # the name of the node may lead elsewhere by now
            self.move_on(refusal, f"the node no longer serves these keys ({code})")
        elif isinstance(refusal, AskError) and not call.block_s and not self.ended.done():
            call.note_refusal(refusal)
            self._redirected.add(call)
            redirecting = asyncio.create_task(self._redirect(call, refusal), name="tampu-redirect")
            self._redirecting.add(redirecting)
            redirecting.add_done_callback(self._redirecting.discard)
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

        If the connection to that node breaks, the lane leaves this one, and the call is a leftover.
        """
        own_host, _ = self.node.place or ("", 0)
        with suppress(*CONNECTION_ERRORS, ServerError):
            other = await self._server.open_to((ask.host or own_host, ask.port))
            try:
                async with asyncio.timeout(self.node.patience_s):
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
        self.move_on(ConnectionError(problem), problem)

    def _handle_redirected_refusal(self, call: PendingCall, refusal: Exception) -> None:
        if isinstance(refusal, MovedError) or refusal_code(refusal) in _NOT_YET:
            self._send_later(call, refusal)
        else:
            call.fail(refusal_error(refusal, self._server.name))


class SharedConnections:
    """One connection to each node, for any number of lanes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._nodes: dict[Place | None, NodeConnection] = {}
        self._opening: defaultdict[Place | None, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def join(
        self, key: bytes, *, refresh: bool, send_queue: SendQueue, patience_s: float
    ) -> LaneConnection:
        """The part of a lane in the connection to the node that holds `key`."""
        server = self._server
        found = await server.find(key, refresh=refresh)
        place = place_of(found)
        async with self._opening[place]:
            node = self._nodes.get(place)
            if node is None or node.is_retired:
                connection = await server.connect(found)
                node = NodeConnection(connection, server=server, patience_s=patience_s)
                self._nodes[place] = node
            return LaneConnection(node, server=server, send_queue=send_queue)
