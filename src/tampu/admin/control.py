"""What is done to jobs by their ids: ask about them, cancel, reschedule and follow them."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tampu.admin.found import JobFinder
from tampu.admin.jobs import job_info
from tampu.admin.why import why_not_added, why_of, why_waiting
from tampu.errors import OptionError, WrongContext
from tampu.events import ENDS, check_event_id, follow_events
from tampu.job import CancelState, JobState
from tampu.producer.request import due_of, retention_s
from tampu.server.scripts.control import ASK_NOW, ASKED, REMOVED, Cancel, cancel
from tampu.server.scripts.delayed import Delayed, Move, reschedule, run_now
from tampu.server.scripts.settling import CANCELLED_TTL_S, NO_MARKERS, all_markers
from tampu.util.clock import now_ms
from tampu.util.pauses import Pauses
from tampu.wire.entry import postpone
from tampu.wire.event import EventKind, encode_event
from tampu.wire.flow import awaited_id, group_of, parse_step
from tampu.wire.names import check_job_id
from tampu.wire.result import encode_cancelled, encode_notice

if TYPE_CHECKING:
    from tampu.admin.found import FoundJob
    from tampu.events import EventWriter
    from tampu.job import JobEvent, JobInfo
    from tampu.limits.reasons import Why
    from tampu.producer.connection import QueueConnection
    from tampu.producer.request import JobRules
    from tampu.server.lane import Lane
    from tampu.streaming.reader import OutputReader
    from tampu.util.clock import Duration
    from tampu.wire.flow import StepId
    from tampu.wire.keys import QueueKeys
    from tampu.wire.output import Chunk, ChunkId, Restarted

JOBS_PER_CALL: Final = 500
_TRIES: Final = 3
_SOON_S: Final = 0.02
_LAST_EVENT_S: Final = 1.0
_MOST_PAUSE_S: Final = 30.0
_STATES: Final = {REMOVED: CancelState.CANCELLED, ASKED: CancelState.CANCELLING}
_OVER: Final = frozenset({JobState.DONE, JobState.DEAD, JobState.CANCELLED})


class OpenQueue(NamedTuple):
    """What is needed of a connected queue: a lane, and a writer if it writes events."""

    lane: Lane
    events: EventWriter | None
    outputs: OutputReader | None = None


class JobControl:
    """The jobs of one queue by their ids."""

    def __init__(
        self,
        keys: QueueKeys,
        connect: Callable[[], Awaitable[OpenQueue | QueueConnection]],
        *,
        rules: JobRules,
        group: str = "default",
    ) -> None:
        self._keys = keys
        self._connect = connect
        self._rules = rules
        self._group = group.encode()

    async def info(self, job_id: str) -> JobInfo:
        """What is known about a job."""
        return await job_info((await self._connect()).lane, self._keys, job_id)

    async def cancel(self, job_id: str) -> CancelState:
        """Cancel one job."""
        (state,) = await self.cancel_many([job_id])
        return state

    async def cancel_many(self, job_ids: Iterable[str]) -> list[CancelState]:
        """Cancel jobs; the answers are in the order of the ids."""
        if isinstance(job_ids, str):
            raise OptionError("job_ids", job_ids, "expected a list of ids")
        ids = [check_job_id(job_id) for job_id in job_ids]
        connection, states = await self._connect(), dict[str, CancelState]()
        for job_id in set(ids):
            if (step := parse_step(job_id)) is not None:
                states[job_id] = await self._cancel_chain(connection, step)
        missing = [job_id for job_id in dict.fromkeys(ids) if job_id not in states]
        for _ in range(_TRIES):  # a job that changes its place is found at the next try
            if not missing:
                break
            states.update(await self._try_to_cancel(connection, missing))
            missing = [job_id for job_id in missing if job_id not in states]
        return [states.get(job_id, CancelState.TOO_LATE) for job_id in ids]

    async def remove(self, job: FoundJob) -> bool:
        """Cancel a job that has not started; False if it has."""
        connection, found = await self._connect(), {job.id: job}
        wanted = self._to_cancel(job, ask=False)
        return bool(await self._cancel(connection, [wanted], found=found))

    async def cancel_found(self, jobs: Sequence[FoundJob]) -> list[CancelState]:
        """Cancel jobs at the places where they were found; one that has moved is too late."""
        connection, found = await self._connect(), {job.id: job for job in jobs}
        wanted = [self._to_cancel(job) for job in jobs]
        states = await self._cancel(connection, wanted, found=found)
        return [states.get(job.id, CancelState.TOO_LATE) for job in jobs]

    async def run_found(self, job: FoundJob) -> bool:
        """Make a delayed job that was found due now. Returns whether it was still delayed."""
        connection = await self._connect()
        kept = 0 if connection.events is None else connection.events.max_len
        delayed = Delayed(job.id, job.member)
        return await run_now(connection.lane, self._keys, delayed, events_max_len=kept)

    async def cancel_delayed(self, job_ids: Sequence[str]) -> list[bool]:
        """Cancel those of the jobs that are delayed; an id that is given twice counts once."""
        for job_id in job_ids:
            check_job_id(job_id)
        connection = await self._connect()
        found = await JobFinder(connection.lane, self._keys, most=None).find_delayed(job_ids)
        states = await self._cancel(
            connection, [self._to_cancel(job) for job in found.values()], found=found
        )
        return [states.pop(job_id, None) is not None for job_id in job_ids]

    async def reschedule(self, job_id: str, *, delay: Duration | None, at: datetime | None) -> bool:
        """Change when a delayed job is due. Returns whether it was still delayed."""
        check_job_id(job_id)
        if delay is None and at is None:
            raise OptionError("delay", delay, "pass delay or at")
        now = now_ms()
        due, delay_ms = due_of(delay, at, rules=self._rules, now_ms=now)
        lane = (await self._connect()).lane
        job = await self._find_delayed(job_id)
        if job is None or job.due_ms is None:
            return False
        moved = postpone(job.member, now + delay_ms - job.due_ms)
        kept_s = retention_s(delay_ms, self._rules.unique_ms)
        return await reschedule(lane, self._keys, Move(job_id, job.member, moved, due, kept_s))

    async def run_now(self, job_id: str) -> bool:
        """Make a delayed job due now. Returns whether it was still delayed."""
        check_job_id(job_id)
        job = await self._find_delayed(job_id)
        return job is not None and await self.run_found(job)

    async def why(self, job_id: str) -> Why:
        """Why a job is not running yet."""
        lane = (await self._connect()).lane
        found = await why_waiting(lane, self._keys, check_job_id(job_id), group=self._group)
        if found is None and (step := parse_step(job_id)) is not None:
            found = await why_not_added(lane, self._keys, step)
        return why_of(await self.info(job_id)) if found is None else found

    async def events(self, job_id: str, after: str | None = None) -> AsyncGenerator[JobEvent]:
        """The events of a job that are still there and those to come, up to its end.

        With the id of an event, those that follow it.
        """
        check_job_id(job_id)
        start = check_event_id(after)
        lane = (await self._connect()).lane
        async with follow_events(lane.server, self._keys.events, start) as (past, coming):
            own = [event for event in past if event.job_id == job_id]
            ends = [place for place, event in enumerate(own, 1) if event.kind in ENDS]
            has_ended = bool(ends) and ends[-1] == len(own)
            state = (await self.info(job_id)).state
            is_over = state in _OVER or (state is JobState.UNKNOWN and bool(ends))
            # What ended before belongs to an earlier job with the same id.
            for event in own if is_over else own[max(ends, default=0) :]:
                yield event
            if is_over and has_ended:
                return
            # A worker writes `completed` while it acknowledges the job. If the job is still active,
            # this may be its own end, or that of an earlier job with the same id.
            held = own if has_ended and state is JobState.ACTIVE else []
            is_known = bool(own) or state is not JobState.UNKNOWN or start is not None
            follow = self._follow(job_id, coming, held=held, is_known=is_known)
            async with aclosing(follow):
                async for event in follow:
                    yield event

    async def stream(
        self, job_id: str, after: ChunkId, *, raises: bool
    ) -> AsyncGenerator[Chunk[Any] | Restarted]:
        """What the handler of a job yields, up to its end."""
        outputs = (await self._connect()).outputs
        if outputs is None:
            raise WrongContext("follow a stream here", "use a queue, or a task of an app")
        follow = outputs.follow(check_job_id(job_id), after, raises=raises, find=self.info)
        async with aclosing(follow):
            async for item in follow:
                yield item

    async def _follow(
        self, job_id: str, coming: AsyncIterator[JobEvent], *, held: list[JobEvent], is_known: bool
    ) -> AsyncGenerator[JobEvent]:
        """The events to come, up to the end of the job; `held` if it ends without another one.

        Events can be lost, and the last one comes a moment after the end. So while none comes, we
        ask about the job, and stop when it was over twice.
        """
        pauses = Pauses(_SOON_S if held else _LAST_EVENT_S, _MOST_PAUSE_S)
        was_over = False
        while True:
            try:
                async with asyncio.timeout(pauses.next_s()):
                    event = await anext(coming)
            except TimeoutError:
                state = (await self.info(job_id)).state
                is_over = state in _OVER or (state is JobState.UNKNOWN and is_known)
                if is_over and (was_over or held):
                    for event in held:
                        yield event
                    return
                if is_over:
                    pauses.reset()
                was_over = is_over
                continue
            if event.job_id == job_id:
                held, is_known = [], True
                yield event
                if event.kind in ENDS:
                    return

    async def _find_delayed(self, job_id: str) -> FoundJob | None:
        finder = JobFinder((await self._connect()).lane, self._keys, most=None)
        return (await finder.find_delayed([job_id])).get(job_id)

    async def _cancel_chain(
        self, connection: OpenQueue | QueueConnection, step: StepId
    ) -> CancelState:
        """Cancel a chain, whichever of its steps waits or runs."""
        group = group_of(str(step))
        assert group is not None  # noqa: S101 - it is the id of a step
        for _ in range(_TRIES):  # one step may end, and the next one begin, while we look
            finder = JobFinder(connection.lane, self._keys)
            job = await finder.find_of_chain(step)
            if job is not None and await self.remove(job):
                return CancelState.CANCELLED
            if job is not None or not finder.searched_all:
                # Workers stop the step that runs, and each that follows should that one be done.
                await self._cancel(connection, [self._to_ask(group)], found={})
                return CancelState.CANCELLING
        return CancelState.TOO_LATE

    async def _try_to_cancel(
        self, connection: OpenQueue | QueueConnection, job_ids: list[str]
    ) -> dict[str, CancelState]:
        """Cancel those that are found now. If not all was searched, workers are asked."""
        finder = JobFinder(connection.lane, self._keys)
        found = await finder.find(job_ids)
        jobs = [self._to_cancel(found[job_id]) for job_id in job_ids if job_id in found]
        if not finder.searched_all:
            jobs += [self._to_ask(job_id) for job_id in job_ids if job_id not in found]
        return await self._cancel(connection, jobs, found=found)

    async def _cancel(
        self,
        connection: OpenQueue | QueueConnection,
        jobs: Sequence[Cancel],
        *,
        found: Mapping[str, FoundJob],
    ) -> dict[str, CancelState]:
        states: dict[str, CancelState] = {}
        for start in range(0, len(jobs), JOBS_PER_CALL):
            part = jobs[start : start + JOBS_PER_CALL]
            codes = await cancel(
                connection.lane,
                self._keys,
                part,
                failure=encode_cancelled(),
                notice=encode_notice([awaited_id(job.job_id) for job in part]),
                ttl_s=CANCELLED_TTL_S,
            )
            for job, code in zip(part, codes, strict=True):
                if code:
                    states[job.job_id] = _STATES[code]
                if code == REMOVED and connection.events is not None:
                    _emit_cancelled(connection.events, found[job.job_id])
        return states

    def _to_cancel(self, job: FoundJob, *, ask: bool = True) -> Cancel:
        return Cancel(
            job_id=job.id,
            member=job.member,
            line=job.line,
            entry_id=job.entry_id,
            latest=b"%d" % job.envelope.created_at_ms if ask and job.entry_id else b"",
            markers=all_markers(self._keys, job.id, job.extras),
        )

    def _to_ask(self, job_id: str) -> Cancel:
        return Cancel(job_id=job_id, latest=ASK_NOW, markers=NO_MARKERS)


def _emit_cancelled(events: EventWriter, job: FoundJob) -> None:
    events.tell(encode_event(EventKind.CANCELLED, job_id=job.id, ts_ms=now_ms(), name=job.name))
