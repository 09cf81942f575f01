"""A held connection for the hot path: packed batches, many calls in flight."""

import asyncio
import copy
import logging
import math
from dataclasses import dataclass, fields
from functools import partial
from random import Random
from typing import Self

from redis.asyncio.connection import AbstractConnection
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
from tampu.server.connect import Server
from tampu.server.connection import LaneConnection
from tampu.server.errors import TOO_SLOW, refusal_error, server_errors
from tampu.server.protocol import Argument, Reply, pack
from tampu.server.send_queue import PendingCall, SendQueue

logger = logging.getLogger(__name__)

_UNBLOCK_AGAIN_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOptions:
    """How long a lane waits, and how it comes back."""

    limit_s: float = 30.0  # a call that has no reply by then fails, sent or not
    patience_s: float = 5.0  # a connection silent for this long with a call in flight is broken
    first_pause_s: float = 0.05  # before the first reconnect, at most; doubles from there
    longest_pause_s: float = 2.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise OptionError(field.name, getattr(self, field.name), "must be above 0 seconds")


class Pauses:
    """How long to wait before each try to reconnect; spread, so that not all come at once."""

    def __init__(self, options: LaneOptions, rng: Random) -> None:
        self._options = options
        self._rng = rng
        self._tries = 0

    def next_s(self, *, at_once: bool = False) -> float:
        """The wait before the next try: short at first, then twice as long each time.

        `at_once` leaves the first wait out, for who has been told where to go.
        """
        tries, self._tries = self._tries, self._tries + 1
        longest = self._options.longest_pause_s
        ceiling = min(longest, self._options.first_pause_s * 2 ** min(tries, 16))
        if tries:
            return self._rng.uniform(ceiling / 2, ceiling)
        return 0.0 if at_once else self._rng.uniform(0.0, ceiling)

    def reset(self) -> None:
        """Begin with a short wait again, since the last connection proved good."""
        self._tries = 0


class Lane:
    """One connection to the node that holds a queue's slot, kept alive and followed when it moves.

    Calls are written in the order of `send` and may be in flight together. When the connection
    breaks, a call that was in flight fails with `ConnectionLost`, or is sent again if it was marked
    `repeatable`; calls that were not sent yet wait for the next connection. The number of calls in
    flight is the caller's business. A lane belongs to the event loop that opened it.
    """

    def __init__(self, server: Server, key: bytes, options: LaneOptions) -> None:
        self._server = server
        self._key = key
        self._options = options
        self._pauses = Pauses(options, Random())  # noqa: S311 - spreads clients, guards nothing
        self._outbox = SendQueue()
        self._calls: set[PendingCall] = set()  # all that have no outcome yet, wherever they are
        self._link: LaneConnection | None = None
        self._trouble: ServerError | None = None  # why there is no connection
        self._outage = server.outage.part("connection")
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None  # for the call whose time is up first
        self._alarm_at = math.inf
        self._closed = False
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, server: Server, key: bytes, *, options: LaneOptions | None = None) -> Self:
        """Connect a lane to the node that holds `key`; fails at once if that cannot be done."""
        lane = cls(server, key, options or LaneOptions())
        # Known to the lane before its task is: one that is cancelled at once never gets to own it.
        link = lane._link = await lane._connect(refresh=False)
        lane._task = asyncio.create_task(lane._run(link), name="tampu-lane")
        lane._task.add_done_callback(lane._ended)
        return lane

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def server(self) -> Server:
        """Where this lane leads."""
        return self._server

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
        unknown: bool = False,
    ) -> asyncio.Future[Reply]:
        """Put one packed command on its way; the future gets its reply or a `ServerError`.

        `repeatable` promises that carrying it out twice does no harm. `block_s` is how long the
        command itself may wait at the server. `unknown` says that an earlier call for the same
        may have been carried out. Cancelling the future gives up the reply only.
        """
        if self._closed:
            raise Closed(self._server.name)
        future: asyncio.Future[Reply] = self._loop.create_future()
        call = PendingCall(packed, future=future, repeatable=repeatable, block_s=block_s)
        call.unknown = unknown
        call.limit_s = (self._options.limit_s if limit_s is None else limit_s) + block_s
        call.until = self._loop.time() + call.limit_s
        if call.until < self._alarm_at:
            self._set_alarm(call.until)
        self._calls.add(call)
        future.add_done_callback(partial(self._forget, call))
        self._outbox.put(call)
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

    async def unblock(self) -> None:
        """End this lane's blocking reads now; each is answered as if its time were up.

        What a read had already been given at the server still arrives as its reply. Reads of a user
        without the right to CLIENT ID end when their own time is up. Raises a `ServerError` if the
        server cannot be told; a read that is lost with the connection is not sent again.
        """
        for call in list(self._calls):
            if call.block_s:
                call.ended = True
                if not call.sent:
                    call.answer(None)
        link = self._link
        if link is None or not link.blocks():
            return
        client_id = await link.client_id()
        if client_id is not None:
            await self._unblock(link, client_id)

    async def close(self) -> None:
        """Disconnect; calls without a reply fail. May be called twice."""
        self._closed = True
        link = self._link
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if link is not None:
            await link.disconnect()

    async def _run(self, link: LaneConnection) -> None:
        """The lane's one task: a link, and when it ends the next."""
        while True:
            began = self._loop.time()
            problem = await link.run()
            if self._closed:
                return  # before Python 3.13 a task group that fails swallows a cancellation
            self._link = None
            self._outage.begin(ConnectionLost(self._server.name, problem))
            self._sort(link.leftovers(), problem)
            if link.proven or self._loop.time() - began > self._options.longest_pause_s:
                self._pauses.reset()
            link = self._link = await self._next_link(after=link)
            self._outage.end()

    def _sort(self, leftovers: list[PendingCall], problem: str) -> None:
        """Put back, in their order, the calls that may be sent again; fail the others."""
        again = []
        for call in leftovers:
            call.unknown = call.unknown or call.sent
            if call.ended:
                call.answer(None)
            elif call.sent and not call.repeatable:
                call.fail(ConnectionLost(self._server.name, problem))
            else:
                again.append(call)
        self._outbox.put_back(again)

    async def _next_link(self, *, after: LaneConnection) -> LaneConnection:
        known = await self._note_move(after)
        while True:
            await asyncio.sleep(self._pauses.next_s(at_once=known))
            try:
                link = await self._connect(refresh=not known)
            except ServerError as error:
                self._trouble, known = error, False
                if error.verdict is Verdict.GIVE_UP:
                    self._fail_all(error)
            else:
                self._trouble = None
                return link

    async def _note_move(self, link: LaneConnection) -> bool:
        """Whether the refusal that ended a link told us where to go next."""
        moved = link.leaving
        if not isinstance(moved, MovedError):
            return False
        moved.host = moved.host or link.host or ""  # clusters may leave their names out
        if await self._server.note_move(moved):
            return True
        hint = "it is one node of a cluster: use a redis+cluster:// URL"
        self._fail_all(CommandRefused(self._server.name, "MOVED", hint))
        return False

    async def _connect(self, *, refresh: bool) -> LaneConnection:
        connection = await self._server.open(self._key, refresh=refresh)
        return LaneConnection(
            connection,
            server=self._server,
            outbox=self._outbox,
            patience_s=self._options.patience_s,
        )

    async def _unblock(self, link: LaneConnection, client_id: int) -> None:
        side = await self._connect_beside(link)
        try:
            with server_errors(self._server.name, sent=True):
                async with asyncio.timeout(self._options.patience_s):
                    while link.blocks():
                        await side.send_command("CLIENT", "UNBLOCK", client_id)
                        await side.read_response()
                        # A read that had not reached the server yet blocks after all: ask again.
                        await asyncio.sleep(_UNBLOCK_AGAIN_S)
        finally:
            await side.disconnect(nowait=True)

    async def _connect_beside(self, link: LaneConnection) -> AbstractConnection:
        """A second connection to the node that a link leads to."""
        if link.host is None:
            return await self._server.open(self._key)
        return await self._server.open_to(link.host, link.port)

    def _forget(self, call: PendingCall, _: asyncio.Future[Reply]) -> None:
        self._calls.discard(call)

    def _set_alarm(self, at: float) -> None:
        """Look at the time limits then, and not before: one timer serves all calls."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = self._loop.call_at(at, self._look_at_limits), at

    def _look_at_limits(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        now = self._loop.time()
        for call in list(self._calls):
            if call.until <= now:
                self._expire(call)
        if next_at := min((call.until for call in self._calls if call.until > now), default=None):
            self._set_alarm(next_at)

    def _expire(self, call: PendingCall) -> None:
        server = self._server.name
        if call.sent:
            call.fail(ConnectionLost(server, f"no reply within {call.limit_s:g} s"))
        elif call.refusal is not None:
            call.fail(refusal_error(call.refusal, server))
        else:
            call.fail(copy.copy(self._trouble) or ServerUnreachable(server, TOO_SLOW))

    def _fail_all(self, error: ServerError) -> None:
        """Fail every call, while there is no link and all of them wait; each gets its own error."""
        for call in list(self._calls):
            call.fail(copy.copy(error))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Leave no call waiting for a lane that was closed, or ended by something unforeseen."""
        self._closed = True
        self._outage.end(recovered=False)
        server = self._server.name
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("lane died", extra={"server": server}, exc_info=error)
        for call in list(self._calls):
            lost = ConnectionLost(server, "the lane was closed")
            call.fail(lost if call.sent else Closed(server))
        if self._alarm is not None:
            self._alarm.cancel()
