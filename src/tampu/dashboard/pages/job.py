"""One job: what it is, what happened to it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tampu.admin.browsing import MOST_SEARCHED, is_entry_id
from tampu.admin.found import read_entry
from tampu.admin.jobs import dead_info, job_info
from tampu.admin.why import why_of, why_waiting
from tampu.dashboard.access import Action, Redaction
from tampu.dashboard.filters import job_link
from tampu.dashboard.page import Answer, Operation, Page, View, bad_request, link, not_found
from tampu.dashboard.pages.limits import value_text
from tampu.dashboard.render import format_seconds
from tampu.dashboard.values import is_editable, preview, trace_id, tree
from tampu.errors import DecodeError, OptionError
from tampu.events import job_event
from tampu.job import CancelState, JobState
from tampu.server.inspection import entries_down_from
from tampu.server.streams import fields_of, server_time_ms
from tampu.util.clock import instant
from tampu.util.ids import time_of_id
from tampu.wire.event import EventKind
from tampu.wire.flow import parse_member
from tampu.wire.names import check_job_id
from tampu.wire.output import check_chunk_id, read_chunk

if TYPE_CHECKING:
    from datetime import datetime

    from tampu.job import JobEvent, JobInfo
    from tampu.limits.reasons import Why
    from tampu.server.streams import RawEntry
    from tampu.wire.keys import QueueKeys
    from tampu.wire.output import Chunk

_EVENTS: Final = 1000
_CHUNKS: Final = 500
_MOST_TEXT: Final = 20_000
_HIDES_NOTHING: Final = Redaction(lambda key: True)
_FRESH_S: Final = 0.9
_SAME: Final = timedelta(seconds=2)
_WHY_S: Final = 2.0
_DELAYED: Final = frozenset({JobState.DELAYED, JobState.RETRYING})
_ALIVE: Final = _DELAYED | {JobState.WAITING, JobState.ACTIVE}
_NOT_RUNNING: Final = _DELAYED | {JobState.WAITING, JobState.DEAD}
TONES: Final = {
    JobState.WAITING: "blue",
    JobState.ACTIVE: "green",
    JobState.RETRYING: "amber",
    JobState.DEAD: "red",
    JobState.DONE: "green",
}
_WORDS: Final = {
    EventKind.ADDED: ("Added", ""),
    EventKind.FIRED: ("Added by its schedule", ""),
    EventKind.DELAYED: ("Delayed", ""),
    EventKind.WAITING: ("Due, and waiting", ""),
    EventKind.ACTIVE: ("Started", "blue"),
    EventKind.COMPLETED: ("Done", "green"),
    EventKind.FAILED: ("Failed", "red"),
    EventKind.RETRY_SCHEDULED: ("To be tried again", "amber"),
    EventKind.DEAD: ("Buried", "red"),
    EventKind.CANCELLED: ("Cancelled", "amber"),
    EventKind.REPLAYED: ("Replayed", "blue"),
    EventKind.DROPPED: ("Dropped", "amber"),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a job."""

    at: datetime
    title: str
    detail: str = ""
    tone: str = ""


async def load(view: View) -> Mapping[str, object]:
    """The job that the query names, by its id or by that of its dead letter."""
    keys = await view.queue("queue")
    info, events = await read_job(view, keys)
    queue, is_dead = keys.name, info.dead_id is not None
    may_replay = is_dead and bool(info.id) and view.may(Action.REPLAY, queue)
    shown = view.redaction.apply
    return {
        "queue": queue,
        "info": info,
        "tone": TONES.get(info.state, ""),
        "now": instant(await server_time_ms(await view.source.lane(keys))),
        "why": await read_why(view, keys, info),
        "moments": timeline(info, events),
        "payload": tree(shown(info.data)),
        "has_payload": info.state not in {JobState.DONE, JobState.CANCELLED, JobState.UNKNOWN},
        "headers": tree(shown(info.headers)) if info.headers else None,
        "result": tree(shown(info.result)) if info.state is JobState.DONE else None,
        "trace": trace_id(info.headers),
        "flow": parse_member(info.id),
        "yielded": await read_yielded(view, keys, info),
        "may_cancel": info.state in _ALIVE and view.may(Action.CANCEL, queue),
        "may_move": info.state in _DELAYED and view.may(Action.RESCHEDULE, queue),
        "may_replay": may_replay,
        "may_discard": is_dead and view.may(Action.DISCARD, queue),
        "may_edit": may_replay and is_editable(info.data) and view.may(Action.EDIT, queue),
    }


async def read_job(view: View, keys: QueueKeys) -> tuple[JobInfo, list[JobEvent]]:
    """A job and its events that are still there, oldest first; 404 if it is not found."""
    job_id, dead_id = view.params.get("id", ""), view.text("dead")

    async def read() -> tuple[JobInfo, list[JobEvent]]:
        lane = await view.source.lane(keys)
        info = await (
            _read_dead(view, keys, dead_id) if dead_id else _read_alive(view, keys, job_id)
        )
        page = await entries_down_from(lane, keys.events, count=_EVENTS)
        events = [job_event(*each) for each in reversed(page)]
        own = [each for each in events if info.id and each.job_id == info.id]
        return _with_time(info), own

    return await view.source.cache(("job", keys.name, job_id, dead_id), _FRESH_S, read)


async def _read_alive(view: View, keys: QueueKeys, job_id: str) -> JobInfo:
    try:
        check_job_id(job_id)
    except OptionError:
        raise not_found("There is no job with this id.") from None
    info = await job_info(await view.source.lane(keys), keys, job_id, most=MOST_SEARCHED)
    if info.state is JobState.UNKNOWN:
        where = "" if info.searched_all else f" {MOST_SEARCHED} jobs of each state were searched."
        raise not_found(
            "There is no job with this id. It may be done without a stored result, or removed."
            + where
        )
    return info


async def _read_dead(view: View, keys: QueueKeys, dead_id: str) -> JobInfo:
    if not is_entry_id(dead_id):
        raise bad_request("dead must be the id of a dead letter.")
    raw = dead_id.encode()
    (fields,) = await fields_of(await view.source.lane(keys), keys.dead, [raw])
    if fields is None:
        raise not_found("There is no such dead letter. It may have been replayed or discarded.")
    return dead_info(raw, fields, read_entry(raw, fields))


def _with_time(info: JobInfo) -> JobInfo:
    """The same with the time in its id, if nothing else tells when it was added."""
    at_ms = time_of_id(info.id) if info.created_at is None and info.id else None
    return info if at_ms is None else replace(info, created_at=instant(at_ms))


# --- why it is not running ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """Why a job is not running yet, and links to the jobs that hold what it waits for."""

    sentence: str
    until: datetime | None
    holders: Sequence[tuple[str, str]]


async def read_why(view: View, keys: QueueKeys, info: JobInfo) -> Answered | None:
    """Why a job is not running; None if it runs or is done."""
    if info.state not in _NOT_RUNNING:
        return None
    answer = why_of(info)
    if info.state is JobState.WAITING and info.id:

        async def read() -> Why:
            lane = await view.source.lane(keys)
            group = view.source.group.encode()
            return await why_waiting(lane, keys, info.id, group=group) or answer

        answer = await view.source.cache_by_cost(("why", keys.name, info.id), _WHY_S, read)
    sentence = answer.sentence
    if answer.limit is not None and answer.value is not None:
        shown = value_text(answer.limit, answer.value, view.redaction)
        sentence = sentence.replace(f" of {answer.value}", f" of {shown}")
    holders = [(each, job_link(keys.name, each)) for each in answer.holders]
    return Answered(sentence, answer.until, holders)


# --- what it yields -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Yielded:
    """The latest of what a job has yielded: of one attempt, as text."""

    attempt: int
    count: int  # how many chunks of the attempt are shown or were before
    text: str
    is_cut: bool  # whether there was more before


async def read_yielded(view: View, keys: QueueKeys, info: JobInfo) -> Yielded | None:
    """What the latest attempt of a job has yielded; None if that is nothing."""
    if not info.id:
        return None

    async def read() -> list[RawEntry]:
        lane = await view.source.lane(keys)
        return await entries_down_from(lane, keys.output(info.id), count=_CHUNKS)

    entries = await view.source.cache(("output", keys.name, info.id), _FRESH_S, read)
    chunks = [each for entry in reversed(entries) if (each := _chunk(entry)) is not None]
    if not chunks:
        return None
    latest, shown = chunks[-1], view.redaction.apply
    count = check_chunk_id("id", latest.id).number
    own = [shown(each.value) for each in chunks if each.attempt == latest.attempt][-count:]
    text = "".join(each if isinstance(each, str) else _line(each) for each in own)
    return Yielded(
        latest.attempt,
        count,
        text[-_MOST_TEXT:],
        is_cut=len(own) < count or len(text) > _MOST_TEXT,
    )


def _chunk(entry: RawEntry) -> Chunk[Any] | None:
    try:
        return read_chunk(*entry)
    except DecodeError:
        return None


def _line(value: object) -> str:
    return f"{preview(value, _HIDES_NOTHING)}\n"  # what must be hidden is hidden already


# --- what happened ------------------------------------------------------------------------------


def timeline(info: JobInfo, events: Sequence[JobEvent]) -> list[Moment]:
    """What is known of a job's life, in order: from its events, and from what it carries."""
    told = [_of_event(each) for each in events if each.kind in _WORDS]
    kinds = {each.kind for each in events}
    carried = _failures(info, [each.at for each in told])
    if info.created_at is not None and not kinds & {EventKind.ADDED, EventKind.FIRED}:
        by = f"by the schedule {info.schedule_key}" if info.schedule_key else ""
        carried.append(Moment(info.created_at, "Added", by))
    if info.state is JobState.DEAD and info.ended_at and EventKind.DEAD not in kinds:
        carried.append(Moment(info.ended_at, "Buried", _reason(info), "red"))
    moments = sorted([*told, *carried], key=lambda each: each.at)
    if info.state in _DELAYED and info.due_at is not None:
        moments.append(Moment(info.due_at, "Due", "for its next attempt" if info.attempt else ""))
    return moments


def _failures(info: JobInfo, known: Sequence[datetime]) -> list[Moment]:
    """Failed attempts that no event tells of."""
    past = (info.attempt or len(info.failed_at)) - (info.state is JobState.ACTIVE)
    first = max(1, past - len(info.failed_at) + 1)
    return [
        Moment(at, f"Attempt {number} failed", tone="red")
        for number, at in enumerate(info.failed_at, first)
        if not any(abs(at - each) < _SAME for each in known)
    ]


def _reason(info: JobInfo) -> str:
    return (info.reason or "").replace("_", " ")


def _of_event(event: JobEvent) -> Moment:
    title, tone = _WORDS[event.kind]  # type: ignore[index] # the caller has looked
    if event.attempt and event.kind in {EventKind.ACTIVE, EventKind.FAILED}:
        title = f"Attempt {event.attempt} {title.lower()}"
    fields, words = event.fields, list[str]()
    for name, word in (("duration_us", "took"), ("backoff_ms", "in"), ("delay_ms", "for")):
        number = fields.get(name)
        if isinstance(number, int):
            words.append(f"{word} {format_seconds(number / (1e6 if name.endswith('us') else 1e3))}")
    reason = fields.get("reason")
    if reason:
        text = str(reason)[:500]
        words.append(text.replace("_", " ") if event.kind is EventKind.DEAD else text)
    return Moment(event.at, title, ", ".join(words), tone)


# --- what can be done ---------------------------------------------------------------------------


def _job_id(view: View) -> str:
    try:
        return check_job_id(view.params.get("id", ""))
    except OptionError:
        raise not_found("There is no job with this id.") from None


async def cancel(view: View) -> Answer:
    """Cancel the job, or ask its worker to."""
    keys, job_id = await view.queue("queue"), _job_id(view)
    view.demand(Action.CANCEL, keys.name)
    async with view.source.open_queue(keys) as queue:
        state = await queue.job(job_id).cancel()
    await view.note(
        Action.CANCEL, keys.name, f"job {job_id}", count=state is not CancelState.TOO_LATE
    )
    sentences = {
        CancelState.CANCELLED: "The job is cancelled.",
        CancelState.CANCELLING: "Its worker was asked to stop the job.",
        CancelState.TOO_LATE: "Too late: the job has ended.",
    }
    return Answer(sentences[state], link("jobs", queue=keys.name), leave=True)


async def run_now(view: View) -> Answer:
    """Make a delayed job due now."""
    keys, job_id = await view.queue("queue"), _job_id(view)
    view.demand(Action.RESCHEDULE, keys.name)
    async with view.source.open_queue(keys) as queue:
        done = await queue.job(job_id).run_now()
    await view.note("run-now", keys.name, f"job {job_id}", count=int(done))
    sentence = (
        "The job runs as soon as a worker is free." if done else "It is not delayed any more."
    )
    return Answer(sentence, job_link(keys.name, job_id))


async def reschedule(view: View) -> Answer:
    """Change when a delayed job is due."""
    keys, job_id = await view.queue("queue"), _job_id(view)
    view.demand(Action.RESCHEDULE, keys.name)
    delay = view.text("delay")[:40]
    async with view.source.open_queue(keys) as queue:
        try:
            done = await queue.job(job_id).reschedule(delay=delay)
        except OptionError:
            raise bad_request('delay must be a time such as "90s" or "1h30m", up to 30d.') from None
    await view.note(Action.RESCHEDULE, keys.name, f"job {job_id} to in {delay}", count=int(done))
    sentence = f"The job is due in {delay}." if done else "It is not delayed any more."
    return Answer(sentence, job_link(keys.name, job_id))


PAGES = (
    Page(
        path="job",
        template="job.html",
        load=load,
        under="jobs",
        live=("state", "facts", "moments", "why", "outcome", "yielded"),
        every_s=1.0,
    ),
)
OPERATIONS = (
    Operation(path="cancel-job", run=cancel),
    Operation(path="run-job", run=run_now),
    Operation(path="reschedule-job", run=reschedule),
)
