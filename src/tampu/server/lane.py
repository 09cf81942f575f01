"""A held connection for the hot path: packed batches, many calls in flight."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
from dataclasses import dataclass, fields
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Self

from redis.exceptions import MovedError

from tampu.errors import (
    Closed,
    CommandRefused,
    ConnectionLost,
    OptionError,
    ServerError,
    ServerUnreachable,
    Verdict,
)
from tampu.server.connection import LaneConnection, NodeConnection
from tampu.server.errors import TOO_SLOW, refusal_error, server_errors
from tampu.server.protocol import pack
from tampu.server.send_queue import PendingCall, SendQueue
from tampu.util.pauses import Pauses

if TYPE_CHECKING:
    from tampu.server.connect import Server
    from tampu.server.connection import SharedConnections
    from tampu.server.protocol import Argument, Reply
    from tampu.server.redis_py import Connection

logger = logging.getLogger(__name__)

_UNBLOCK_AGAIN_S = 0.005
_STEADY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOptions:
    """Time limits of a lane."""

    limit_s: float = 30.0  # a call without a reply by then fails, sent or not
    patience_s: float = 5.0  # a connection silent for this long with a call in flight is broken
    first_pause_s: float = 0.05  # before the first reconnect, at most; doubles from there
    longest_pause_s: float = 2.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise OptionError(field.name, getattr(self, field.name), "must be above 0 seconds")


class Lane:
    """A connection to the node that holds a queue's keys; it reconnects and follows the keys.

    Lanes that do not block can share connections: pass the same `SharedConnections` to `open`.

    Calls are sent in the order of `send` and may be in flight together. When the connection breaks,
    a call in flight fails with `ConnectionLost`, or is sent again if it is `repeatable`. Calls that
    were not sent yet wait for the next connection. The caller limits the number of calls in flight.
    A lane belongs to the event loop that opened it.
    """

    def __init__(
        self,
        server: Server,
        key: bytes,
        *,
        options: LaneOptions,
        shared: SharedConnections | None,
    ) -> None:
        self._server = server
        self._key = key
        self._options = options
        self._shared = shared
        self._pauses = Pauses(
            options.first_pause_s,
            options.longest_pause_s,
            spread=Random(),  # noqa: S311 - spreads clients, guards nothing
        )
        self._send_queue = SendQueue()
        self._calls: set[PendingCall] = set()  # all calls without an outcome, sent or not
        self._connection: LaneConnection | None = None
        self._connect_error: ServerError | None = None  # why there is no connection
        self._trouble = server.outage.part("connection")
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None  # for the call with the earliest limit
        self._timer_at = math.inf
        self._closed = False
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls,
        server: Server,
        key: bytes,
        *,
        options: LaneOptions | None = None,
        shared: SharedConnections | None = None,
    ) -> Self:
        """Open a lane to the node that holds `key`; fails at once if it cannot be reached."""
        lane = cls(server, key, options=options or LaneOptions(), shared=shared)
        # Kept here too: a task that is cancelled before it starts never closes its connection.
        connection = lane._connection = await lane._connect(refresh=False)
        lane._task = asyncio.create_task(lane._run(connection), name="tampu-lane")
        lane._task.add_done_callback(lane._clean_up)
        return lane

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def server(self) -> Server:
        """The server that this lane leads to."""
        return self._server

    @property
    def address(self) -> tuple[str, int | None]:
        """Where the server is now: its host and port, or the path of its socket and None."""
        place = None if self._connection is None else self._connection.node.place
        if place is not None:
            return place
        return self._server.name.removeprefix("unix://").removeprefix("embedded:"), None

    @property
    def is_idle(self) -> bool:
        """Whether no call waits for its outcome."""
        return not self._calls

    def send(
        self,
        packed: bytes,
        *,
        repeatable: bool = False,
        block_s: float = 0.0,
        limit_s: float | None = None,
        maybe_done: bool = False,
    ) -> asyncio.Future[Reply]:
        """Send one packed command; the future gets its reply or a `ServerError`.

        `repeatable` promises that carrying it out twice does no harm. `block_s` is how long the
        command itself may block at the server. `maybe_done` says that an earlier call for the same
        may have been carried out. Cancelling the future gives up the reply only.
        """
        if self._closed:
            raise Closed(self._server.name)
        future: asyncio.Future[Reply] = self._loop.create_future()
        call = PendingCall(packed, future=future, repeatable=repeatable, block_s=block_s)
        call.maybe_done = maybe_done
        call.limit_s = (self._options.limit_s if limit_s is None else limit_s) + block_s
        call.until = self._loop.time() + call.limit_s
        if call.until < self._timer_at:
            self._set_timer(call.until)
        self._calls.add(call)
        future.add_done_callback(partial(self._forget, call))
        self._send_queue.put(call)
        return future

    async def call(
        self,
        *command: Argument,
        repeatable: bool = False,
        block_s: float = 0.0,
        limit_s: float | None = None,
    ) -> Reply:
        """Pack one command, send it and wait for its reply."""
        packed = pack(*command)
        return await self.send(packed, repeatable=repeatable, block_s=block_s, limit_s=limit_s)

    async def client_id(self) -> int | None:
        """The id of the connection on the server; None without one, or if the user may not ask."""
        connection = self._connection
        return None if connection is None else await connection.node.client_id()

    async def unblock(self) -> None:
        """End this lane's blocking reads now; each is answered as if its time were up.

        What the server had already given to a read still arrives as its reply. Reads of a user
        without the permission for CLIENT ID end when their own time is up. Raises a `ServerError`
        if the server cannot be reached; a read that is lost with its connection is not sent again.
        """
        for call in list(self._calls):
            if call.block_s:
                call.unblocked = True
                if not call.sent:
                    call.answer(None)
        connection = self._connection
        if connection is None or not connection.has_blocking_read():
            return
        client_id = await connection.node.client_id()
        if client_id is not None:
            await self._unblock(connection, client_id)

    async def close(self) -> None:
        """Disconnect; calls without a reply fail. May be called twice."""
        self._closed = True
        connection = self._connection
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if connection is not None:
            await connection.disconnect()

    async def _run(self, connection: LaneConnection) -> None:
        """Use one connection after the other; the lane's only task."""
        while True:
            began = self._loop.time()
            problem = await connection.run()
            if self._closed:
                return  # before Python 3.13 a task group that fails swallows a cancellation
            self._connection = None
            # A slot that moves is no outage, and neither is a connection that nobody needs now.
            if self._calls and not isinstance(connection.leaving, MovedError):
                self._trouble.begin(ConnectionLost(self._server.name, problem))
            self._sort(connection.leftovers(), problem)
            lasted_s = self._loop.time() - began
            was_good = connection.proven or lasted_s > self._options.longest_pause_s
            if was_good:
                self._pauses.reset()
            connection = self._connection = await self._reconnect(connection)
            # A server that accepts connections and refuses every call is one outage.
            self._loop.call_later(0.0 if was_good else _STEADY_S, self._end_trouble, connection)

    def _end_trouble(self, connection: LaneConnection) -> None:
        if self._connection is connection:
            self._trouble.end()

    def _sort(self, leftovers: list[PendingCall], problem: str) -> None:
        """Put back, in order, the calls that can be sent again; fail the others."""
        again = []
        for call in leftovers:
            call.maybe_done = call.maybe_done or call.sent
            if call.unblocked:
                call.answer(None)
            elif call.sent and not call.repeatable:
                call.fail(ConnectionLost(self._server.name, problem))
            else:
                again.append(call)
        self._send_queue.put_back(again)

    async def _reconnect(self, before: LaneConnection) -> LaneConnection:
        knows_node = await self._follow(before)
        while True:
            await asyncio.sleep(self._pauses.next_s(skip_first=knows_node))
            try:
                connection = await self._connect(refresh=not knows_node)
            except ServerError as error:
                self._connect_error, knows_node = error, False
                if self._calls:
                    self._trouble.begin(error)
                if error.verdict is Verdict.GIVE_UP:
                    self._fail_all(error)
            else:
                self._connect_error = None
                return connection

    async def _follow(self, connection: LaneConnection) -> bool:
        """Whether the refusal that ended a connection names the node to connect to next."""
        moved = connection.leaving
        if not isinstance(moved, MovedError):
            return False
        own_host, _ = connection.node.place or ("", 0)
        moved.host = moved.host or own_host  # clusters may hide the names of their hosts
        if await self._server.follow(moved):
            return True
        hint = "this is one node of a cluster; use a redis+cluster:// URL"
        self._fail_all(CommandRefused(self._server.name, "MOVED", hint))
        return False

    async def _connect(self, *, refresh: bool) -> LaneConnection:
        server, queue, patience_s = self._server, self._send_queue, self._options.patience_s
        if self._shared is not None:
            return await self._shared.join(
                self._key, refresh=refresh, send_queue=queue, patience_s=patience_s
            )
        connection = await server.open(self._key, refresh=refresh)
        node = NodeConnection(connection, server=server, patience_s=patience_s)
        return LaneConnection(node, server=server, send_queue=queue)

    async def _unblock(self, blocked: LaneConnection, client_id: int) -> None:
        second = await self._connect_beside(blocked)
        try:
            with server_errors(self._server.name, sent=True):
                async with asyncio.timeout(self._options.patience_s):
                    while blocked.has_blocking_read():
                        await second.send_command("CLIENT", "UNBLOCK", client_id)
                        await second.read_response()
                        # A read that had not reached the server yet blocks after all: try again.
                        await asyncio.sleep(_UNBLOCK_AGAIN_S)
        finally:
            await second.disconnect(nowait=True)

    async def _connect_beside(self, connection: LaneConnection) -> Connection:
        """A second connection to the same node."""
        place = connection.node.place
        if place is None:
            return await self._server.open(self._key)
        return await self._server.open_to(place)

    def _forget(self, call: PendingCall, _: asyncio.Future[Reply]) -> None:
        self._calls.discard(call)

    def _set_timer(self, at: float) -> None:
        """Check the time limits then, and not before: one timer serves all calls."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._check_limits), at

    def _check_limits(self) -> None:
        self._timer, self._timer_at = None, math.inf
        now = self._loop.time()
        for call in list(self._calls):
            if call.until <= now:
                self._expire(call)
        if next_at := min((call.until for call in self._calls if call.until > now), default=None):
            self._set_timer(next_at)

    def _expire(self, call: PendingCall) -> None:
        server = self._server.name
        if call.sent:
            call.fail(ConnectionLost(server, f"no reply within {call.limit_s:g} s"))
        elif call.refusal is not None:
            call.fail(refusal_error(call.refusal, server))
        else:
            call.fail(copy.copy(self._connect_error) or ServerUnreachable(server, TOO_SLOW))

    def _fail_all(self, error: ServerError) -> None:
        """Fail every call, while there is no connection; each gets an error of its own."""
        for call in list(self._calls):
            call.fail(copy.copy(error))

    def _clean_up(self, task: asyncio.Task[None]) -> None:
        """Fail what is left after the lane was closed, or after its task failed."""
        self._closed = True
        server = self._server.name
        self._trouble.end(recovered=False)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "the lane to %s failed: %r",
                server,
                error,
                extra={"server": server, "problem": repr(error)},
                exc_info=error,
            )
        for call in list(self._calls):
            lost = ConnectionLost(server, "the lane was closed")
            call.fail(lost if call.sent else Closed(server))
        if self._timer is not None:
            self._timer.cancel()
