"""Single jobs: find, cancel and reschedule them by id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.admin.dead import DeadLetter, read_dead_letter
from tampu.errors import DecodeError, OptionError
from tampu.producer.request import due_of, retention_s
from tampu.server.inspection import groups_of, holder_of
from tampu.server.scripts.delayed import Delayed, Move, cancel, reschedule, run_now
from tampu.server.streams import entries_from, scan_members, score_of, values_of
from tampu.util.clock import instant_if_any, now_ms
from tampu.util.options import Word, at_least
from tampu.wire.entry import deadline_of, decode_entry, decode_member, id_of_member, postpone
from tampu.wire.envelope import decode_envelope
from tampu.wire.event import EventKind, encode_event
from tampu.wire.extras import split_extras
from tampu.wire.fields import decode_text
from tampu.wire.keys import check_job_id
from tampu.wire.payload import decode_payload
from tampu.wire.result import decode_result

if TYPE_CHECKING:
    from tampu.events import EventWriter
    from tampu.producer.connection import QueueConnection
    from tampu.producer.request import JobRules
    from tampu.server.lane import Lane
    from tampu.server.streams import RawEntry
    from tampu.util.clock import Duration
    from tampu.wire.envelope import Envelope
    from tampu.wire.keys import QueueKeys

MAX_SEARCHED: Final = 10_000
_PAGE: Final = 1000


class JobState(Word):
    """The state of a job."""

    WAITING = "waiting"
    ACTIVE = "active"
    DELAYED = "delayed"
    DEAD = "dead"
    DONE = "done"  # its result is still stored
    UNKNOWN = "unknown"  # done without a result, purged, or never added


class JobInfo(Struct, frozen=True, kw_only=True):
    """What is known about a job. Values that its state does not have are None."""

    id: str
    state: JobState
    searched_all: bool = True  # False: not found, but not everything was searched
    name: str | None = None
    data: object = None
    attempt: int | None = None  # the current attempt, or the number of past ones
    created_at: datetime | None = None
    due_at: datetime | None = None
    worker: str | None = None
    entry_id: str | None = None
    result: object = None
    dead: DeadLetter | None = None


async def find_job(
    lane: Lane, keys: QueueKeys, job_id: str, *, most: int | None = MAX_SEARCHED
) -> JobInfo:
    """Find a job by its id.

    A stored result and an indexed delayed job are found at once. Otherwise the delayed jobs, the
    waiting and active jobs and the dead letters are searched, oldest first and up to `most` of
    each; None searches all. A job that changes its state meanwhile may be missed.
    """
    if most is not None:
        at_least("most", most, 1)
    search = _JobSearch(lane, keys, check_job_id(job_id), most=most)
    result, member = await values_of(lane, [keys.result(job_id), keys.index(job_id)])
    if result is not None:
        return JobInfo(
            id=job_id, state=JobState.DONE, result=_decode_or_none(decode_result, result)
        )
    found = (
        (await search.delayed(member) if member else None)
        or await search.delayed(await search.find_member())
        or await search.stream()
        or await search.dead()
    )
    unknown = JobInfo(id=job_id, state=JobState.UNKNOWN, searched_all=search.searched_all)
    return found or unknown


class _JobSearch:
    """One search for one job."""

    def __init__(self, lane: Lane, keys: QueueKeys, job_id: str, *, most: int | None) -> None:
        self._lane = lane
        self._keys = keys
        self._job_id = job_id
        self._most = most
        self.searched_all = True

    async def delayed(self, member: bytes | None) -> JobInfo | None:
        """The job of a member, if it is still delayed."""
        score = None if member is None else await score_of(self._lane, self._keys.delayed, member)
        if member is None or score is None:
            return None
        parts = decode_member(member)
        info = _info(decode_envelope(parts.envelope), parts.name, JobState.DELAYED)
        return replace(info, due_at=instant_if_any(round(score)))

    async def find_member(self) -> bytes | None:
        """Search all delayed jobs for the member."""
        cursor, searched, holding = b"0", 0, self._job_id.encode()
        while not self._is_enough(searched):
            cursor, members = await scan_members(
                self._lane, self._keys.delayed, cursor, holding=holding, count=_PAGE
            )
            for member in members:
                if id_of_member(member) == self._job_id:
                    return member
            if cursor == b"0":
                break
            searched += _PAGE
        return None

    async def stream(self) -> JobInfo | None:
        """Search the waiting and active jobs."""
        entry = await self._walk(self._keys.stream, self._is_the_job)
        if entry is None:
            return None
        entry_id, fields = entry
        envelope, name = _decode_fields(fields)
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
        """Search the dead letters."""
        entry = await self._walk(self._keys.dead, self._is_the_job)
        if entry is None:
            return None
        letter = read_dead_letter(entry[0], entry[1])
        return JobInfo(
            id=self._job_id,
            state=JobState.DEAD,
            name=letter.name,
            data=letter.data,
            attempt=letter.attempt,
            created_at=instant_if_any(_decode_fields(entry[1])[0].created_at_ms),
            worker=letter.worker,
            dead=letter,
        )

    async def _walk(
        self, key: bytes, matches: Callable[[Sequence[bytes]], bool]
    ) -> tuple[bytes, Sequence[bytes]] | None:
        """The first entry of a stream that matches."""
        start, searched = b"-", 0
        while not self._is_enough(searched):
            page: list[RawEntry] = await entries_from(self._lane, key, start=start, count=_PAGE)
            for entry_id, fields in page:
                if fields and matches(fields):
                    return entry_id, fields
            if len(page) < _PAGE:
                break
            start, searched = b"(" + page[-1][0], searched + len(page)
        return None

    def _is_enough(self, searched: int) -> bool:
        if self._most is None or searched < self._most:
            return False
        self.searched_all = False
        return True

    def _is_the_job(self, fields: Sequence[bytes]) -> bool:
        try:
            return _decode_fields(fields)[0].id == self._job_id
        except DecodeError:
            return False


def _decode_fields(fields: Sequence[bytes]) -> tuple[Envelope, str]:
    """The envelope and name in an entry or a dead letter; both use the same fields."""
    entry = decode_entry(fields)
    return decode_envelope(split_extras(entry.envelope or b"")[0]), entry.name


def _info(envelope: Envelope, name: str, state: JobState) -> JobInfo:
    return JobInfo(
        id=envelope.id,
        state=state,
        name=name,
        data=_decode_or_none(decode_payload, envelope.payload),
        attempt=envelope.attempt,
        created_at=instant_if_any(envelope.created_at_ms),
    )


def _decode_or_none(decode: Callable[[bytes], object], raw: bytes) -> object:
    """The decoded value, or None if it cannot be decoded."""
    try:
        return decode(raw)
    except DecodeError:
        return None


JOBS_PER_CALL: Final = 500


class DelayedJobs:
    """The delayed jobs of a queue, by id.

    A job that tampu delayed has an index by its id. Others, such as a waiting retry or a job that a
    peer delayed without an id, are searched for among all delayed jobs.
    """

    def __init__(
        self, keys: QueueKeys, connect: Callable[[], Awaitable[QueueConnection]], *, rules: JobRules
    ) -> None:
        self._keys = keys
        self._connect = connect
        self._rules = rules

    async def cancel_many(self, job_ids: Iterable[str]) -> list[bool]:
        """Cancel delayed jobs. Returns for each id whether its job was cancelled."""
        if isinstance(job_ids, str):
            raise OptionError("job_ids", job_ids, "expected a list of ids")
        ids = [check_job_id(job_id) for job_id in job_ids]
        if not ids:
            return []
        connection = await self._connect()
        cancelled = await self._cancel(connection, [Delayed(job_id) for job_id in ids])
        missed = {job_id for job_id, done in zip(ids, cancelled, strict=True) if not done}
        if missed:
            found = await self._find_members(connection.lane, missed)
            jobs = [Delayed(job_id, member) for job_id, member in found.items()]
            late = {
                job.job_id
                for job, done in zip(jobs, await self._cancel(connection, jobs), strict=True)
                if done
            }
            for place, job_id in enumerate(ids):
                if job_id in late and not cancelled[place]:
                    cancelled[place] = True
                    late.discard(job_id)  # an id that was given twice is cancelled once
        return cancelled

    async def reschedule(self, job_id: str, *, delay: Duration | None, at: datetime | None) -> bool:
        """Change when a delayed job is due. Returns whether it was still delayed."""
        check_job_id(job_id)
        if delay is None and at is None:
            raise OptionError("delay", delay, "pass delay or at")
        now = now_ms()
        due, delay_ms = due_of(delay, at, rules=self._rules, now_ms=now)
        lane = (await self._connect()).lane

        async def move(member: bytes) -> bool:
            moved = await self._move_member(lane, member, now + delay_ms)
            kept_s = retention_s(delay_ms, self._rules.unique_ms)
            return await reschedule(lane, self._keys, Move(job_id, member, moved, due, kept_s))

        (indexed,) = await values_of(lane, [self._keys.index(job_id)])
        if indexed is not None and await move(indexed):
            return True
        found = await self._find_members(lane, {job_id})
        return job_id in found and await move(found[job_id])

    async def run_now(self, job_id: str) -> bool:
        """Make a delayed job due now. Returns whether it was still delayed."""
        check_job_id(job_id)
        connection = await self._connect()
        kept = 0 if connection.events is None else connection.events.max_len
        if await run_now(connection.lane, self._keys, Delayed(job_id), events_max_len=kept):
            return True
        found = await self._find_members(connection.lane, {job_id})
        return job_id in found and await run_now(
            connection.lane, self._keys, Delayed(job_id, found[job_id]), events_max_len=kept
        )

    async def _cancel(self, connection: QueueConnection, jobs: list[Delayed]) -> list[bool]:
        names: list[bytes | None] = []
        for start in range(0, len(jobs), JOBS_PER_CALL):
            part = jobs[start : start + JOBS_PER_CALL]
            answer = await cancel(connection.lane, self._keys, part)
            if connection.events is not None:
                _emit_cancelled(connection.events, part, answer)
            names += answer
        return [name is not None for name in names]

    async def _find_members(self, lane: Lane, wanted: Collection[str]) -> dict[str, bytes]:
        """Find the members of delayed jobs by their ids, in one pass."""
        # The server can filter for one id. For several it returns all, and we filter.
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

    async def _move_member(self, lane: Lane, member: bytes, due_ms: int) -> bytes:
        """The member for the new due time. A deadline moves along with it."""
        if deadline_of(member) is None:
            return member
        was_ms = await score_of(lane, self._keys.delayed, member)
        return member if was_ms is None else postpone(member, due_ms - round(was_ms))


def _emit_cancelled(events: EventWriter, jobs: list[Delayed], names: list[bytes | None]) -> None:
    now = now_ms()
    for job, name in zip(jobs, names, strict=True):
        if name is not None:
            events.tell(
                encode_event(
                    EventKind.CANCELLED, job_id=job.job_id, ts_ms=now, name=decode_text(name)
                )
            )
