"""Where a job is, by its id."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.admin.dead import DeadJob, dead_job
from tampu.clock import instant_if_any
from tampu.errors import DecodeError
from tampu.server.lane import Lane
from tampu.server.looks import groups_of, holder_of
from tampu.server.streams import RawEntry, entries_between, scan_members, score_of, values_of
from tampu.settings import at_least
from tampu.wire.delayed import decode_member, id_of_member
from tampu.wire.entry import decode_entry
from tampu.wire.envelope import Envelope, decode_envelope
from tampu.wire.extras import split_extras
from tampu.wire.fields import show_text
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
    dead: DeadJob | None = None


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
                    worker=show_text(held.consumer),
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
