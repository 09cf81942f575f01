"""A running worker: its parts, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from uuid import uuid4

from tampu.consumer.alerts import open_alerts
from tampu.consumer.backpressure import Watched, make_backpressure
from tampu.consumer.batching import Batches, BatchSettler
from tampu.consumer.control import Control
from tampu.consumer.feed import Feed, UniqueStarts
from tampu.consumer.gate import GateRoom
from tampu.consumer.history import HistoryService, ProcessMeter, RecordedWorker
from tampu.consumer.host import WorkerHost, job_control
from tampu.consumer.inputs import InputReader
from tampu.consumer.leases import LeaseThread
from tampu.consumer.options import WorkerHealth
from tampu.consumer.output import Outputs
from tampu.consumer.pool import Pool
from tampu.consumer.reader import Reader
from tampu.consumer.recorder import NoRecorder, Recorder
from tampu.consumer.recovery import Recovery
from tampu.consumer.reporter import Reporter
from tampu.consumer.settler import Settler
from tampu.consumer.timers import ALONE, AMONG_OTHERS
from tampu.consumer.watch import Watch
from tampu.events import EventWriter
from tampu.job import enter_queue
from tampu.metrics.facts import SafeSink
from tampu.schedules.firing import FiringService
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.lanes import QueueLanes
from tampu.server.listening import SharedParts
from tampu.server.streams import create_consumer, create_group
from tampu.services.gatekeeper import GateService
from tampu.services.leader import LeaderContext
from tampu.services.promoter import PromotionService
from tampu.services.reaper import Fleet, ReapingService
from tampu.services.relay import RelayService
from tampu.util.clock import to_s
from tampu.util.lifecycle import run_all
from tampu.wire.control import FlowsNotice
from tampu.wire.holders import HolderKind, LockHolder, new_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tampu.consumer.queue_config import QueueConfig
    from tampu.consumer.timers import LoopShare
    from tampu.server.client import CredentialCallback
    from tampu.server.connect import Target
    from tampu.server.service import Service
    from tampu.wire.control import GateNotice

logger = logging.getLogger(__name__)
_DRAIN_S: Final = 3.0
_TAKEOVER_S: Final = 1.0


class _Common(NamedTuple):
    """What the queues of a worker have in common."""

    share: LoopShare
    meter: ProcessMeter
    on_drain: Callable[[str], None]


class QueueEngine:
    """The parts of a running worker that serve one queue."""

    def __init__(
        self,
        config: QueueConfig,
        parts: SharedParts,
        *,
        reads: Lane,
        work: Lane,
        common: _Common,
    ) -> None:
        settings, keys, member = config.settings, config.keys, config.member
        self._config = config
        self._streams = parts.streams
        events_kept = settings.events_max_len
        self._writer = (
            EventWriter(work, keys.events, max_len=events_kept) if settings.events else None
        )
        reporter = Reporter(self._writer, SafeSink(settings.metrics), queue=keys.name)
        recorder = Recorder(work, keys) if settings.history else NoRecorder()
        self._gate = GateRoom(work, keys, consumer=config.consumer)
        self._lanes = QueueLanes(work, keys, shared=parts.connections)
        self._settler = self._make_settler(work, reporter, recorder)
        control = job_control(work, keys, self._writer, group=settings.group)
        room, fleet = asyncio.Event(), Fleet()
        starts = UniqueStarts(work, keys)
        watched = self._make_watched(reporter, starts, room, share=common.share)
        self.pool = watched.pool
        self._outputs = Outputs(
            work, keys, streams=parts.streams, running=self.pool.running, actions=control
        )
        host = WorkerHost(
            reporter, control, gate=self._gate, lanes=self._lanes, open_output=self._outputs.open
        )
        intake = config.make_intake(host, work)
        grace_s = to_s("cancel_grace", settings.cancel_grace)
        inputs = InputReader(self._lanes, keys, intake)
        self._feed = Feed(intake, watched, starts=starts, inputs=inputs, cancel_grace_s=grace_s)
        self._recovery = Recovery(reads, member, feed=self._feed, room=room)
        watch = Watch(reads, keys, consumer=config.consumer, fleet=fleet)
        self._reader = Reader(
            reads,
            member,
            feed=self._feed,
            backpressure=make_backpressure(watched, room=room),
            recovery=self._recovery,
            watch=watch,
        )
        self._control = self._make_control(work, common.on_drain)
        self._services = self._make_services(work, parts, sink=reporter.sink, fleet=fleet)
        self._is_started = self._has_flows = False
        self._history = self._make_history(work, recorder, fleet=fleet, meter=common.meter)

    @property
    def health(self) -> WorkerHealth:
        """The health of this part of the worker now."""
        return WorkerHealth(self.pool.busy, self._config.lease.heartbeat_age_s)

    def _make_history(
        self, work: Lane, recorder: NoRecorder, *, fleet: Fleet, meter: ProcessMeter
    ) -> HistoryService | None:
        if not isinstance(recorder, Recorder):
            return None
        config = self._config
        worker = RecordedWorker(config.member, self.pool, recorder, fleet, meter)
        return HistoryService(work, config.keys, worker, leads=self._leads)

    def _make_settler(self, work: Lane, reporter: Reporter, recorder: NoRecorder) -> Settler:
        config = self._config
        return Settler(
            work,
            config.settle_target(self._gate),
            rules=config.rules,
            lease=config.lease,
            reporter=reporter,
            recorder=recorder,
        )

    def _make_watched(
        self, reporter: Reporter, starts: UniqueStarts, room: asyncio.Event, *, share: LoopShare
    ) -> Watched:
        config, settler = self._config, self._settler
        batches = None
        if any(plan.batch is not None for plan in config.plans.values()):
            batches = Batches(config.plans, settler, free=starts.free)
        context = copy_context()  # what all handlers find: set here, it costs a job nothing
        context.run(enter_queue, config.keys.name)
        make_pool = partial(
            Pool,
            config.settings.concurrency,
            settler if batches is None else BatchSettler(settler),
            on_room=room.set,
            share=share,
        )
        return Watched(context.run(make_pool), settler, reporter, self._gate, batches)

    def _make_control(self, work: Lane, on_drain: Callable[[str], None]) -> Control:
        return Control(
            work,
            self._config.keys,
            feed=self._feed,
            reader=self._reader,
            on_drain=on_drain,
            on_notice=self._note,
        )

    def _leads(self) -> bool:
        promoters = (each for each in self._services if isinstance(each, PromotionService))
        return any(each.is_leading for each in promoters)

    async def learn(self) -> None:
        """Learn what was cancelled, and whether the queue is paused."""
        await run_all((self._control.learn(), self._settler.prepare()))

    def start(self) -> None:
        """Begin to work."""
        self._control.follow(self._streams)
        self._settler.open()
        self._outputs.start()
        self._feed.open()
        self._gate.start()
        self._reader.start()
        self._is_started = True
        self._start_services()
        if self._history is not None:
            self._history.start()

    def _note(self, notice: GateNotice | FlowsNotice) -> None:
        """The services start that the queue needs: without a gate or flows they would only cost."""
        if isinstance(notice, FlowsNotice):
            self._has_flows = True
        else:
            self._gate.learn(is_open=notice.is_open)
        if self._is_started:
            self._start_services()

    def _start_services(self) -> None:
        needed = {GateService: self._gate.is_open, RelayService: self._has_flows}
        for service in self._services:
            if needed.get(type(service), True):
                service.start()

    def halt(self) -> None:
        """Start no more jobs."""
        self._reader.halt()

    async def close(self, grace_s: float) -> None:
        """Stop in an order that loses nothing; no step waits long for a server that is away."""
        await self._control.close(self._streams)
        await run_all(each.stop() for each in (self._reader, *self._services))
        await self._gate.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAKEOVER_S):
                await self._recovery.wait_for_takeover()
        await self._feed.close()
        self._feed.release_waiting()
        await self.pool.drain(grace_s)
        await self._outputs.close()
        if not await self._settler.drain(_DRAIN_S):
            worker, count = self._config.consumer.decode(), len(self._settler)
            text = "worker %s stopped with %d entries unsettled: their jobs will run again"
            logger.warning(text, worker, count, extra={"worker": worker, "entries": count})
        if self._history is not None:
            await self._history.stop()
        await self._settler.close()
        await self._lanes.close()
        if self._writer is not None:
            await self._writer.close()
        for plan in self._config.plans.values():
            await plan.runner.close()

    def _make_services(
        self, work: Lane, parts: SharedParts, *, sink: SafeSink, fleet: Fleet
    ) -> list[Service]:
        config, settings = self._config, self._config.settings
        services: list[Service] = [
            ReapingService(
                work,
                config.keys,
                member=config.member,
                terms=config.terms,
                successor=self._recovery,
                fleet=fleet,
            )
        ]
        context = LeaderContext(
            lane=work,
            keys=config.keys,
            holder=LockHolder(config.consumer.decode()),
            events_max_len=settings.events_max_len if settings.events else 0,
            sink=sink,
            wakeups=parts.wakeups,
            fleet=fleet,
            history=settings.history,
        )
        services.append(GateService(context, config.member.group))
        services.append(RelayService(context, self._lanes))
        if settings.promote:
            services.append(PromotionService(context))
        if settings.schedule:
            holder = new_holder(HolderKind.SCHEDULER, uuid4())
            services.append(FiringService(replace(context, holder=holder)))
        return services


class Engine:
    """A running worker. Made by `open`, ended by `close`, once each.

    Each queue has its own pool, so that a flooded one does not starve another. Connections that do
    not block, heartbeats and wakeups serve all of them.
    """

    def __init__(self, queues: Sequence[QueueEngine], stack: AsyncExitStack) -> None:
        self._queues = queues
        self._stack = stack

    @classmethod
    async def open(
        cls,
        queues: Sequence[QueueConfig],
        target: Target,
        credentials: CredentialCallback | None,
        *,
        on_drain: Callable[[], None],
    ) -> Self:
        """Connect, send the first heartbeats and begin to work; or raise and leave nothing open.

        `on_drain` is called when somebody asks this worker to stop.
        """
        worker = queues[0].consumer.decode()  # the same for all queues

        def drain(name: str) -> None:
            if name == worker:
                logger.info("worker %s was asked to stop", worker, extra={"worker": worker})
                on_drain()

        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(await connect(target, credentials=credentials))
            parts = SharedParts(server)
            lanes = await run_all(_open_lanes(each, parts, stack) for each in queues)
            thread = LeaseThread([each.lease for each in queues], limit_s=queues[0].terms.suspect_s)
            stack.push_async_callback(thread.stop)
            await thread.start(target, credentials, server.outage)
            await run_all(
                create_consumer(
                    pair.work, each.keys.stream, each.member.group, consumer=each.consumer
                )
                for each, pair in zip(queues, lanes, strict=True)
            )
            meter = ProcessMeter(queues[0].settings.version)
            meter.start()
            stack.push_async_callback(meter.stop)
            common = _Common(ALONE if len(queues) == 1 else AMONG_OTHERS, meter, drain)
            made = [
                QueueEngine(each, parts, reads=reads, work=work, common=common)
                for each, (reads, work) in zip(queues, lanes, strict=True)
            ]
            await run_all(each.learn() for each in made)
            await open_alerts(queues[0], parts, stack)
            engine = cls(made, stack.pop_all())
        for each in made:
            each.start()
        return engine

    @property
    def health(self) -> WorkerHealth:
        """The health of the worker now."""
        return reduce(WorkerHealth.combine, (each.health for each in self._queues))

    async def hurry(self, grace_s: float) -> None:
        """Shorten the grace of a `close` that is in progress."""
        for each in self._queues:
            each.pool.limit_grace(grace_s)

    async def close(self, grace_s: float) -> None:
        """Stop all queues, then end the heartbeats and disconnect."""
        for each in self._queues:
            each.halt()
        async with self._stack:
            await run_all(each.close(grace_s) for each in self._queues)


class _Lanes(NamedTuple):
    reads: Lane  # blocks, so it has a connection of its own
    work: Lane


async def _open_lanes(config: QueueConfig, parts: SharedParts, stack: AsyncExitStack) -> _Lanes:
    """The lanes of a queue, whose group exists from now on."""
    stream = config.keys.stream
    reads = await Lane.open(parts.server, stream)
    stack.push_async_exit(reads)
    work = await Lane.open(parts.server, stream, shared=parts.connections)
    stack.push_async_exit(work)
    await create_group(work, stream, config.member.group)
    return _Lanes(reads, work)
