"""Single jobs: looked up by id, cancelled, rescheduled, run now."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.admin.dead import DeadLetter, QueueConnection, dead_job
from tampu.errors import DecodeError, OptionError
from tampu.events import EventWriter
from tampu.producer.request import JobRules, due_of, kept_for_s
from tampu.server.inspection import groups_of, holder_of
from tampu.server.lane import Lane
from tampu.server.scripts.delayed import Delayed, Move, cancel, reschedule, run_now
from tampu.server.streams import RawEntry, entries_between, scan_members, score_of, values_of
from tampu.util.clock import Duration, instant_if_any, now_ms
from tampu.util.options import at_least
from tampu.wire.entry import deadline_of, decode_entry, decode_member, id_of_member, postpone
from tampu.wire.envelope import Envelope, decode_envelope
from tampu.wire.event import EventKind, encode_event
from tampu.wire.extras import split_extras
from tampu.wire.fields import decode_text
from tampu.wire.keys import QueueKeys, check_job_id
from tampu.wire.payload import decode_payload
from tampu.wire.result import decode_result

MOST: Final = 10_000
_PAGE: Final = 1000


class JobState(Enum):
    """Where a job can be."""

    WAITING = "waiting"
    ACTIVE = "active"
    DELAYED = "delayed"
    DEAD = "dead"
    DONE = "done"  # its result is kept
    UNKNOWN = "unknown"  # done without a result, purged, or never added


class JobInfo(Struct, frozen=True, kw_only=True):
    """What is known of a job; what there is not in its state is None."""

    id: str
    state: JobState
    searched_all: bool = True  # False: it was not found, and not everything was looked at
    name: str | None = None
    data: object = None
    attempt: int | None = None  # the one that runs, or how many there were
    created_at: datetime | None = None
    due_at: datetime | None = None
    worker: str | None = None
    entry_id: str | None = None
    result: object = None
    dead: DeadLetter | None = None


async def find_job(lane: Lane, keys: QueueKeys, job_id: str, *, most: int | None = MOST) -> JobInfo:
    """Look for a job, first where it is quick.

    A result and the index of a delayed job are found at once. Otherwise the delayed jobs, those
    that wait or run, and the dead letters are looked through, oldest first and up to `most` of
    each; None looks at all. A job that moves meanwhile may be missed.
    """
    if most is not None:
        at_least("most", most, 1)
    search = _Search(lane, keys, check_job_id(job_id), most=most)
    result, member = await values_of(lane, [keys.result(job_id), keys.index(job_id)])
    if result is not None:
        return JobInfo(id=job_id, state=JobState.DONE, result=_read(decode_result, result))
    found = (
        (await search.delayed(member) if member else None)
        or await search.delayed(await search.member())
        or await search.stream()
        or await search.dead()
    )
    unknown = JobInfo(id=job_id, state=JobState.UNKNOWN, searched_all=search.searched_all)
    return found or unknown


class _Search:
    """One search for one job."""

    def __init__(self, lane: Lane, keys: QueueKeys, job_id: str, *, most: int | None) -> None:
        self._lane = lane
        self._keys = keys
        self._job_id = job_id
        self._most = most
        self.searched_all = True

    async def delayed(self, member: bytes | None) -> JobInfo | None:
        """The job of a member, if that is still delayed."""
        score = None if member is None else await score_of(self._lane, self._keys.delayed, member)
        if member is None or score is None:
            return None
        parts = decode_member(member)
        info = _info(decode_envelope(parts.envelope), parts.name, JobState.DELAYED)
        return replace(info, due_at=instant_if_any(round(score)))

    async def member(self) -> bytes | None:
        """The member of the job among all that are delayed."""
        cursor, looked, holding = b"0", 0, self._job_id.encode()
        while not self._enough(looked):
            cursor, members = await scan_members(
                self._lane, self._keys.delayed, cursor, holding=holding, count=_PAGE
            )
            for member in members:
                if id_of_member(member) == self._job_id:
                    return member
            if cursor == b"0":
                break
            looked += _PAGE
        return None

    async def stream(self) -> JobInfo | None:
        """The job among those that wait or run."""
        entry = await self._walk(self._keys.stream, self._is_in)
        if entry is None:
            return None
        entry_id, fields = entry
        envelope, name = _opened(fields)
        info = replace(_info(envelope, name, JobState.WAITING), entry_id=entry_id.decode())
        for group in await groups_of(self._lane, self._keys.stream):
            held = await holder_of(
                self._lane, self._keys.stream, group=group.name, entry_id=entry_id
            )
            if held is not None:
                return replace(
                    info,
                    state=JobState.ACTIVE,
                    attempt=envelope.attempt + held.deliveries,
                    worker=decode_text(held.consumer),
                )
        return info

    async def dead(self) -> JobInfo | None:
        """The job among the dead letters."""
        entry = await self._walk(self._keys.dead, self._is_in)
        if entry is None:
            return None
        letter = dead_job(entry[0], entry[1])
        return JobInfo(
            id=self._job_id,
            state=JobState.DEAD,
            name=letter.name,
            data=letter.data,
            attempt=letter.attempt,
            created_at=instant_if_any(_opened(entry[1])[0].created_at_ms),
            worker=letter.worker,
            dead=letter,
        )

    async def _walk(
        self, key: bytes, wanted: Callable[[Sequence[bytes]], bool]
    ) -> tuple[bytes, Sequence[bytes]] | None:
        """The first entry of a stream that is wanted."""
        start, looked = b"-", 0
        while not self._enough(looked):
            page: list[RawEntry] = await entries_between(self._lane, key, start=start, count=_PAGE)
            for entry_id, fields in page:
                if fields and wanted(fields):
                    return entry_id, fields
            if len(page) < _PAGE:
                break
            start, looked = b"(" + page[-1][0], looked + len(page)
        return None

    def _enough(self, looked: int) -> bool:
        if self._most is None or looked < self._most:
            return False
        self.searched_all = False
        return True

    def _is_in(self, fields: Sequence[bytes]) -> bool:
        try:
            return _opened(fields)[0].id == self._job_id
        except DecodeError:
            return False


def _opened(fields: Sequence[bytes]) -> tuple[Envelope, str]:
    """The envelope and the name in an entry, or in a dead letter: both have the same fields."""
    entry = decode_entry(fields)
    return decode_envelope(split_extras(entry.envelope or b"")[0]), entry.name


def _info(envelope: Envelope, name: str, state: JobState) -> JobInfo:
    return JobInfo(
        id=envelope.id,
        state=state,
        name=name,
        data=_read(decode_payload, envelope.payload),
        attempt=envelope.attempt,
        created_at=instant_if_any(envelope.created_at_ms),
    )


def _read(decode: Callable[[bytes], object], raw: bytes) -> object:
    """What the bytes hold; None if that cannot be read."""
    try:
        return decode(raw)
    except DecodeError:
        return None


JOBS_A_CALL: Final = 500


class DelayedJobs:
    """The delayed jobs of a queue, each by its id.

    A job that a producer of ours delayed has an index by its id. One without, such as a retry that
    waits or what a peer delayed without an id, is looked for among all that are delayed.
    """

    def __init__(
        self, keys: QueueKeys, reach: Callable[[], Awaitable[QueueConnection]], *, rules: JobRules
    ) -> None:
        self._keys = keys
        self._reach = reach
        self._rules = rules

    async def cancel_many(self, job_ids: Iterable[str]) -> list[bool]:
        """Take jobs back; of each id, in order, whether its job will not run."""
        if isinstance(job_ids, str):
            raise OptionError("job_ids", job_ids, "expected a list of ids")
        ids = [check_job_id(job_id) for job_id in job_ids]
        if not ids:
            return []
        line = await self._reach()
        cancelled = await self._cancel(line, [Delayed(job_id) for job_id in ids])
        missed = {job_id for job_id, done in zip(ids, cancelled, strict=True) if not done}
        if missed:
            found = await self._look_for(line.lane, missed)
            jobs = [Delayed(job_id, member) for job_id, member in found.items()]
            late = {
                job.job_id
                for job, done in zip(jobs, await self._cancel(line, jobs), strict=True)
                if done
            }
            for place, job_id in enumerate(ids):
                if job_id in late and not cancelled[place]:
                    cancelled[place] = True
                    late.discard(job_id)  # an id that was given twice is taken back once
        return cancelled

    async def reschedule(self, job_id: str, *, delay: Duration | None, at: datetime | None) -> bool:
        """Have a job be due at another time; whether it still was delayed."""
        check_job_id(job_id)
        if delay is None and at is None:
            raise OptionError("delay", delay, "must be given, or at")
        now = now_ms()
        due, delay_ms = due_of(delay, at, rules=self._rules, now_ms=now)
        lane = (await self._reach()).lane

        async def move(member: bytes) -> bool:
            moved = await self._moved(lane, member, now + delay_ms)
            kept_s = kept_for_s(delay_ms, self._rules.unique_ms)
            return await reschedule(lane, self._keys, Move(job_id, member, moved, due, kept_s))

        (indexed,) = await values_of(lane, [self._keys.index(job_id)])
        if indexed is not None and await move(indexed):
            return True
        found = await self._look_for(lane, {job_id})
        return job_id in found and await move(found[job_id])

    async def run_now(self, job_id: str) -> bool:
        """Have a job run as soon as a worker is free; whether it still was delayed."""
        check_job_id(job_id)
        line = await self._reach()
        kept = 0 if line.events is None else line.events.max_len
        if await run_now(line.lane, self._keys, Delayed(job_id), events_max_len=kept):
            return True
        found = await self._look_for(line.lane, {job_id})
        return job_id in found and await run_now(
            line.lane, self._keys, Delayed(job_id, found[job_id]), events_max_len=kept
        )

    async def _cancel(self, line: QueueConnection, jobs: list[Delayed]) -> list[bool]:
        names: list[bytes | None] = []
        for start in range(0, len(jobs), JOBS_A_CALL):
            part = jobs[start : start + JOBS_A_CALL]
            answer = await cancel(line.lane, self._keys, part)
            if line.events is not None:
                _tell(line.events, part, answer)
            names += answer
        return [name is not None for name in names]

    async def _look_for(self, lane: Lane, wanted: Collection[str]) -> dict[str, bytes]:
        """The members of jobs among all that are delayed, by their ids; in one pass for all."""
        # The server can look for one id; for several it hands over all, and we look.
        holding = next(iter(wanted)).encode() if len(wanted) == 1 else b""
        found: dict[str, bytes] = {}
        cursor = b"0"
        while True:
            cursor, members = await scan_members(
                lane, self._keys.delayed, cursor, holding=holding, count=_PAGE
            )
            for member in members:
                job_id = id_of_member(member)
                if job_id is not None and job_id in wanted:
                    found[job_id] = member
            if cursor == b"0" or len(found) == len(wanted):
                return found

    async def _moved(self, lane: Lane, member: bytes, due_ms: int) -> bytes:
        """The member of a job that is due then; what counts from its due time moves along."""
        if deadline_of(member) is None:
            return member
        was_ms = await score_of(lane, self._keys.delayed, member)
        return member if was_ms is None else postpone(member, due_ms - round(was_ms))


def _tell(events: EventWriter, jobs: list[Delayed], names: list[bytes | None]) -> None:
    now = now_ms()
    for job, name in zip(jobs, names, strict=True):
        if name is not None:
            events.tell(
                encode_event(
                    EventKind.CANCELLED, job_id=job.job_id, ts_ms=now, name=decode_text(name)
                )
            )
