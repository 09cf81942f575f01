"""A running worker: its parts, and the order in which they start and stop."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from random import Random
from threading import get_ident
from typing import Any, Final, Self
from uuid import uuid4

from tampu.consumer.feed import Backpressure, Feed
from tampu.consumer.handler import HandlerPlan
from tampu.consumer.intake import Intake
from tampu.consumer.leases import Leases
from tampu.consumer.options import WorkerHealth, WorkerSettings
from tampu.consumer.pool import Pool
from tampu.consumer.reader import Reader
from tampu.consumer.recovery import Recovery
from tampu.consumer.reporter import Reporter
from tampu.consumer.settle import SettleRules
from tampu.consumer.settler import Settler, SettleTarget
from tampu.errors import WrongContext
from tampu.events import EventWriter
from tampu.job import Job
from tampu.metrics.facts import SafeSink
from tampu.outcome import MAX_RESULT_BYTES
from tampu.schedules.firing import FiringService
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, connect
from tampu.server.lane import Lane
from tampu.server.scripts.workers import Membership
from tampu.server.streams import create_consumer, create_group
from tampu.services.leader import LeaderContext
from tampu.services.promoter import PromotionService
from tampu.services.reaper import LeaseTerms, ReapingService
from tampu.services.service import Service
from tampu.util.clock import Duration, to_ms
from tampu.wire.holders import HolderKind, LockHolder, new_holder
from tampu.wire.keys import QueueKeys
from tampu.wire.result import result_ttl_s

logger = logging.getLogger(__name__)
_DRAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything that an engine is made from."""

    keys: QueueKeys
    consumer: bytes
    settings: WorkerSettings
    plans: Mapping[str | None, HandlerPlan]
    target: Target
    credentials: CredentialCallback | None

    @property
    def member(self) -> Membership:
        """The worker as a member of its group."""
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
    def settle_target(self) -> SettleTarget:
        """Where it settles entries."""
        settings = self.settings
        ttl_ms = to_ms("result_ttl", settings.result_ttl)
        return SettleTarget(
            keys=self.keys,
            group=settings.group.encode(),
            consumer=self.consumer,
            result_ttl_s=result_ttl_s(ttl_ms) if settings.store_results else None,
            dead_max_len=settings.dead_max_len or 0,
        )

    @property
    def rules(self) -> SettleRules:
        """What decides about its settlements."""
        return SettleRules(
            max_result=MAX_RESULT_BYTES if self.settings.store_results else None,
            worker=self.consumer.decode(),
            rng=Random(),  # noqa: S311 - spreads retries, guards nothing
        )


class _Host:
    """What the jobs of a worker can call."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """A handler makes the result; it cannot wait for it."""
        raise WrongContext("call job.result() in a handler", "the result does not exist yet")

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Write an event. A handler may call this in a thread, but events belong to the loop."""
        if get_ident() == self._thread:
            self._reporter.report_progress(job, percent)
            return
        with suppress(RuntimeError):  # the loop has ended before the thread
            self._loop.call_soon_threadsafe(self._reporter.report_progress, job, percent)


class Engine:
    """The parts of a running worker. Made by `open`, ended by `close`, once each."""

    def __init__(self, config: EngineConfig, *, reads: Lane, work: Lane, leases: Leases) -> None:
        settings, keys, member = config.settings, config.keys, config.member
        self._config = config
        self._leases = leases
        self._writer = (
            EventWriter(work, keys.events, max_len=settings.events_max_len)
            if settings.events
            else None
        )
        reporter = Reporter(self._writer, SafeSink(settings.metrics), queue=keys.name)
        self._settler = Settler(
            work, config.settle_target, rules=config.rules, leases=leases, reporter=reporter
        )
        intake = Intake(
            config.plans,
            max_payload=settings.max_payload,
            worker=config.consumer.decode(),
            host=_Host(reporter),
            raw=settings.raw,
        )
        room = asyncio.Event()
        self.pool = Pool(settings.concurrency, self._settler, on_room=room.set)
        self._feed = Feed(intake, self.pool, self._settler, reporter=reporter)
        self._recovery = Recovery(reads, member, feed=self._feed, room=room)
        self._reader = Reader(
            reads,
            member,
            feed=self._feed,
            backpressure=Backpressure(self.pool, self._settler, reporter=reporter, room=room),
            recovery=self._recovery,
        )
        self._services = self._make_services(work, reporter.sink)
        self._stack = AsyncExitStack()

    @classmethod
    async def open(cls, config: EngineConfig) -> Self:
        """Connect, send the first heartbeat and begin to work; or raise and leave nothing open."""
        settings, stream = config.settings, config.keys.stream
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                await connect(config.target, credentials=config.credentials)
            )
            reads = await stack.enter_async_context(await Lane.open(server, stream))
            work = await stack.enter_async_context(await Lane.open(server, stream))
            group = settings.group.encode()
            await create_group(work, stream, group)
            leases = Leases(
                config.target,
                config.credentials,
                config.member,
                terms=config.terms,
                concurrency=settings.concurrency,
            )
            stack.push_async_callback(leases.stop)
            await leases.start(server.outage)
            await create_consumer(work, stream, group, consumer=config.consumer)
            engine = cls(config, reads=reads, work=work, leases=leases)
            engine._stack = stack.pop_all()
        engine._start()
        return engine

    @property
    def health(self) -> WorkerHealth:
        """The health of the worker now."""
        return WorkerHealth(self.pool.busy, self._leases.heartbeat_age_s)

    async def hurry(self, grace_s: float) -> None:
        """Shorten the grace of a `close` that is in progress."""
        self.pool.limit_grace(grace_s)

    async def close(self, grace_s: float) -> None:
        """Stop in an order that loses nothing and leaves nothing open."""
        async with self._stack:  # last of all: the leases, then the connections
            await self._reader.stop()
            for service in self._services:
                await service.stop()
            await self._recovery.wait_for_takeover()
            self._feed.release_waiting()
            await self.pool.drain(grace_s)
            if not await self._settler.drain(_DRAIN_S):
                worker, count = self._config.consumer.decode(), len(self._settler)
                text = "worker %s stopped with %d entries unsettled: their jobs will run again"
                logger.warning(text, worker, count, extra={"worker": worker, "entries": count})
            await self._settler.close()
            if self._writer is not None:
                await self._writer.close()
            for plan in self._config.plans.values():
                await plan.runner.close()

    def _start(self) -> None:
        self._settler.open()
        self.pool.start()
        self._reader.start()
        for service in self._services:
            service.start()

    def _make_services(self, work: Lane, sink: SafeSink) -> list[Service]:
        config, settings = self._config, self._config.settings
        services: list[Service] = [
            ReapingService(
                work,
                config.keys,
                member=config.member,
                terms=config.terms,
                successor=self._recovery,
            )
        ]
        context = LeaderContext(
            lane=work,
            keys=config.keys,
            holder=LockHolder(config.consumer.decode()),
            events_max_len=settings.events_max_len if settings.events else 0,
            sink=sink,
        )
        if settings.promote:
            services.append(PromotionService(context))
        if settings.schedule:
            holder = new_holder(HolderKind.SCHEDULER, uuid4())
            services.append(FiringService(replace(context, holder=holder)))
        return services
