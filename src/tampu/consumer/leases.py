"""Leases: a worker keeps its entries while its heartbeats arrive.

Heartbeats are sent from a thread with connections of its own, so a handler that blocks the loop
keeps its lease. So does one that blocks the interpreter: its connection stays open, and other
workers look at that too (services/reaper.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from contextlib import AsyncExitStack, suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from tampu.errors import ServerError
from tampu.server.connect import connect
from tampu.server.connection import SharedConnections
from tampu.server.lane import Lane, LaneOptions
from tampu.server.scripts.workers import Membership, heartbeat, reap
from tampu.server.streams import extend
from tampu.util.clock import now_ms, until_tick
from tampu.util.lifecycle import cancel_all, run_all
from tampu.wire.holders import WorkerHeartbeat, encode_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tampu.server.client import CredentialCallback
    from tampu.server.connect import Server, Target
    from tampu.server.outage import Outage
    from tampu.services.reaper import LeaseTerms

logger = logging.getLogger(__name__)
_LEAVE_S: Final = 2.0  # a server that is away does not hold up a worker that stops


class LeasedEntry(Protocol):
    """An entry that a worker holds a lease on."""

    @property
    def read_at(self) -> float:
        """When it was read; monotonic."""


class WorkerLease:
    """The lease of one consumer on the entries it holds, and whether it may have lapsed."""

    def __init__(self, member: Membership, terms: LeaseTerms, *, concurrency: int) -> None:
        self.member = member
        self._terms = terms
        self._concurrency = concurrency
        self._worker = member.consumer.decode()
        self._started_at_ms = now_ms()
        self._body = b""  # the last heartbeat that was written
        self._renew_at = 0.0  # when the next heartbeat renews entries too
        self._sent_at = 0.0  # when the last heartbeat was sent that arrived
        self._lapsed_at = 0.0  # when we last found that others may have taken our entries

    def are_valid(self, entries: Sequence[LeasedEntry]) -> bool:
        """Whether no lease on any of these can have lapsed."""
        if self.heartbeat_age_s >= self._terms.suspect_s:
            return False
        return self._lapsed_at == 0.0 or min(each.read_at for each in entries) > self._lapsed_at

    @property
    def heartbeat_age_s(self) -> float:
        """How long ago the last heartbeat was sent that arrived."""
        return monotonic() - self._sent_at

    async def keep(self, lane: Lane) -> None:
        """Send heartbeats until cancelled. The first one has been sent."""
        trouble = lane.server.outage.part(f"heartbeat of worker {self._worker}")
        try:
            while True:
                await asyncio.sleep(until_tick(self._terms.heartbeat_s))
                try:
                    await self.send_heartbeat(lane)
                except ServerError as error:
                    trouble.begin(error)
                else:
                    trouble.end()
        finally:
            trouble.end(recovered=False)

    async def send_heartbeat(self, lane: Lane) -> None:
        """Extend the last heartbeat, or write another one and renew the entries that we hold."""
        sent_at = monotonic()
        body = await self._encode(lane)
        terms, key = self._terms, self.member.key
        is_renewal = body != self._body or sent_at >= self._renew_at
        if is_renewal or not await extend(lane, key, ttl_ms=terms.lease_ms):
            answer = await heartbeat(
                lane, self.member, body=body, ttl_ms=terms.lease_ms, idle_ms=terms.renew_idle_ms
            )
            if answer.left_ms is None and self._body:
                self._lapsed_at = monotonic()
                text = "the leases of worker %s have lapsed: other workers may have run its jobs"
                logger.warning(text, self._worker, extra={"worker": self._worker})
            self._body, self._renew_at = body, sent_at + terms.renew_s
        self._sent_at = sent_at

    async def give_up(self, lane: Lane) -> None:
        """Remove the consumer if it holds nothing."""
        try:
            await reap(lane, self.member, last_heartbeat=self._body)
        except ServerError as error:
            facts = {"worker": self._worker, "problem": str(error)}
            logger.warning("worker %s could not be removed: %s", self._worker, error, extra=facts)

    async def _encode(self, lane: Lane) -> bytes:
        """The heartbeat. It names our connection, which is another one after a reconnect."""
        return encode_heartbeat(
            WorkerHeartbeat(
                await lane.client_id() or 0,
                socket.gethostname(),
                os.getpid(),
                self._started_at_ms,
                self._concurrency,
                self._terms.lease_ms,
            )
        )


class LeaseThread:
    """Keeps the leases of a process: one thread, and one connection to each node."""

    def __init__(self, leases: Sequence[WorkerLease], *, limit_s: float) -> None:
        self._leases = leases
        self._options = LaneOptions(limit_s=max(1.0, limit_s))
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._stop_requested = False  # possibly before the thread has a loop

    async def start(
        self, target: Target, credentials: CredentialCallback | None, outage: Outage
    ) -> None:
        """Send the first heartbeats; raises what prevents it. Trouble is logged with `outage`."""
        loop = asyncio.get_running_loop()
        first: asyncio.Future[None] = loop.create_future()

        async def run() -> None:
            try:
                async with await connect(target, credentials=credentials) as server:
                    server.outage = outage
                    await self._keep(server, lambda: loop.call_soon_threadsafe(_resolve, first))
            except BaseException as error:  # noqa: BLE001 - raised again by `start`, or logged
                loop.call_soon_threadsafe(_resolve, first, error)

        self._thread = threading.Thread(
            target=lambda: asyncio.run(run()), name="tampu-leases", daemon=True
        )
        self._thread.start()
        await first

    async def stop(self) -> None:
        """End the heartbeats; remove consumers that hold nothing. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop_requested = True
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    async def _keep(self, server: Server, on_first: Callable[[], object]) -> None:
        """Hold all leases until `stop`."""
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._stop_requested:
            self._stopping.set()
        async with AsyncExitStack() as stack:
            shared = SharedConnections(server)

            async def begin(lease: WorkerLease) -> Lane:
                lane = await Lane.open(
                    server, lease.member.key, options=self._options, shared=shared
                )
                stack.push_async_exit(lane)
                await lease.send_heartbeat(lane)
                return lane

            lanes = await run_all(map(begin, self._leases))
            on_first()
            pairs = list(zip(self._leases, lanes, strict=True))
            keeping = [asyncio.create_task(each.keep(lane)) for each, lane in pairs]
            await self._stopping.wait()
            await cancel_all(keeping)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await asyncio.gather(*(each.give_up(lane) for each, lane in pairs))


def _resolve(first: asyncio.Future[None], error: BaseException | None = None) -> None:
    if first.done():
        if error is not None:
            logger.error("the thread that sends heartbeats failed", exc_info=error)
    elif error is None:
        first.set_result(None)
    else:
        first.set_exception(error)
