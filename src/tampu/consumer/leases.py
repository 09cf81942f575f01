"""Signs of life, from a thread with a connection of its own.

A handler that blocks the loop then keeps its leases. One that holds the interpreter for long keeps
them too: its connection stays open, and that is what others judge by (services/reaper.py).
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from tampu.errors import AccessDenied, CommandRefused, ServerError
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, connect
from tampu.server.lane import Lane, LaneOptions
from tampu.server.scripts.workers import Membership, heartbeat, reap
from tampu.services.reaper import LeaseTerms
from tampu.util.clock import now_ms
from tampu.wire.holders import WorkerHeartbeat, encode_heartbeat

logger = logging.getLogger(__name__)


class LeaseHolder(Protocol):
    """What a worker holds a lease on."""

    @property
    def read_at(self) -> float:
        """When it was read."""


class Leases:
    """Keeps what a worker holds its own while the worker lives."""

    def __init__(
        self,
        target: Target,
        credentials: CredentialCallback | None,
        member: Membership,
        *,
        terms: LeaseTerms,
        concurrency: int,
    ) -> None:
        self._target = target
        self._credentials = credentials
        self._member = member
        self._terms = terms
        self._concurrency = concurrency
        self._started_at_ms = now_ms()
        self._landed_at = 0.0  # when the last sign of life was sent that landed
        self._lapsed_at = 0.0  # when we last came to know that others may have taken what we hold
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._given_up = False  # before there was a loop to tell

    async def start(self) -> None:
        """Give the first sign of life; raises what keeps us from it."""
        loop = asyncio.get_running_loop()
        landed: asyncio.Future[None] = loop.create_future()

        def tell(error: BaseException | None) -> None:
            loop.call_soon_threadsafe(_settle, landed, error)

        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live(tell)), name="tampu-leases", daemon=True
        )
        self._thread.start()
        await landed

    def hold(self, entries: Sequence[LeaseHolder]) -> bool:
        """Whether no lease on any of these can have lapsed."""
        if self.silent_s >= self._terms.doubt_s:
            return False
        return self._lapsed_at == 0.0 or min(each.read_at for each in entries) > self._lapsed_at

    @property
    def silent_s(self) -> float:
        """How long ago the last sign of life was given that landed."""
        return monotonic() - self._landed_at

    async def stop(self) -> None:
        """Give the last sign; the consumer is removed if it holds nothing. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._given_up = True
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    async def _live(self, tell: Callable[[BaseException | None], None]) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._given_up:
            self._stopping.set()
        try:
            async with await connect(self._target, credentials=self._credentials) as server:
                options = LaneOptions(limit_s=max(1.0, self._terms.doubt_s))
                async with await Lane.open(server, self._member.key, options=options) as lane:
                    await self._beat(lane, first=True)
                    tell(None)
                    await self._keep_beating(lane)
                    await self._leave(lane)
        except BaseException as error:  # noqa: BLE001 - told to who started us, if it still waits
            tell(error)

    async def _keep_beating(self, lane: Lane) -> None:
        stopping, troubled = self._stopping, False
        assert stopping is not None  # noqa: S101 - set before
        while not await _within(stopping, self._terms.beat_s):
            try:
                await self._beat(lane)
            except ServerError as error:
                if not troubled:
                    logger.warning("no sign of life gets through", extra={"problem": str(error)})
                troubled = True
            else:
                troubled = False

    async def _beat(self, lane: Lane, *, first: bool = False) -> None:
        sent_at = monotonic()
        mark = await self._mark(lane)
        terms = self._terms
        landed = await heartbeat(
            lane, self._member, mark=mark, ttl_ms=terms.lease_ms, idle_ms=terms.renew_idle_ms
        )
        if landed.left_ms is None and not first:
            self._lapsed_at = monotonic()
            logger.warning("leases have lapsed", extra={"consumer": self._member.consumer.decode()})
        self._landed_at = sent_at

    async def _mark(self, lane: Lane) -> bytes:
        """Who we are on the connection we have now; after a reconnect that is somebody else."""
        try:
            client_id = await lane.call("CLIENT", "ID", repeatable=True)
        except (CommandRefused, AccessDenied):
            client_id = 0
        return encode_heartbeat(
            WorkerHeartbeat(
                client_id if isinstance(client_id, int) else 0,
                socket.gethostname(),
                os.getpid(),
                self._started_at_ms,
                self._concurrency,
                self._terms.lease_ms,
            )
        )

    async def _leave(self, lane: Lane) -> None:
        try:
            await reap(lane, self._member, mark=await self._mark(lane))
        except ServerError as error:
            logger.warning("the consumer stays behind", extra={"problem": str(error)})


async def _within(event: asyncio.Event, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            return await event.wait()
    except TimeoutError:
        return False


def _settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        if error is not None:
            logger.error("the thread that keeps leases died", exc_info=error)
    elif error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
