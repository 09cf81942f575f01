"""The bench: runs the jobs of an app one at a time, on one event loop, and moves the time.

It is made of a worker's parts. What it leaves out is what needs time: leases, reading ahead, slots
that run side by side, and services that wait until something is due.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from time import monotonic, perf_counter_ns
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

import msgspec

from tampu.consumer.engine import WorkerHost, job_control
from tampu.consumer.handler import HandlerPlan
from tampu.consumer.intake import Accepted, Arrival, BuryEntry, Delivery
from tampu.consumer.options import WorkerSettings
from tampu.consumer.queue_config import QueueConfig
from tampu.consumer.recorder import NoRecorder
from tampu.consumer.reporter import Reporter
from tampu.consumer.settle import settle
from tampu.consumer.settler import Settler
from tampu.errors import JobFailed, TampuError
from tampu.events import EventWriter
from tampu.job import Job
from tampu.metrics.facts import SafeSink
from tampu.outcome import Done, Failed, Outcome, Retry, UnrecoverableFailure, handler_frames
from tampu.schedules.firing import FiringService
from tampu.server.connect import connect
from tampu.server.inspection import any_exists
from tampu.server.lane import Lane
from tampu.server.listening import Wakeups
from tampu.server.scripts.control import free_unique, read_control
from tampu.server.scripts.delayed import promote
from tampu.server.scripts.virtual_time import travel
from tampu.server.scripts.workers import lead
from tampu.server.streams import RawEntry, create_group, pack_read, read_entries
from tampu.services.leader import LeaderContext
from tampu.services.promoter import note_promoted
from tampu.services.reaper import Fleet
from tampu.testing.runners import run_attempt
from tampu.util.clock import instant, now_ms
from tampu.wire.control import decode_request
from tampu.wire.dead import Failure
from tampu.wire.holders import HolderKind, new_holder
from tampu.wire.keys import QueueKeys, UniqueUntil

_SETTLE_S: Final = 10.0
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


class _QueueBench:
    """The parts that serve one queue."""

    def __init__(self, lane: Lane, keys: QueueKeys, rules: BenchRules) -> None:
        settings = rules.settings
        config = QueueConfig(keys, rules.consumer, settings, plans=rules.plans)
        self.keys = keys
        self.member = config.member
        self.heads: deque[RawEntry] = deque()  # the next one, read already
        self.paused = False
        self.rules = msgspec.structs.replace(config.rules, rng=Random(0))  # noqa: S311 - repeatable
        self.events_max_len = settings.events_max_len if settings.events else 0
        self._lane = lane
        self._writer = (
            EventWriter(lane, keys.events, max_len=self.events_max_len) if settings.events else None
        )
        reporter = Reporter(self._writer, SafeSink(settings.metrics), queue=keys.name)
        self.settler = Settler(
            lane,
            config.settle_target,
            rules=self.rules,
            lease=config.lease,
            reporter=reporter,
            recorder=NoRecorder(),
        )
        actions = job_control(lane, keys, self._writer)
        self._intake = config.make_intake(WorkerHost(reporter, actions), self._lane)
        self._holder = new_holder(HolderKind.SCHEDULER, uuid4())
        self._leads = False
        self._firer = _Firer(
            LeaderContext(
                lane=lane,
                keys=keys,
                holder=self._holder,
                events_max_len=self.events_max_len,
                sink=reporter.sink,
                wakeups=Wakeups(lane.server),
                fleet=Fleet(),
                history=False,
            )
        )

    async def open(self) -> None:
        """Create the group, and begin to settle."""
        await create_group(self._lane, self.keys.stream, self.member.group)
        self.settler.open()

    async def close(self) -> None:
        await self.settler.close()
        if self._writer is not None:
            await self._writer.close()

    async def flush_events(self) -> None:
        if self._writer is not None:
            await self._writer.flush()

    def accept(self, entry: RawEntry) -> Accepted:
        return self._intake.accept([entry], Arrival(monotonic(), now_ms()))

    async def learn(self) -> None:
        """Learn what was cancelled, and whether the queue is paused."""
        if not await any_exists(self._lane, (self.keys.pause, self.keys.cancelled)):
            self.paused = False
            return
        state = await read_control(self._lane, self.keys)
        self.paused = state.paused
        for member in state.requests:
            self.settler.cancellations.note(decode_request(member))

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


class Bench:
    """Runs what is waiting, and makes ready what is due. Belongs to the loop that opened it."""

    def __init__(self, lane: Lane, rules: BenchRules, stack: AsyncExitStack) -> None:
        self.lane = lane
        self._rules = rules
        self._stack = stack
        self._queues: dict[str, _QueueBench] = {}
        self._opening, self._reading = asyncio.Lock(), asyncio.Lock()
        self._has_read = False  # whether all that waits is known

    @classmethod
    async def open(cls, rules: BenchRules) -> Self:
        """Connect."""
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(await connect(rules.url))
            lane = await stack.enter_async_context(await Lane.open(server, b"tampu"))
            return cls(lane, rules, stack.pop_all())

    async def finish(self) -> None:
        """Send what is left to send. Nothing can be run any more."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            await queue.close()

    async def close(self) -> None:
        """Disconnect."""
        async with self._stack:
            await self.finish()

    async def serve(self, names: Iterable[str]) -> None:
        """Run the jobs of these queues too."""
        if new := set(names) - self._queues.keys():
            async with self._opening:
                for name in sorted(new - self._queues.keys()):
                    queue = _QueueBench(self.lane, QueueKeys(name), self._rules)
                    await queue.open()
                    self._queues[name] = queue
            self.look_again()

    # --- time -----------------------------------------------------------------------------------

    async def move(self, latest_ms: int, *, with_now: bool) -> bool:
        """Move the time to the next instant at which something is due, and make that ready.

        False if nothing is due up to `latest_ms`, which then is the time.
        """
        queues = list(self._queues.values())
        sets = [each.keys.delayed for each in queues] + [each.keys.repeat for each in queues]
        due = await travel(self.lane, sets, latest_ms=latest_ms, with_now=with_now)
        for number in due:
            if number >= len(queues):
                await queues[number - len(queues)].fire()
        promotions = [queues[number].promote() for number in due if number < len(queues)]
        # Sent together, in this order, unless the server does not know the script yet.
        await asyncio.gather(*promotions, self._read(learn=False))
        self._has_read = any(each.heads for each in queues)
        return bool(due)

    async def pass_time(self, to_ms: int) -> None:
        """Move the time; what is due on the way stays where it is."""
        await travel(self.lane, (), latest_ms=to_ms, with_now=False)

    # --- running --------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Jobs may have been added, cancelled or paused, by other than what runs here."""
        self._has_read = False

    async def run_next(self) -> Ended | None:
        """Run the job that has waited longest; None if there is none."""
        if self._rules.inline or not self._has_read:
            await self._read()
        self._has_read = False
        waiting = [each for each in self._queues.values() if each.heads and not each.paused]
        if not waiting:
            return None
        queue = min(waiting, key=_order)
        entry = queue.heads.popleft()
        accepted = queue.accept(entry)
        for burial in accepted.refused:
            queue.settler.bury(burial)
            await queue.settler.drain(_SETTLE_S)
            return Ended(None, _refusal_error(burial), burial.job_id, is_final=True)
        delivery = accepted.deliveries[0]
        if queue.settler.cancellations.of(delivery) is not None:
            queue.settler.cancel(delivery)
            await queue.settler.drain(_SETTLE_S)
            return Ended(None, None, delivery.job.id, is_final=True)
        return await self._run(queue, delivery)

    async def _read(self, *, learn: bool = True) -> None:
        """Read the next entry of each queue that has none; learn what a test or a job has done."""
        async with self._reading:  # then no entry is on its way to another task
            queues = self._queues.values()
            reads = [each.read() for each in queues if not each.heads]
            await asyncio.gather(*reads, *(each.learn() for each in queues if learn))
        self._has_read = True

    async def flush_events(self) -> None:
        """Return when all events of the jobs are written."""
        for queue in self._queues.values():
            await queue.flush_events()

    async def _run(self, queue: _QueueBench, delivery: Delivery) -> Ended:
        job, rules = delivery.job, self._rules
        settled = rules.running[job.id] = asyncio.get_running_loop().create_future()
        if queue.settler.start is not None:
            queue.settler.start(delivery)
        began = perf_counter_ns()
        try:
            await queue.free_key(delivery)
            outcome = await run_attempt(delivery)
            if isinstance(outcome, Failed) and rules.inline:
                outcome = msgspec.structs.replace(outcome, after_ms=0)
            queue.settler.put(delivery, outcome, perf_counter_ns() - began)
            settling = queue.settler.drain(_SETTLE_S)
            if isinstance(outcome, Done):
                is_settled, _ = await asyncio.gather(settling, self._read())
            else:
                is_settled = await settling  # it may run again, and is read then
            if not is_settled:
                raise TampuError(f"The server did not take the outcome of job {job.id} in time.")
        finally:
            del rules.running[job.id]
            settled.set_result(None)
        return self._ended(queue, delivery, outcome)

    def _ended(self, queue: _QueueBench, delivery: Delivery, outcome: Outcome) -> Ended:
        raised, job = self._take_error(queue, delivery), delivery.job
        is_last, at = job.attempt >= delivery.budget, instant(now_ms())
        match outcome:
            case Done(value):
                burial = settle(delivery, outcome, queue.rules)
                if isinstance(burial, BuryEntry):  # its result cannot be stored
                    problem = _failure_error(delivery, burial.failure)
                    return Ended(Attempt(job, at, value, problem), problem, job.id, is_final=True)
                return Ended(Attempt(job, at, value), None, job.id, is_final=True)
            case Failed(failure) | UnrecoverableFailure(failure):
                error: BaseException = raised or _failure_error(delivery, failure)
                is_final = is_last or isinstance(outcome, UnrecoverableFailure)
                seen = None if isinstance(error, Retry) and not is_final else error
                return Ended(Attempt(job, at, None, error), seen, job.id, is_final)
            case _:
                return Ended(Attempt(job, at, None, raised), None, job.id, is_final=False)

    def _take_error(self, queue: _QueueBench, delivery: Delivery) -> BaseException | None:
        """What the attempt has raised, as the test should see it: from the handler on."""
        job = delivery.job
        error = self._rules.raised.pop(job.id, None)
        if error is not None:
            error.__traceback__ = handler_frames(error)
            queue_name, budget = queue.keys.name, delivery.budget
            note = f"Raised by job {job.id} ({job.name}) of queue {queue_name}"
            error.add_note(f"{note}, attempt {job.attempt} of {budget}.")
        return error


def _order(queue: _QueueBench) -> tuple[int, ...]:
    """Entries are added in the order of their ids, which have a time and a number."""
    return tuple(map(int, queue.heads[0][0].split(b"-")))


def kit_settings(settings: WorkerSettings) -> WorkerSettings:
    """A worker's settings in a test: results are stored, for longer than the test travels."""
    kept = timedelta(seconds=_LONG_S)
    return replace(settings, store_results=True, result_ttl=kept, isolation=None)


def _refusal_error(burial: BuryEntry) -> JobFailed | None:
    """Why an entry was not run; none if its time was over, which is what its producer asked for."""
    if burial.reason.value == "expired":
        return None
    failure = burial.failure or Failure("", "")
    return JobFailed(
        burial.job_id,
        reason=burial.reason.value,
        error_type=failure.error_type,
        message=failure.message,
    )


def _failure_error(delivery: Delivery, failure: Failure | None) -> JobFailed:
    """The error of an attempt that raised nothing, for instance because it took too long."""
    failure = failure or Failure("", "")
    return JobFailed(
        delivery.job.id,
        reason=f"attempt {delivery.job.attempt} of {delivery.budget}",
        error_type=failure.error_type,
        message=failure.message,
        traceback=failure.traceback,
    )
