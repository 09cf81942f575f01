"""What is known about a job, wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tampu.admin.dead import read_dead_letter
from tampu.admin.found import MAX_SEARCHED, FoundJob, JobFinder, decode_or_none, read_entry
from tampu.errors import DecodeError
from tampu.events import ENDS, job_event
from tampu.job import JobInfo, JobState
from tampu.server.inspection import entries_down_from, groups_of, holder_of, was_delivered
from tampu.server.streams import values_of
from tampu.util.options import at_least
from tampu.wire.dead import Failure
from tampu.wire.event import EventKind
from tampu.wire.fields import decode_text
from tampu.wire.flow import parse_step
from tampu.wire.names import check_job_id
from tampu.wire.placeholders import StepPayload, read_own_payload
from tampu.wire.result import CANCELLED, decode_failure, decode_result

if TYPE_CHECKING:
    from tampu.job import JobEvent
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

_PAGE: Final = 1000
_EVENTS: Final = 1000
_TRIES: Final = 3


async def job_info(
    lane: Lane, keys: QueueKeys, job_id: str, *, most: int | None = MAX_SEARCHED
) -> JobInfo:
    """What is known about a job; `JobFinder` says how it is found.

    Dead letters are searched too, newest first. What the latest events tell is added.
    """
    if most is not None:
        at_least("most", most, 1)
    info = await _find_info(lane, keys, check_job_id(job_id), most=most)
    page = await entries_down_from(lane, keys.events, count=_EVENTS)
    events = [job_event(entry_id, fields) for entry_id, fields in page]
    return _with_events(info, [each for each in events if each.job_id == job_id])


async def _find_info(lane: Lane, keys: QueueKeys, job_id: str, *, most: int | None) -> JobInfo:
    for _ in range(_TRIES):  # a job that changes its place is found at the next try
        info = await _look_once(lane, keys, job_id, most=most)
        if info is not None:
            return info
    return JobInfo(id=job_id, state=JobState.UNKNOWN, searched_all=False)


async def _look_once(
    lane: Lane, keys: QueueKeys, job_id: str, *, most: int | None
) -> JobInfo | None:
    """What is known about a job; None if it was settled while we looked."""
    result, failure = await values_of(lane, [keys.result(job_id), keys.failure(job_id)])
    if result is not None:
        value = decode_or_none(decode_result, result)
        return JobInfo(id=job_id, state=JobState.DONE, result=value)
    reason = None if failure is None else _reason_in(failure)
    if reason == CANCELLED:
        return JobInfo(id=job_id, state=JobState.CANCELLED)
    finder, step = JobFinder(lane, keys, most=most), parse_step(job_id)
    ids = [job_id] if step is None else [str(each) for each in step.all[: step.step]]
    found = {} if reason else await finder.find(ids)
    if job_id in found:
        return await locate(lane, keys, found[job_id])
    if found:
        return _step_to_come(job_id, *found.values())
    dead, searched_all = await _find_dead(lane, keys, ids, most=most)
    if dead is not None:
        return replace(dead, id=job_id)
    return JobInfo(
        id=job_id, state=JobState.UNKNOWN, searched_all=finder.searched_all and searched_all
    )


async def locate(lane: Lane, keys: QueueKeys, job: FoundJob) -> JobInfo | None:
    """What is known about a job that was found, with the worker that has it; None if it is gone."""
    if job.line:
        return job.info(JobState.WAITING)
    if job.member:
        return job.info(job.delayed_state)
    groups = await groups_of(lane, keys.stream)
    for group in groups:
        held = await holder_of(lane, keys.stream, group=group.name, entry_id=job.entry_id)
        if held is not None:
            attempt, worker = job.envelope.attempt + held.deliveries, decode_text(held.consumer)
            return replace(job.info(JobState.ACTIVE), attempt=attempt, worker=worker)
    return None if was_delivered(groups, job.entry_id) else job.info(JobState.WAITING)


def _step_to_come(job_id: str, current: FoundJob, *_: FoundJob) -> JobInfo:
    """What is known about a step of a chain while an earlier one waits or runs."""
    info = JobInfo(id=job_id, state=JobState.WAITING)
    at, step = parse_step(current.id), parse_step(job_id)
    steps = decode_or_none(read_own_payload, current.envelope.payload)
    if at is None or step is None or not isinstance(steps, StepPayload):
        return info
    coming = steps.steps[: step.step - at.step]
    return replace(info, name=coming[-1].name) if coming else info


async def _find_dead(
    lane: Lane, keys: QueueKeys, job_ids: Sequence[str], *, most: int | None
) -> tuple[JobInfo | None, bool]:
    """A dead job, or step of a chain, and whether all dead letters were searched."""
    start, searched = b"+", 0
    while most is None or searched < most:
        page = await entries_down_from(lane, keys.dead, start=start, count=_PAGE)
        for dead_id, fields in page:
            job = read_entry(dead_id, fields)
            if job is not None and job.id in job_ids:
                return dead_info(dead_id, fields or [], job), True
        if len(page) < _PAGE:
            return None, True
        start, searched = b"(" + page[-1][0], searched + len(page)
    return None, False


def dead_info(dead_id: bytes, fields: Sequence[bytes], job: FoundJob | None) -> JobInfo:
    """What is known about the job of a dead letter; its envelope may be undecodable."""
    letter = read_dead_letter(dead_id, fields)
    info = JobInfo(id="", state=JobState.DEAD) if job is None else job.info(JobState.DEAD)
    reason: Any = letter.reason
    detail = None if letter.detail is None else Failure("", letter.detail)
    return replace(
        info,
        name=letter.name,
        attempt=letter.attempt,
        failure=letter.failure or detail,
        reason=getattr(reason, "value", reason),
        dead_id=letter.dead_id,
        worker=letter.worker,
        ended_at=letter.buried_at,
        entry_id=None,
    )


def _with_events(info: JobInfo, events: list[JobEvent]) -> JobInfo:
    """The same with what its events tell, newest first."""
    started = next((each.at for each in events if each.kind is EventKind.ACTIVE), None)
    end = next((each for each in events if each.kind in ENDS), None)
    percent = next((each.fields for each in events if each.kind is EventKind.PROGRESS), {})
    progress = percent.get("progress")
    told = replace(
        info,
        started_at=started,
        progress=progress if isinstance(progress, int) else None,
    )
    if info.state in {JobState.WAITING, JobState.ACTIVE, JobState.DELAYED, JobState.RETRYING}:
        return told
    if end is not None:
        told = replace(told, ended_at=told.ended_at or end.at, name=told.name or end.name)
        if info.state is JobState.UNKNOWN and end.kind is EventKind.COMPLETED:
            told = replace(told, state=JobState.DONE, attempt=end.attempt)
    return told


def _reason_in(failure: bytes) -> str:
    try:
        return decode_failure(failure).reason
    except DecodeError:
        return ""
