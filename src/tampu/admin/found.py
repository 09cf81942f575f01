"""Finding jobs by their ids: in the delayed set, in the stream, and in the lines before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.errors import DecodeError
from tampu.job import JobInfo, JobState
from tampu.server.gates import members_of_line, read_gate
from tampu.server.inspection import entries_down_from
from tampu.server.scripts.gate import pages_of_lines, search_lines
from tampu.server.streams import entries_from, fields_of, scan_members, score_of, values_of
from tampu.util.clock import instant, instant_if_any
from tampu.util.ids import is_own_id, time_of_id
from tampu.wire.dead import Failure
from tampu.wire.entry import decode_entry, decode_member
from tampu.wire.envelope import Envelope, decode_envelope
from tampu.wire.extras import Extras, decode_extras, split_extras
from tampu.wire.keys import MARKER_VALUE
from tampu.wire.lines import PLAIN_LINE, parse_line
from tampu.wire.placeholders import decode_shown

if TYPE_CHECKING:
    from datetime import datetime

    from tampu.server.lane import Lane
    from tampu.server.scripts.gate import LineSearch, LineState
    from tampu.server.streams import RawEntry
    from tampu.wire.flow import StepId
    from tampu.wire.keys import QueueKeys

MAX_SEARCHED: Final = 100_000
"""How many jobs of each kind are looked at for an id that leads to no place."""
_PAGE: Final = 1000
_NEAR_PAGES: Final = 8  # around the time in an id: at full speed, some 20 ms of adding
_COMPARED_THERE: Final = 20  # jobs in lines cost so much less than those that are sent to us
_LINES_A_CALL: Final = 500
_MOST_NEAR: Final = 20  # for more ids than this, one pass over the stream comes first


class FoundJob(Struct, frozen=True, kw_only=True):
    """A delayed, waiting or active job, and its place.

    That is an entry, or a member: of the delayed set, or with a `line` of that line.
    """

    envelope: Envelope
    name: str
    extras: Extras
    entry_id: bytes = b""
    member: bytes = b""
    line: bytes = b""
    due_ms: int | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self.envelope.id

    def info(self, state: JobState) -> JobInfo:
        """What the job itself tells."""
        envelope, extras, retry = self.envelope, self.extras, self.envelope.retry
        error = extras.error
        line = parse_line(extras.line or PLAIN_LINE)
        return JobInfo(
            id=envelope.id,
            state=state,
            name=self.name,
            data=decode_or_none(decode_shown, envelope.payload),
            attempt=envelope.attempt,
            attempts=None if retry is None else retry.max_attempts,
            created_at=instant_if_any(envelope.created_at_ms),
            due_at=None if self.due_ms is None else instant_if_any(self.due_ms),
            failed_at=tuple(instant(at_ms) for at_ms in extras.failed_at_ms),
            failure=None
            if error is None
            else Failure(error.error_type, error.message, error.traceback),
            entry_id=self.entry_id.decode() or None,
            schedule_key=extras.schedule_key,
            scheduled_at=_instant(extras.scheduled_at_ms),
            headers=extras.headers,
            tenant=extras.tenant,
            priority=line.level,
            key=line.key,
        )

    @property
    def delayed_state(self) -> JobState:
        """The state of a delayed job: one that has failed waits for its next attempt."""
        return JobState.RETRYING if self.envelope.attempt else JobState.DELAYED


def read_entry(entry_id: bytes, fields: Sequence[bytes] | None) -> FoundJob | None:
    """The job in an entry of the stream, if it can be decoded."""
    try:
        entry = decode_entry(fields or ())
        body, appended = split_extras(entry.envelope or b"")
        envelope = decode_envelope(body)
        extras = decode_extras(entry.extras if entry.extras is not None else appended)
    except DecodeError:
        return None
    return FoundJob(envelope=envelope, name=entry.name, extras=extras, entry_id=entry_id)


def read_member(member: bytes, due_ms: int | None = None) -> FoundJob | None:
    """The job in a member of the delayed set, if it can be decoded."""
    try:
        parts = decode_member(member)
        envelope, extras = decode_envelope(parts.envelope), decode_extras(parts.extras)
    except DecodeError:
        return None
    return FoundJob(envelope=envelope, name=parts.name, extras=extras, member=member, due_ms=due_ms)


class JobFinder:
    """Finds delayed, waiting and active jobs by their ids.

    A job that tampu delayed has an index by its id; the marker of an id that a user chose holds the
    job's entry; and an id of our own holds the time at which it was added. For all others up to
    `most` delayed jobs and as many entries are searched, and 20 times as many jobs in lines, where
    the server compares the ids; None searches all.
    """

    def __init__(self, lane: Lane, keys: QueueKeys, *, most: int | None = MAX_SEARCHED) -> None:
        self._lane = lane
        self._keys = keys
        self._most = most
        self._compared = 0  # jobs in lines
        self.searched_all = True

    async def find(self, job_ids: Collection[str]) -> dict[str, FoundJob]:
        """Those of the jobs that exist. One that changes its place meanwhile may be missed."""
        missing, found = set(job_ids), dict[str, FoundJob]()
        searches = [self._near_their_times, self._in_delayed, self._in_stream]
        if await read_gate(self._lane, self._keys) is not None:
            searches.append(self._in_lines)
        if len(missing) > _MOST_NEAR:
            searches.reverse()
        self.searched_all = True
        for step in (self._by_index, self._by_marker, *searches):
            if missing:
                found.update(await step(missing))
                missing -= found.keys()
        return found

    async def find_of_chain(self, step: StepId) -> FoundJob | None:
        """The step of a chain that exists; the others are done or still to come."""
        return next(iter((await self.find([str(each) for each in step.all])).values()), None)

    async def find_delayed(self, job_ids: Collection[str]) -> dict[str, FoundJob]:
        """Those of the jobs that are delayed or wait for their next attempt."""
        if not job_ids:
            return {}
        found = await self._by_index(job_ids)
        missing = set(job_ids) - found.keys()
        return found | await self._in_delayed(missing) if missing else found

    async def _by_index(self, job_ids: Collection[str]) -> dict[str, FoundJob]:
        """Delayed jobs whose index holds their members."""
        members = await values_of(self._lane, [self._keys.index(job_id) for job_id in job_ids])
        jobs = [await self._still_delayed(member) for member in members if member is not None]
        return {job.id: job for job in jobs if job is not None and job.id in job_ids}

    async def _by_marker(self, job_ids: Collection[str]) -> dict[str, FoundJob]:
        """Waiting and active jobs whose marker holds their entry."""
        markers = await values_of(self._lane, [self._keys.marker(job_id) for job_id in job_ids])
        places = [each for each in markers if each is not None and each != MARKER_VALUE]
        found = await fields_of(self._lane, self._keys.stream, places)
        jobs = [read_entry(*each) for each in zip(places, found, strict=True)]
        return {job.id: job for job in jobs if job is not None and job.id in job_ids}

    async def _still_delayed(self, member: bytes) -> FoundJob | None:
        score = await score_of(self._lane, self._keys.delayed, member)
        return None if score is None else read_member(member, round(score))

    async def _near_their_times(self, job_ids: Collection[str]) -> dict[str, FoundJob]:
        """Jobs whose entries were written at about the times that are in their ids."""
        found: dict[str, FoundJob] = {}
        for job_id in job_ids:
            at_ms = time_of_id(job_id)
            if at_ms is not None and job_id not in found:
                found.update(await self._around(at_ms, job_id, job_ids))
        return found

    async def _around(
        self, at_ms: int, job_id: str, wanted: Collection[str]
    ) -> dict[str, FoundJob]:
        """Search for a job after that time, then before it: the clocks of producers differ.

        Others that are wanted and were added at the same time are found along with it.
        """
        stream, start, found = self._keys.stream, b"%d-0" % at_ms, dict[str, FoundJob]()
        for _ in range(_NEAR_PAGES):
            page = await entries_from(self._lane, stream, start=start, count=_PAGE)
            found.update(_wanted_in(page, wanted))
            if job_id in found:
                return found
            if len(page) < _PAGE:
                break
            start = b"(" + page[-1][0]
        page = await entries_down_from(self._lane, stream, start=b"%d-0" % at_ms, count=_PAGE)
        return found | _wanted_in(page, wanted)

    async def _in_delayed(self, job_ids: Collection[str]) -> dict[str, FoundJob]:
        """Search the delayed jobs in one pass."""
        # The server can filter for one id. For several it returns all, and we filter.
        holding = next(iter(job_ids)).encode() if len(job_ids) == 1 else b""
        found: dict[str, FoundJob] = {}
        cursor, searched = b"0", 0
        while not self._is_enough(searched) and len(found) < len(job_ids):
            cursor, members = await scan_members(
                self._lane, self._keys.delayed, cursor, holding=holding, count=_PAGE
            )
            for member in members:
                job = read_member(member)
                if job is not None and job.id in job_ids:
                    found[job.id] = job
            if cursor == b"0":
                break
            searched += _PAGE
        still = {job_id: await self._still_delayed(job.member) for job_id, job in found.items()}
        return {job_id: job for job_id, job in still.items() if job is not None}

    async def _in_stream(self, job_ids: Collection[str]) -> dict[str, FoundJob]:
        """Search the entries, oldest first."""
        found: dict[str, FoundJob] = {}
        start, searched, wanted = b"-", 0, set(job_ids)
        while wanted and not self._is_enough(searched):
            page = await entries_from(self._lane, self._keys.stream, start=start, count=_PAGE)
            found.update(_wanted_in(page, wanted))
            wanted -= found.keys()
            if len(page) < _PAGE:
                break
            start, searched = b"(" + page[-1][0], searched + len(page)
        return found

    async def _in_lines(self, job_ids: Collection[str]) -> dict[str, FoundJob]:
        """Search the lines in front of the stream."""
        found: dict[str, FoundJob] = {}
        self._compared = 0
        async with aclosing(pages_of_lines(self._lane, self._keys)) as pages:
            async for page in pages:
                found.update(await self.find_in_lines(page, set(job_ids) - found.keys()))
                if len(found) == len(job_ids) or not self.searched_all:
                    break
        return found

    async def find_in_lines(
        self, lines: Sequence[LineState], job_ids: Collection[str]
    ) -> dict[str, FoundJob]:
        """Those of the jobs that wait in these lines. The server compares the ids."""
        found = await self._near_in_lines(lines, job_ids)
        names, place = [each.line for each in lines], 0
        while names and len(found) < len(job_ids):
            if self._is_enough(self._compared // _COMPARED_THERE):
                break
            part, left = names[:_LINES_A_CALL], set(job_ids) - found.keys()
            search = await search_lines(self._lane, self._keys, part, job_ids=left, place=place)
            found.update(_hits(part, search))
            names, place = names[search.lines :], search.place
            self._compared += search.searched
        return found

    async def _near_in_lines(
        self, lines: Sequence[LineState], job_ids: Collection[str]
    ) -> dict[str, FoundJob]:
        """Jobs in long lines that are where they were added: in the order of their ids."""
        own = {job_id for job_id in job_ids if is_own_id(job_id)}
        names = [each.line for each in lines if each.length > _PAGE]
        found: dict[str, FoundJob] = {}
        while own and names and len(own) <= _MOST_NEAR:
            part = names[:_LINES_A_CALL]
            search = await search_lines(self._lane, self._keys, part, job_ids=own, place=None)
            found.update(_hits(part, search))
            own -= found.keys()
            names = names[search.lines :]
        return found

    def _is_enough(self, searched: int) -> bool:
        if self._most is None or searched < self._most:
            return False
        self.searched_all = False
        return True


def _wanted_in(page: list[RawEntry], wanted: Collection[str]) -> dict[str, FoundJob]:
    jobs = (read_entry(entry_id, fields) for entry_id, fields in page)
    return {job.id: job for job in jobs if job is not None and job.id in wanted}


def _hits(lines: Sequence[bytes], part: LineSearch) -> dict[str, FoundJob]:
    jobs = ((lines[number], read_member(member)) for number, member in part.found)
    return {job.id: replace(job, line=line) for line, job in jobs if job is not None}


async def jobs_in_line(lane: Lane, keys: QueueKeys, line: bytes) -> AsyncIterator[FoundJob]:
    """The jobs that wait in a line, the next one first."""
    start = 0
    while page := await members_of_line(lane, keys, line, start=start, count=_PAGE):
        for member in page:
            job = read_member(member)
            if job is not None:
                yield replace(job, line=line)
        start += len(page)


def decode_or_none(decode: Callable[[bytes], object], raw: bytes) -> object:
    """The decoded value, or None if it cannot be decoded."""
    try:
        return decode(raw)
    except DecodeError:
        return None


def _instant(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else instant_if_any(at_ms)
