"""Leases: a worker keeps its entries while its heartbeats arrive.

Heartbeats are sent from a thread with a connection of its own, so a handler that blocks the loop
keeps its lease. So does one that blocks the interpreter: its connection stays open, and other
workers look at that too (services/reaper.py).
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Sequence
from time import monotonic
from typing import Protocol

from tampu.errors import AccessDenied, CommandRefused, ServerError
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, connect
from tampu.server.lane import Lane, LaneOptions
from tampu.server.outage import Outage
from tampu.server.scripts.workers import Membership, heartbeat, reap
from tampu.services.reaper import LeaseTerms
from tampu.util.clock import now_ms
from tampu.wire.holders import WorkerHeartbeat, encode_heartbeat

logger = logging.getLogger(__name__)


class LeasedEntry(Protocol):
    """An entry that a worker holds a lease on."""

    @property
    def read_at(self) -> float:
        """When it was read; monotonic."""


class Leases:
    """Sends heartbeats, and knows whether a lease may have lapsed."""

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
        self._worker = member.consumer.decode()
        self._terms = terms
        self._concurrency = concurrency
        self._started_at_ms = now_ms()
        self._sent_at = 0.0  # when the last heartbeat was sent that arrived
        self._lapsed_at = 0.0  # when we last found that others may have taken our entries
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._stop_requested = False  # possibly before the thread has a loop

    async def start(self, outage: Outage) -> None:
        """Send the first heartbeat; raises what prevents it. Trouble is logged with `outage`."""
        loop = asyncio.get_running_loop()
        first: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(first, loop, outage)),
            name="tampu-leases",
            daemon=True,
        )
        self._thread.start()
        await first

    def are_valid(self, entries: Sequence[LeasedEntry]) -> bool:
        """Whether no lease on any of these can have lapsed."""
        if self.heartbeat_age_s >= self._terms.suspect_s:
            return False
        return self._lapsed_at == 0.0 or min(each.read_at for each in entries) > self._lapsed_at

    @property
    def heartbeat_age_s(self) -> float:
        """How long ago the last heartbeat was sent that arrived."""
        return monotonic() - self._sent_at

    async def stop(self) -> None:
        """End the heartbeats; remove the consumer if it holds nothing. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop_requested = True
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    async def _run(
        self, first: asyncio.Future[None], starter: asyncio.AbstractEventLoop, outage: Outage
    ) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._stop_requested:
            self._stopping.set()
        try:
            async with await connect(self._target, credentials=self._credentials) as server:
                server.outage = outage
                options = LaneOptions(limit_s=max(1.0, self._terms.suspect_s))
                async with await Lane.open(server, self._member.key, options=options) as lane:
                    await self._send_heartbeat(lane, first=True)
                    starter.call_soon_threadsafe(_resolve, first, None)
                    await self._send_heartbeats(lane, self._stopping)
                    await self._leave(lane)
        except BaseException as error:  # noqa: BLE001 - raised again by `start`, or logged
            starter.call_soon_threadsafe(_resolve, first, error)

    async def _send_heartbeats(self, lane: Lane, stopping: asyncio.Event) -> None:
        trouble = lane.server.outage.part(f"heartbeat of worker {self._worker}")
        while not await _is_set_within(stopping, self._terms.heartbeat_s):
            try:
                await self._send_heartbeat(lane)
            except ServerError as error:
                trouble.begin(error)
            else:
                trouble.end()
        trouble.end(recovered=False)

    async def _send_heartbeat(self, lane: Lane, *, first: bool = False) -> None:
        sent_at = monotonic()
        value = await self._heartbeat(lane)
        terms, member = self._terms, self._member
        answer = await heartbeat(
            lane, member, body=value, ttl_ms=terms.lease_ms, idle_ms=terms.renew_idle_ms
        )
        if answer.left_ms is None and not first:
            self._lapsed_at = monotonic()
            text = "the leases of worker %s have lapsed: other workers may have run its jobs"
            logger.warning(text, self._worker, extra={"worker": self._worker})
        self._sent_at = sent_at

    async def _heartbeat(self, lane: Lane) -> bytes:
        """The value to write. It names our connection, which is another one after a reconnect."""
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
            await reap(lane, self._member, own_heartbeat=await self._heartbeat(lane))
        except ServerError as error:
            facts = {"worker": self._worker, "problem": str(error)}
            logger.warning("worker %s could not be removed: %s", self._worker, error, extra=facts)


async def _is_set_within(event: asyncio.Event, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            return await event.wait()
    except TimeoutError:
        return False


def _resolve(first: "asyncio.Future[None]", error: BaseException | None) -> None:
    if first.done():
        if error is not None:
            logger.error("the thread that sends heartbeats failed", exc_info=error)
    elif error is None:
        first.set_result(None)
    else:
        first.set_exception(error)
