"""Looking through the jobs of a queue, page by page, with a bound on what is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.admin.found import FoundJob, JobFinder, read_entry, read_member
from tampu.admin.jobs import dead_info
from tampu.admin.lines import LineReader, is_line_cursor, is_line_row, row_of
from tampu.errors import OptionError
from tampu.events import job_event
from tampu.job import JobInfo, JobState
from tampu.metrics.history import MICROSECONDS, SlowAttempt
from tampu.server.inspection import (
    delayed_since,
    entries_down_from,
    groups_of,
    holder_of,
    holders_from,
    last_delivered,
    was_delivered,
)
from tampu.server.streams import fields_of
from tampu.util.options import Word
from tampu.wire.event import EventKind
from tampu.wire.fields import decode_text

if TYPE_CHECKING:
    from tampu.server.inspection import EntryHolder
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

MOST_SEARCHED: Final = 20_000
_CHUNK: Final = 500
_EVENTS_SEARCHED: Final = 3000
_SLOWEST: Final = 10
_ENTRY_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_MAX_UINT64: Final = 2**64 - 1
_DELAYED_CURSOR: Final = re.compile(r"[0-9]{1,16}:[0-9]{1,9}")


class JobPlace(Word):
    """Where jobs are that can be listed."""

    WAITING = "waiting"
    ACTIVE = "active"
    DELAYED = "delayed"  # also jobs that wait for their next attempt
    DEAD = "dead"


class ListedJob(Struct, frozen=True):
    """A job, and its place if it may still run. `info` is None if it cannot be decoded."""

    cursor: str
    info: JobInfo | None
    found: FoundJob | None = None

    @property
    def row(self) -> str:
        """What `JobBrowser.pick` finds it by, as long as it stays where it is."""
        if self.found is not None and self.found.line:
            return row_of(self.found)
        return self.found.id if self.found is not None and self.found.member else self.cursor


class JobPage(Struct, frozen=True):
    """Jobs that match. `next` is where to go on; None if all were looked at."""

    jobs: list[ListedJob]
    next: str | None
    searched: int


class _Chunk(Struct, frozen=True):
    jobs: list[ListedJob]
    is_last: bool


def _match_all(_: JobInfo) -> bool:
    return True


class JobBrowser:
    """Reads the jobs of a queue: waiting and dead ones from the newest on, active ones from that
    which was added first, delayed ones by the time they are due.

    After the waiting jobs of the stream come those that wait in lines, the next of each line first;
    with `key`, only the lines of that key. Jobs that move meanwhile may be missed.
    """

    def __init__(
        self, lane: Lane, keys: QueueKeys, *, group: str = "default", key: str = ""
    ) -> None:
        self._lane = lane
        self._keys = keys
        self._group = group.encode()
        self._lines = LineReader(lane, keys, key=key)

    async def page(
        self,
        place: JobPlace,
        *,
        after: str = "",
        want: int = 50,
        most: int = MOST_SEARCHED,
        matches: Callable[[JobInfo], bool] = _match_all,
    ) -> JobPage:
        """Up to `want` jobs that match, after a cursor; looks at no more than `most` jobs."""
        check_cursor(place, after)
        jobs: list[ListedJob] = []
        cursor, searched, count = after, 0, want + 1
        while searched < most:
            chunk = await self._read(place, cursor, min(count, most - searched))
            for number, job in enumerate(chunk.jobs, 1):
                searched, cursor = searched + 1, job.cursor
                if job.info is not None and matches(job.info):
                    jobs.append(job)
                if len(jobs) == want:
                    is_end = chunk.is_last and number == len(chunk.jobs)
                    return JobPage(jobs, None if is_end else cursor, searched)
            if chunk.is_last:
                return JobPage(jobs, None, searched)
            count = _CHUNK
        return JobPage(jobs, cursor, searched)

    async def pick(self, place: JobPlace, rows: Sequence[str]) -> list[ListedJob]:
        """The jobs of these rows that are still there. No others are read to find them."""
        if place is JobPlace.DELAYED:
            finder = JobFinder(self._lane, self._keys)
            delayed = await finder.find_delayed(rows)
            return [
                ListedJob(f"{job.due_ms or 0}:1", job.info(job.delayed_state), job)
                for job in (delayed[row] for row in rows if row in delayed)
            ]
        if place is JobPlace.WAITING:
            return await self._pick_waiting(rows)
        for row in rows:
            check_cursor(place, row)
        ids = [row.encode() for row in rows]
        stream = self._keys.dead if place is JobPlace.DEAD else self._keys.stream
        found = await fields_of(self._lane, stream, ids)
        entries = [each for each in zip(ids, found, strict=True) if each[1] is not None]
        if place is JobPlace.DEAD:
            return [_dead_job(*each) for each in entries]
        held = [(each, await self._holder(each[0])) for each in entries]
        return [
            _held_job(entry_id, read_entry(entry_id, fields), holder)
            for (entry_id, fields), holder in held
            if holder is not None
        ]

    async def _pick_waiting(self, rows: Sequence[str]) -> list[ListedJob]:
        in_lines = [row for row in rows if is_line_row(row)]
        in_stream = [row for row in rows if not is_line_row(row)]
        for row in in_stream:
            check_cursor(JobPlace.WAITING, row)
        ids, stream = [row.encode() for row in in_stream], self._keys.stream
        found = await fields_of(self._lane, stream, ids)
        groups = await groups_of(self._lane, stream) if ids else []
        jobs = [
            _waiting_job(entry_id, fields)
            for entry_id, fields in zip(ids, found, strict=True)
            if fields is not None and not was_delivered(groups, entry_id)
        ]
        lined = await self._lines.pick(in_lines) if in_lines else {}
        return [*jobs, *(_lined_job(row, lined[row]) for row in in_lines if row in lined)]

    async def _holder(self, entry_id: bytes) -> EntryHolder | None:
        stream = self._keys.stream
        return await holder_of(self._lane, stream, group=self._group, entry_id=entry_id)

    async def _read(self, place: JobPlace, cursor: str, count: int) -> _Chunk:
        match place:
            case JobPlace.WAITING:
                return await self._waiting(cursor, count)
            case JobPlace.DEAD:
                return await self._down(self._keys.dead, cursor, count=count)
            case JobPlace.ACTIVE:
                return await self._read_active(cursor, count)
            case JobPlace.DELAYED:
                return await self._read_delayed(cursor, count)

    async def _waiting(self, cursor: str, count: int) -> _Chunk:
        """Waiting jobs: those of the stream, then those in lines."""
        jobs: list[ListedJob] = []
        if not is_line_cursor(cursor):
            last = last_delivered(await groups_of(self._lane, self._keys.stream))
            chunk = await self._down(self._keys.stream, cursor, count=count, down_to=last)
            if not chunk.is_last:
                return chunk
            jobs, cursor = chunk.jobs, ""
        page = await self._lines.page(cursor, count=count - len(jobs))
        jobs += [_lined_job(each.cursor, each.job) for each in page]
        return _Chunk(jobs, len(jobs) < count)

    async def _down(
        self, stream: bytes, cursor: str, *, count: int, down_to: bytes = b""
    ) -> _Chunk:
        """Entries of a stream from a cursor down to, not including, an id."""
        start = b"(" + cursor.encode() if cursor else b"+"
        end = b"(" + down_to if down_to else b"-"
        page = await entries_down_from(self._lane, stream, start=start, down_to=end, count=count)
        read = _dead_job if stream == self._keys.dead else _waiting_job
        return _Chunk([read(*each) for each in page], len(page) < count)

    async def _read_active(self, cursor: str, count: int) -> _Chunk:
        stream = self._keys.stream
        names = [each.name for each in await groups_of(self._lane, stream)]
        if self._group not in names:
            return _Chunk([], is_last=True)
        start = b"(" + cursor.encode() if cursor else b"-"
        page = await holders_from(self._lane, stream, self._group, start=start, count=count)
        found = await fields_of(self._lane, stream, [entry_id for entry_id, _ in page])
        jobs = [
            _held_job(entry_id, None if fields is None else read_entry(entry_id, fields), holder)
            for (entry_id, holder), fields in zip(page, found, strict=True)
        ]
        return _Chunk(jobs, len(page) < count)

    async def _read_delayed(self, cursor: str, count: int) -> _Chunk:
        due, _, skip = cursor.partition(":")
        since_ms, seen = int(due or 0), int(skip or 0)
        page = await delayed_since(
            self._lane, self._keys.delayed, since_ms if cursor else None, skip=seen, count=count
        )
        jobs = []
        for member, due_ms in page:
            # Many jobs may be due at the same moment: the cursor counts those before it.
            since_ms, seen = due_ms, seen + 1 if due_ms == since_ms and cursor else 1
            cursor = f"{since_ms}:{seen}"
            job = read_member(member, due_ms)
            info = None if job is None else job.info(job.delayed_state)
            jobs.append(ListedJob(cursor, info, job))
        return _Chunk(jobs, len(page) < count)


def check_cursor(place: JobPlace, given: str) -> None:
    """Raise `OptionError` unless this is a cursor of that place, or empty."""
    is_delayed = place is JobPlace.DELAYED
    is_one = bool(_DELAYED_CURSOR.fullmatch(given)) if is_delayed else is_entry_id(given)
    if place is JobPlace.WAITING:
        is_one = is_one or is_line_cursor(given)
    if given and not is_one:
        raise OptionError("after", given[:80], "expected the cursor of a page of jobs")


def is_entry_id(given: str) -> bool:
    """Whether a server takes this for the id of an entry, with others before and after it."""
    if not _ENTRY_ID.fullmatch(given):
        return False
    time, _, number = given.partition("-")
    return 0 < int(time) < _MAX_UINT64 and int(number) < _MAX_UINT64


def step_back(cursor: str, removed: int) -> str:
    """A cursor after so many of those before it, at the same time or in its line, were removed."""
    due, _, seen = cursor.partition(":")
    return f"{due}:{max(0, int(seen) - removed)}"


def _dead_job(entry_id: bytes, fields: list[bytes] | None) -> ListedJob:
    job = read_entry(entry_id, fields)
    return ListedJob(entry_id.decode(), dead_info(entry_id, fields or [], job))


def _waiting_job(entry_id: bytes, fields: list[bytes] | None) -> ListedJob:
    job = read_entry(entry_id, fields)
    return ListedJob(entry_id.decode(), None if job is None else job.info(JobState.WAITING), job)


def _lined_job(cursor: str, job: FoundJob | None) -> ListedJob:
    return ListedJob(cursor, None if job is None else job.info(JobState.WAITING), job)


def _held_job(entry_id: bytes, job: FoundJob | None, holder: EntryHolder) -> ListedJob:
    if job is None:
        return ListedJob(entry_id.decode(), None)
    attempt = job.envelope.attempt + holder.deliveries
    info = replace(job.info(JobState.ACTIVE), attempt=attempt, worker=decode_text(holder.consumer))
    return ListedJob(entry_id.decode(), info, job)


async def slowest_attempts(lane: Lane, keys: QueueKeys, task: str) -> list[SlowAttempt]:
    """The attempts of a task that ran longest, among the last events of its queue.

    Reads at most 3000 events, so it costs the same on any queue. Workers without events leave none.
    """
    entries = await entries_down_from(lane, keys.events, count=_EVENTS_SEARCHED)
    found = [
        SlowAttempt(
            job_id=event.job_id,
            attempt=event.attempt or 0,
            took_s=took_us / MICROSECONDS,
            ended_at=event.at,
            failed=event.kind is not EventKind.COMPLETED,
        )
        for event in (job_event(*entry) for entry in entries)
        if event.name == task and isinstance(took_us := event.fields.get("duration_us"), int)
    ]
    return sorted(found, key=lambda each: each.took_s, reverse=True)[:_SLOWEST]
