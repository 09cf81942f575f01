"""A worker at work: its parts, and the order in which they start and stop."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from random import Random
from threading import get_ident
from typing import Any, Final, Self
from uuid import uuid4

from tampu.consumer.handler import HandlerPlan
from tampu.consumer.intake import Intake
from tampu.consumer.leases import Leases
from tampu.consumer.options import WorkerHealth, WorkerSettings
from tampu.consumer.pool import Pool
from tampu.consumer.reader import Reader
from tampu.consumer.reporter import Reporter
from tampu.consumer.settle import SettleRules
from tampu.consumer.settler import QueuePosition, Settler
from tampu.errors import WrongContext
from tampu.events import EventWriter
from tampu.job import Job
from tampu.metrics.sinks import Teller
from tampu.schedules.firing import FiringService
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, connect
from tampu.server.lane import Lane
from tampu.server.scripts.workers import Membership
from tampu.server.streams import create_consumer, create_group
from tampu.services.promoter import PromotionService
from tampu.services.reaper import LeaseTerms, ReapingService
from tampu.services.service import Service
from tampu.util.clock import Duration, to_ms
from tampu.wire.holders import HolderKind, LockHolder, new_holder
from tampu.wire.keys import QueueKeys
from tampu.wire.result import result_ttl_s

logger = logging.getLogger(__name__)
_DRAIN_S: Final = 5.0
_BEGIN_ANEW_S: Final = 1.0
_MAX_RESULT: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What a worker is to be."""

    keys: QueueKeys
    consumer: bytes
    settings: WorkerSettings
    plans: Mapping[str | None, HandlerPlan]
    target: Target
    credentials: CredentialCallback | None

    @property
    def member(self) -> Membership:
        """Its place in the group."""
        return Membership(
            stream=self.keys.stream,
            group=self.settings.group.encode(),
            consumer=self.consumer,
            key=self.keys.worker(self.consumer),
        )

    @property
    def terms(self) -> LeaseTerms:
        """How long its leases last."""
        return LeaseTerms(to_ms("lease", self.settings.lease))

    @property
    def place(self) -> QueuePosition:
        """Where it settles."""
        settings = self.settings
        ttl_ms = to_ms("result_ttl", settings.result_ttl)
        return QueuePosition(
            keys=self.keys,
            group=settings.group.encode(),
            consumer=self.consumer,
            result_ttl_s=result_ttl_s(ttl_ms) if settings.store_results else None,
            dead_max_len=settings.dead_max_len or 0,
        )


class _Host:
    """Where the jobs of a worker live."""

    def __init__(self, telling: Reporter) -> None:
        self._telling = telling
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """Not from inside: a handler that waits for its own result waits for ever."""
        raise WrongContext("call job.result() in a handler", "the result does not exist yet")

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Tell listeners; handlers may be in threads, events belong to the loop."""
        if get_ident() == self._thread:
            self._telling.progress(job, percent)
            return
        with suppress(RuntimeError):  # a thread that outlives its loop tells nobody
            self._loop.call_soon_threadsafe(self._telling.progress, job, percent)


class Engine:
    """The parts of a worker that runs. Made by `open`, ended by `close`, once each."""

    def __init__(self, blueprint: EngineConfig, *, reads: Lane, work: Lane, leases: Leases) -> None:
        settings, place = blueprint.settings, blueprint.place
        self._plans = blueprint.plans
        self._leases = leases
        teller = Teller(settings.metrics)
        self._writer = (
            EventWriter(work, blueprint.keys.events, max_len=settings.events_max_len)
            if settings.events
            else None
        )
        telling = Reporter(self._writer, teller)
        worker = blueprint.consumer.decode()
        rules = SettleRules(
            max_result=_MAX_RESULT if settings.store_results else None,
            worker=worker,
            rng=Random(),  # noqa: S311 - spreads retries, guards nothing
        )
        self._settler = Settler(work, place, rules=rules, leases=leases, telling=telling)
        intake = Intake(
            blueprint.plans,
            max_payload=settings.max_payload,
            worker=worker,
            host=_Host(telling),
            raw=settings.raw,
        )
        self._reader = Reader(reads, place, intake=intake, settler=self._settler, telling=telling)
        self.pool = Pool(settings.concurrency, self._settler, on_room=self._reader.on_room)
        self._reader.feed(self.pool)
        self._services = self._make_services(blueprint, work, teller)
        self._stack = AsyncExitStack()
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, blueprint: EngineConfig) -> Self:
        """Connect, give the first sign of life, and begin to work; all of it or nothing."""
        settings, keys = blueprint.settings, blueprint.keys
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                await connect(blueprint.target, credentials=blueprint.credentials)
            )
            reads = await stack.enter_async_context(await Lane.open(server, keys.stream))
            work = await stack.enter_async_context(await Lane.open(server, keys.stream))
            group = settings.group.encode()
            await create_group(work, keys.stream, group)
            leases = Leases(
                blueprint.target,
                blueprint.credentials,
                blueprint.member,
                terms=blueprint.terms,
                concurrency=settings.concurrency,
            )
            stack.push_async_callback(leases.stop)
            await leases.start()
            await create_consumer(work, keys.stream, group, consumer=blueprint.consumer)
            engine = cls(blueprint, reads=reads, work=work, leases=leases)
            engine._stack = stack.pop_all()
        engine._start()
        return engine

    @property
    def pulse(self) -> WorkerHealth:
        """How it is now."""
        return WorkerHealth(self.pool.busy, self._leases.silent_s)

    async def hurry(self, grace_s: float) -> None:
        """Have a `close` that is under way give running handlers no longer than this."""
        self.pool.limit_grace(grace_s)

    async def close(self, grace_s: float) -> None:
        """Stop in the order that loses nothing and leaves nothing behind."""
        async with self._stack:  # at the end: the last sign of life, then the connections
            await self._stop_reading()
            for service in self._services:
                await service.stop()
            await self._reader.claimed()
            for delivery in self.pool.withdraw():
                self._settler.hand_back(delivery)
            await self.pool.drain(grace_s)
            if not await self._settler.drain(_DRAIN_S):
                logger.warning("stopped with settlements that did not get through")
            await self._settler.close()
            if self._writer is not None:
                await self._writer.close()
            for plan in self._plans.values():
                await plan.runner.close()

    def _start(self) -> None:
        self._settler.open()
        self.pool.start()
        self._reading = asyncio.create_task(self._read(), name="tampu-reader")
        for service in self._services:
            service.start()

    async def _read(self) -> None:
        """Keep the reader going, whatever it meets."""
        while True:
            try:
                return await self._reader.run()
            except Exception:  # border: a worker that reads nothing is worse than a log full
                logger.exception("the reader failed and begins anew")
                await asyncio.sleep(_BEGIN_ANEW_S)

    async def _stop_reading(self) -> None:
        await self._reader.stop()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=_DRAIN_S)
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _make_services(self, blueprint: EngineConfig, work: Lane, teller: Teller) -> list[Service]:
        keys, settings = blueprint.keys, blueprint.settings
        events_max_len = settings.events_max_len if settings.events else 0
        services: list[Service] = [
            ReapingService(
                work, keys, me=blueprint.member, terms=blueprint.terms, heir=self._reader
            )
        ]
        if settings.promote:
            holder = LockHolder(blueprint.consumer.decode())
            services.append(
                PromotionService(
                    work, keys, holder=holder, events_max_len=events_max_len, teller=teller
                )
            )
        if settings.schedule:
            holder = new_holder(HolderKind.SCHEDULER, uuid4())
            services.append(
                FiringService(
                    work, keys, holder=holder, events_max_len=events_max_len, teller=teller
                )
            )
        return services
