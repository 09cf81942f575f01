"""A held connection for the hot path: packed batches, many calls in flight."""

import asyncio
import logging
from dataclasses import dataclass
from random import Random
from typing import Self

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import MovedError, RedisError

from tampu.errors import (
    Closed,
    CommandRefused,
    ConnectionLost,
    OptionError,
    ServerError,
    ServerUnreachable,
    Verdict,
)
from tampu.server.command import Argument, Reply, pack
from tampu.server.connect import Server
from tampu.server.errors import refused, server_errors
from tampu.server.link import Link
from tampu.server.outbox import Call, Outbox

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
        for name in ("limit_s", "patience_s", "first_pause_s", "longest_pause_s"):
            if not getattr(self, name) > 0:
                raise OptionError(name, getattr(self, name), "must be above 0 seconds")

    def pause_s(self, tries: int, rng: Random) -> float:
        """How long to wait before try number `tries`, spread so that not all come at once."""
        ceiling = min(self.longest_pause_s, self.first_pause_s * 2 ** min(tries, 16))
        return rng.uniform(ceiling / 2, ceiling) if tries else rng.uniform(0, ceiling)


class Lane:
    """One connection to the node that holds a queue's slot, kept alive and followed when it moves.

    Calls are written in the order they were sent and may be in flight together. When the connection
    breaks, a call that was in flight fails with `ConnectionLost`, or is sent again if it was marked
    `repeatable`; calls that were not sent yet wait for the next connection. The number of calls in
    flight is the caller's business. A lane belongs to the event loop that opened it.
    """

    def __init__(
        self, server: Server, key: bytes, *, options: LaneOptions, rng: Random | None = None
    ) -> None:
        self._server = server
        self._key = key
        self._options = options
        self._rng = rng or Random()  # noqa: S311 - spreads reconnects, guards nothing
        self._outbox = Outbox()
        self._link: Link | None = None
        self._trouble: ServerError | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, server: Server, key: bytes, *, options: LaneOptions | None = None
    ) -> "Lane":
        """Connect a lane to the node that holds `key`; fails at once if that cannot be done."""
        lane = cls(server, key, options=options or LaneOptions())
        connection = await server.open(key)
        lane._task = asyncio.create_task(lane._run(connection), name="tampu-lane")
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

    def send(
        self,
        packed: bytes,
        *,
        repeatable: bool = False,
        block_s: float = 0.0,
        limit_s: float | None = None,
    ) -> asyncio.Future[Reply]:
        """Put one packed command on its way; the future gets its reply or a `ServerError`.

        `repeatable` promises that carrying it out twice does no harm. `block_s` is how long the
        command itself may wait at the server. Cancelling the future gives up the reply only.
        """
        if self._closed:
            raise Closed(self._server.name)
        future: asyncio.Future[Reply] = self._loop.create_future()
        call = Call(packed, future=future, repeatable=repeatable, block_s=block_s)
        limit_s = (limit_s or self._options.limit_s) + block_s
        call.timer = self._loop.call_later(limit_s, self._expire, call, limit_s)
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
        without the right to CLIENT ID end when their own time is up.
        """
        for call in self._outbox:
            if call.block_s:
                call.answer(None)
        link = self._link
        if link is None or not link.blocks():
            return
        client_id = await link.client_id()
        if client_id is None:
            return
        side = await self._beside(link)
        try:
            with server_errors(self._server.name, sent=True):
                async with asyncio.timeout(self._options.patience_s):
                    await self._unblock(link, side, client_id)
        finally:
            await side.disconnect(nowait=True)

    async def _unblock(self, link: Link, side: AbstractConnection, client_id: int) -> None:
        while link.blocks():
            await side.send_command("CLIENT", "UNBLOCK", client_id)
            await side.read_response()
            # A read that had not reached the server yet blocks after all: ask again.
            await asyncio.sleep(_UNBLOCK_AGAIN_S)

    async def close(self) -> None:
        """Disconnect; calls without a reply fail. May be called twice."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._link is not None:
            for call in self._link.in_flight:
                call.fail(ConnectionLost(self._server.name, "the lane was closed"))
            self._link = None
        self._outbox.close(Closed(self._server.name))

    async def _run(self, connection: AbstractConnection) -> None:
        """The lane's one task: a link, and when it ends the next."""
        tries = 0
        while True:
            link = self._link = Link(
                connection,
                server=self._server,
                outbox=self._outbox,
                patience_s=self._options.patience_s,
            )
            problem = await link.run()
            self._link = None
            self._requeue(link, problem)
            if link.proven:
                tries = 0
            connection, tries = await self._reconnected(tries, after=link, problem=problem)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Leave no call waiting for a lane that something unforeseen has ended."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._closed = True
            logger.error("lane died", extra={"server": self._server.name}, exc_info=error)
            self._outbox.close(Closed(self._server.name))

    def _requeue(self, link: Link, problem: str) -> None:
        """Put back, in their order, the calls that may be sent again; fail the others."""
        again = link.rejected
        for call in link.in_flight:
            if call.repeatable and not call.future.done():
                again.append(call)
            else:
                call.fail(ConnectionLost(self._server.name, problem))
        link.in_flight.clear()
        self._outbox.put_back(again)

    async def _reconnected(
        self, tries: int, *, after: Link, problem: str
    ) -> tuple[AbstractConnection, int]:
        logger.warning("connection ended", extra={"server": self._server.name, "problem": problem})
        refresh = not await self._noted(after.moved)
        while True:
            if refresh or tries:
                await asyncio.sleep(self._options.pause_s(tries, self._rng))
            tries += 1
            try:
                connection = await self._server.open(self._key, refresh=refresh)
            except ServerError as error:
                self._trouble, refresh = error, True
                if error.verdict is Verdict.GIVE_UP:
                    self._outbox.fail(error)
            else:
                self._trouble = None
                logger.info("connection is back", extra={"server": self._server.name})
                return connection, tries

    async def _noted(self, moved: Exception | None) -> bool:
        """Whether the refusal that ended a link told us where to go next."""
        if not isinstance(moved, MovedError):
            return False
        try:
            if await self._server.moved(moved):
                return True
        except (RedisError, OSError):
            return False
        hint = "it is one node of a cluster: use a redis+cluster:// URL"
        self._outbox.fail(CommandRefused(self._server.name, "MOVED", hint))
        return False

    def _expire(self, call: Call, limit_s: float) -> None:
        server = self._server.name
        if call.refusal is not None:
            call.fail(refused(call.refusal, server))
        elif call.sent:
            call.fail(ConnectionLost(server, f"no reply within {limit_s:g} s"))
        else:
            call.fail(self._trouble or ServerUnreachable(server, "it did not answer in time"))

    async def _beside(self, link: Link) -> AbstractConnection:
        """A second connection to the node that a link leads to."""
        if link.host is None:
            return await self._server.open(self._key)
        return await self._server.open_to(link.host, link.port)
