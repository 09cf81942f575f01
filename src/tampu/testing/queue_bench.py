"""The parts of a worker that the bench runs the jobs of one queue with."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from time import monotonic
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec

from tampu.consumer.batching import batch_value
from tampu.consumer.gate import GateRoom
from tampu.consumer.handler import Batch, HandlerPlan
from tampu.consumer.host import WorkerHost, job_control
from tampu.consumer.inputs import InputReader
from tampu.consumer.intake import Accepted, Arrival, Delivery
from tampu.consumer.options import WorkerSettings
from tampu.consumer.output import Outputs
from tampu.consumer.queue_config import QueueConfig
from tampu.consumer.recorder import NoRecorder
from tampu.consumer.reporter import Reporter
from tampu.consumer.settler import Settler
from tampu.events import EventWriter
from tampu.job import Job
from tampu.metrics.facts import SafeSink
from tampu.schedules.firing import FiringService
from tampu.server.inspection import any_exists
from tampu.server.lane import Lane
from tampu.server.lanes import QueueLanes
from tampu.server.listening import StreamFollower, Wakeups
from tampu.server.scripts.control import free_unique, read_control
from tampu.server.scripts.delayed import promote
from tampu.server.scripts.gate import admit
from tampu.server.scripts.workers import lead
from tampu.server.streams import RawEntry, create_group, pack_read, read_entries, sizes
from tampu.services.leader import LeaderContext
from tampu.services.promoter import note_promoted
from tampu.services.reaper import Fleet
from tampu.services.relay import RelayService
from tampu.util.clock import now_ms
from tampu.wire.control import decode_request
from tampu.wire.holders import HolderKind, new_holder
from tampu.wire.keys import QueueKeys, UniqueUntil
from tampu.wire.output import JobOutput, OutputRules

_PROMOTE: Final = 500
_LONG_S: Final = 10 * 365 * 86_400  # longer than any test travels


class Attempt(msgspec.Struct, frozen=True):
    """One attempt to run a job in a test: the job, when, and what it returned or raised."""

    job: Job[Any]
    at: datetime
    value: object = None
    error: BaseException | None = None

    @property
    def name(self) -> str:
        """The name of the job, which is that of its task."""
        return self.job.name


class Ended(NamedTuple):
    """An attempt, or an entry that could not be run; and the error that the test should see."""

    attempt: Attempt | None
    error: BaseException | None
    job_id: str
    is_final: bool  # whether the job will not run again


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRules:
    """What all benches of a test share: how to run jobs, and what goes on at the moment."""

    url: str
    consumer: bytes
    settings: WorkerSettings
    plans: Mapping[str | None, HandlerPlan]
    raised: dict[str, BaseException]  # by job: what its attempt has raised
    running: dict[str, asyncio.Future[None]]  # by job: done when its attempt is settled
    inline: bool = False  # whoever adds a job runs it, possibly many at once; retries do not wait


class _Firer(FiringService):
    """Fires what is due now. It never waits, so a schedule does not rest for a while either."""

    async def fire_due(self) -> None:
        self._resting.clear()
        while (await self.work()).wait_s == 0.0:
            pass


class QueueBench:
    """The parts that serve one queue."""

    def __init__(self, lane: Lane, keys: QueueKeys, rules: BenchRules) -> None:
        settings = rules.settings
        config = QueueConfig(keys, rules.consumer, settings, plans=rules.plans)
        self.keys = keys
        self.member = config.member
        self.heads: deque[RawEntry] = deque()  # the next one, read already
        self.paused = False
        self.has_flows = False
        self.rules = msgspec.structs.replace(config.rules, rng=Random(0))  # noqa: S311 - repeatable
        self.events_max_len = settings.events_max_len if settings.events else 0
        self._lane = lane
        self._gate = GateRoom(lane, keys, consumer=rules.consumer)
        self._writer = (
            EventWriter(lane, keys.events, max_len=self.events_max_len) if settings.events else None
        )
        reporter = Reporter(self._writer, SafeSink(settings.metrics), queue=keys.name)
        self.settler = Settler(
            lane,
            config.settle_target(self._gate),
            rules=self.rules,
            lease=config.lease,
            reporter=reporter,
            recorder=NoRecorder(),
        )
        actions = job_control(lane, keys, self._writer, group=settings.group)
        self.running: list[Delivery] = []
        self._outputs = Outputs(
            lane,
            keys,
            streams=StreamFollower(lane.server),
            running=lambda: self.running,
            actions=actions,
        )
        lanes = QueueLanes(lane, keys)
        host = WorkerHost(
            reporter, actions, gate=self._gate, lanes=lanes, open_output=self._open_output
        )
        self._intake = config.make_intake(host, self._lane)
        self._inputs = InputReader(lanes, keys, self._intake)
        self._holder = new_holder(HolderKind.SCHEDULER, uuid4())
        self._leads = False
        context = self._make_context(reporter.sink)
        self._firer = _Firer(context)
        self._relay = RelayService(context, lanes)

    def _make_context(self, sink: SafeSink) -> LeaderContext:
        return LeaderContext(
            lane=self._lane,
            keys=self.keys,
            holder=self._holder,
            events_max_len=self.events_max_len,
            sink=sink,
            wakeups=Wakeups(self._lane.server),
            fleet=Fleet(),
            history=False,
        )

    async def open(self) -> None:
        """Create the group, and begin to settle."""
        await create_group(self._lane, self.keys.stream, self.member.group)
        self.settler.open()
        self._outputs.start()

    async def close(self) -> None:
        """Send nothing more."""
        await self._outputs.close()
        await self.settler.close()
        if self._writer is not None:
            await self._writer.close()

    def _open_output(self, job: Job[Any], rules: OutputRules) -> JobOutput:
        """The stream of a job, which waits for no reader: here nobody reads while a job runs."""
        del rules
        return self._outputs.open(job, OutputRules())

    async def flush_events(self) -> None:
        """Return when all events are written."""
        if self._writer is not None:
            await self._writer.flush()

    def accept(self, entry: RawEntry) -> Accepted:
        """Take an entry in, as a worker does."""
        return self._intake.accept([entry], Arrival(monotonic(), now_ms()))

    async def complete(self, accepted: Accepted) -> Accepted:
        """Give jobs of flows the values that they lack."""
        return await self._inputs.read(accepted.incomplete) if accepted.incomplete else accepted

    async def relay(self) -> bool:
        """Bring to other queues what flows have for them; False if there was nothing."""
        has_brought = False
        while (await self._relay.work()).wait_s == 0.0:
            has_brought = True
        return has_brought

    async def learn(self) -> None:
        """Learn what was cancelled, and whether the queue is paused."""
        own = (self.keys.pause, self.keys.cancelled, self.keys.gate, self.keys.outbox)
        if not await any_exists(self._lane, own):
            self.paused = self.has_flows = False
            return
        state = await read_control(self._lane, self.keys)
        self.paused, self.has_flows = state.paused, state.has_flows
        self._gate.learn(is_open=state.has_gate)
        for member in state.requests:
            self.settler.cancellations.note(decode_request(member))

    def stops(self, delivery: Delivery) -> bool:
        """Cancel or take out a job, if somebody has asked for that; whether somebody has."""
        cancellations = self.settler.cancellations
        if cancellations.of(delivery) is not None:
            self.settler.cancel(delivery)
            return True
        request = cancellations.parks(delivery)
        if request is not None:
            self.settler.park(delivery, request)
        return request is not None

    async def free_key(self, delivery: Delivery) -> None:
        """Free the unique key of a job that is about to start, if it is held until then."""
        held, job_id = delivery.job.extras.unique, delivery.job.id
        if held is not None and held.until is UniqueUntil.STARTED:
            await free_unique(self._lane, [self.keys.unique(held.key)], [job_id])

    async def read(self) -> None:
        """Read the next entry, if there is one."""
        us = self.member
        packed = pack_read(us.stream, group=us.group, consumer=us.consumer, count=1, block_ms=0)
        self.heads.extend(read_entries(await self._lane.send(packed)))
        if not self.heads and self._gate.is_open:
            # Room for one more than those that run now, which wait for others.
            room = 1 + (await sizes(self._lane, self.keys, us.group)).stream
            await admit(self._lane, self.keys, consumer=us.consumer, room=room)
            self.heads.extend(read_entries(await self._lane.send(packed)))

    async def read_batch(self, first: Delivery, batch: Batch) -> list[Delivery]:
        """A job and all that wait and belong to its batch; others keep their places."""
        found, passed = [first], 0
        value = batch_value(batch.by, first.job.data)
        while len(found) < batch.size:
            if passed == len(self.heads):
                await self.read()
                if passed == len(self.heads):
                    break
            accepted = await self.complete(self.accept(self.heads[passed]))
            for each in accepted.deliveries:
                asked = self.settler.cancellations
                is_other = each.plan is not first.plan or asked.of(each) or asked.parks(each)
                if not is_other and batch_value(batch.by, each.job.data) == value:
                    found.append(each)
                    del self.heads[passed]
                    break
            else:
                passed += 1
        return found

    async def promote(self) -> None:
        """Move all delayed jobs that are due to the stream."""
        moved = _PROMOTE
        while moved == _PROMOTE:
            promoted = await promote(
                self._lane,
                self.keys,
                limit=_PROMOTE,
                events_max_len=self.events_max_len,
                history=False,
            )
            moved = promoted.moved
            note_promoted(self._lane, self.keys, promoted)

    async def fire(self) -> None:
        """Fire all schedules that are due."""
        if not self._leads:
            lock, holder = self.keys.scheduler_lock, self._holder.to_bytes()
            self._leads = await lead(self._lane, lock, holder=holder, ttl_s=_LONG_S)
        await self._firer.fire_due()
