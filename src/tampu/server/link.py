"""One connection's life: calls go out, replies come back in step."""

import asyncio
import math
from collections import deque
from contextlib import suppress
from time import monotonic

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, MovedError, ResponseError, TryAgainError

from tampu.errors import ConnectionLost, ServerError
from tampu.server.command import Reply, pack
from tampu.server.connect import Server
from tampu.server.errors import LINK_ERRORS, REPLIES, link_problem, refusal_code, refused
from tampu.server.outbox import Call, Outbox

# Said by a node that is no longer the one to ask; nothing was done, so the call may go elsewhere.
_ELSEWHERE = frozenset({"MOVED", "READONLY", "UNBLOCKED"})
_CLIENT_ID = pack("CLIENT", "ID")
_ASKING = pack("ASKING")
_CHECKS_PER_PATIENCE = 4
# How soon a call is sent again that met a slot whose keys are under way to another node.
_TRY_AGAIN_S = 0.02


class Link:
    """Sends what is wanted and matches replies to calls, until the connection ends.

    The server answers in the order it was asked. So a call keeps its place in `in_flight` until its
    reply has come, whether or not somebody still waits for it: that is all it takes for a cancelled
    call not to shift the replies of others.
    """

    def __init__(
        self,
        connection: AbstractConnection,
        *,
        server: Server,
        outbox: Outbox,
        patience_s: float,
    ) -> None:
        self.in_flight: deque[Call] = deque()
        self.rejected: list[Call] = []  # refused by a node that is not the one to ask
        self.moved: Exception | None = None  # the refusal that said so
        self.proven = False  # the last call of ours was answered by the right node
        self._connection = connection
        self._server = server
        self._outbox = outbox
        self._patience_s = patience_s
        self._heard_at = monotonic()
        self._redirects: asyncio.TaskGroup | None = None
        self._identity: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._identity.add_done_callback(_seen)

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
        return any(call.block_s for call in self.in_flight)

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
                self._redirects = group
                helpers = [
                    group.create_task(self._write(), name="tampu-link-write"),
                    group.create_task(self._watch(), name="tampu-link-watch"),
                ]
                try:
                    await self._read()
                finally:
                    for helper in helpers:
                        helper.cancel()
        except* LINK_ERRORS as errors:
            problem = link_problem(errors.exceptions[0])
        finally:
            await self._connection.disconnect(nowait=True)
        return problem

    async def _write(self) -> None:
        send = self._connection.send_packed_command
        self.in_flight.append(Call(_CLIENT_ID, future=self._identity))
        await send(_CLIENT_ID, check_health=False)
        while True:
            await self._outbox.filled.wait()
            if self.moved is not None:
                return
            if calls := self._outbox.take():
                if not self.in_flight:
                    self._heard_at = monotonic()
                self.in_flight.extend(calls)
                await send([call.packed for call in calls], check_health=False)

    async def _read(self) -> None:
        read, in_flight = self._connection.read_response, self.in_flight
        while self.moved is None or in_flight:
            try:
                reply = await read(
                    disable_decoding=True, timeout=math.inf, disconnect_on_error=False
                )
            except REPLIES as error:
                self._refused(self._next(), error)
                continue
            self._next().answer(reply)

    def _next(self) -> Call:
        """The call that the reply just read belongs to."""
        self._heard_at = monotonic()
        if not self.in_flight:
            raise ConnectionError("it sent what nobody asked for")
        call = self.in_flight.popleft()
        self.proven = call.future is not self._identity
        return call

    def _refused(self, call: Call, error: Exception) -> None:
        if isinstance(error, AskError) and not isinstance(error, MovedError):
            assert self._redirects is not None  # noqa: S101 - set before anything is read
            self._redirects.create_task(self._ask(call, error), name="tampu-link-ask")
        elif refusal_code(error) in _ELSEWHERE:
            call.refused(error)
            self.rejected.append(call)
            self.moved = error
            self.proven = False
            self._outbox.filled.set()
        else:
            self._said_no(call, error)

    def _said_no(self, call: Call, error: Exception) -> None:
        if isinstance(error, TryAgainError):
            call.refused(error)
            asyncio.get_running_loop().call_later(_TRY_AGAIN_S, self._outbox.put, call)
        else:
            call.fail(refused(error, self._server.name))

    async def _ask(self, call: Call, error: AskError) -> None:
        """Carry one call to the node its slot is moving to; the others stay here."""
        try:
            other = await self._server.open_to(error.host or self.host or "", error.port)
        except ServerError as problem:
            call.fail(problem)
            return
        try:
            async with asyncio.timeout(self._patience_s + call.block_s):
                await other.send_packed_command([_ASKING, call.packed], check_health=False)
                await other.read_response()
                call.answer(await other.read_response(disable_decoding=True, timeout=math.inf))
        except ResponseError as refusal:
            self._said_no(call, refusal)
        except LINK_ERRORS as broken:
            self._lost(call, link_problem(broken))
        except asyncio.CancelledError:
            self._lost(call, "the node that passed it on was lost")
            raise
        finally:
            await other.disconnect(nowait=True)

    def _lost(self, call: Call, problem: str) -> None:
        """Send a call again whose reply will not come, if that does no harm; else fail it."""
        if call.repeatable:
            self._outbox.put(call)
        else:
            call.fail(ConnectionLost(self._server.name, problem))

    async def _watch(self) -> None:
        """Give up on a connection that has been silent for too long with a call in flight."""
        while True:
            await asyncio.sleep(self._patience_s / _CHECKS_PER_PATIENCE)
            if self.in_flight:
                allowed_s = self._patience_s + self.in_flight[0].block_s
                if monotonic() - self._heard_at > allowed_s:
                    raise ConnectionError(f"no reply for {allowed_s:g} s")
            if self.host is not None and await self._server.left(self.host, self.port):
                self._leave()

    def _leave(self) -> None:
        """Write nothing more here; replies that are on their way are still taken."""
        self.moved = ConnectionError("the server is another one now")
        self._outbox.filled.set()
        if not self.in_flight:
            raise self.moved


def _seen(future: asyncio.Future[Reply]) -> None:
    """Look at a failure that nobody may ask about, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()
