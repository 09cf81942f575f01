"""Dead letters: looked at, put back, or done away with."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from tampu.errors import DecodeError, OptionError
from tampu.events import EventWriter
from tampu.server.lane import Lane
from tampu.server.scripts.dead import Replay, replay
from tampu.server.streams import (
    delete_entries,
    drop_all,
    entries_between,
    fields_of,
    server_time_ms,
    trim_before,
)
from tampu.util.clock import Duration, instant, now_ms, to_ms
from tampu.util.options import at_least
from tampu.wire.dead import BuryReason, DeadEntry, Failure, decode_dead
from tampu.wire.envelope import Envelope, decode_envelope, encode_envelope
from tampu.wire.event import EventFields, EventKind, encode_event
from tampu.wire.extras import decode_extras, encode_extras, split_extras
from tampu.wire.fields import decode_text
from tampu.wire.keys import QueueKeys
from tampu.wire.payload import decode_payload

PAGE: Final = 100
_DEAD_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class DeadLetter(Struct, frozen=True, kw_only=True):
    """One dead letter, as far as it can be read; `raw` is what it holds, byte for byte."""

    dead_id: str
    buried_at: datetime
    name: str
    reason: BuryReason | str
    detail: str | None
    failure: Failure | None
    attempt: int | None
    worker: str | None
    job_id: str | None  # None if the envelope cannot be decoded
    data: object
    raw: bytes
    source_id: str  # the id that its entry had on the queue

    def __repr__(self) -> str:
        return f"<DeadJob {self.dead_id} {self.name!r} {self.reason}>"


class QueueConnection(Protocol):
    """What dead letters need of a queue that is connected."""

    @property
    def lane(self) -> Lane:
        """The way to the server."""

    @property
    def events(self) -> EventWriter | None:
        """Where listeners are told, if they are."""


class _Kept(Struct, frozen=True):
    """A dead letter and where it lies."""

    dead_id: bytes
    letter: DeadEntry


class _Filter(Struct, frozen=True):
    """Which letters are meant; what is None does not matter."""

    name: str | None = None
    reason: str | None = None
    before_ms: int | None = None

    def takes(self, kept: _Kept) -> bool:
        letter = kept.letter
        if self.name is not None and letter.name != self.name:
            return False
        if self.reason is not None and _spelled(letter.reason) != self.reason:
            return False
        return self.before_ms is None or _stamp_ms(kept.dead_id) < self.before_ms


class DeadLetters:
    """The dead letters of a queue; every worker that gives up on a job adds one."""

    def __init__(self, keys: QueueKeys, reach: Callable[[], Awaitable[QueueConnection]]) -> None:
        self._keys = keys
        self._reach = reach

    async def peek(self, count: int = 20, *, after: str | None = None) -> list[DeadLetter]:
        """The oldest dead letters, or the oldest behind a dead letter's id; nothing is changed."""
        at_least("count", count, 1)
        start = b"-" if after is None else b"(" + _checked_id("after", after)
        lane = (await self._reach()).lane
        page = await entries_between(lane, self._keys.dead, start=start, count=count)
        return [dead_job(dead_id, flat or []) for dead_id, flat in page]

    async def get(self, dead_id: str) -> DeadLetter | None:
        """One dead letter by its own id; None if there is none."""
        raw = _checked_id("dead_id", dead_id)
        (fields,) = await fields_of((await self._reach()).lane, self._keys.dead, [raw])
        return None if fields is None else dead_job(raw, fields)

    async def replay(
        self,
        count: int = 100,
        *,
        ids: Sequence[str] | None = None,
        name: str | None = None,
        reason: BuryReason | str | None = None,
    ) -> int:
        """Put dead letters back on the queue, the oldest first; how many.

        Each runs as if it were new, with its name, its data and its options. What cannot be decoded
        stays where it is. Two who replay at once never put one back twice. After a lost connection
        this raises, and more may have been put back than was told.
        """
        at_least("count", count, 1)
        chosen = _Filter(name=name, reason=None if reason is None else _spelled(reason))
        line, replayed = await self._reach(), 0
        async for page in self._pages(line.lane, _checked_ids(ids)):
            letters = [self._again(kept) for kept in page if chosen.takes(kept)]
            able = [letter for letter in letters if letter is not None]
            while able and replayed < count:
                part, able = able[: count - replayed], able[count - replayed :]
                replayed += await self._put_back(line, part)
            if replayed >= count:
                break
        return replayed

    async def purge(
        self,
        *,
        ids: Sequence[str] | None = None,
        older_than: Duration | None = None,
        name: str | None = None,
        reason: BuryReason | str | None = None,
        everything: bool = False,
    ) -> int:
        """Delete dead letters for good; how many. Only those that all filters given take.

        `older_than` goes by the server's clock. `everything=True` stands alone.
        """
        filtered = any(given is not None for given in (ids, older_than, name, reason))
        if filtered is bool(everything):
            raise OptionError(
                "everything",
                everything,
                "is True, or one of ids, older_than, name, reason is given",
            )
        age_ms = None if older_than is None else to_ms("older_than", older_than)
        chosen_ids = _checked_ids(ids)
        lane = (await self._reach()).lane
        if everything:
            return await drop_all(lane, self._keys.dead)
        before_ms = None if age_ms is None else await server_time_ms(lane) - age_ms
        if before_ms is not None and ids is None and name is None and reason is None:
            return await trim_before(lane, self._keys.dead, b"%d" % before_ms)
        told = None if reason is None else _spelled(reason)
        return await self._delete(lane, _Filter(name, told, before_ms), chosen_ids)

    async def _delete(self, lane: Lane, chosen: _Filter, ids: list[bytes] | None) -> int:
        deleted = 0
        async for page in self._pages(lane, ids):
            if found := [kept.dead_id for kept in page if chosen.takes(kept)]:
                deleted += await delete_entries(lane, self._keys.dead, found)
        return deleted

    async def _pages(self, lane: Lane, ids: list[bytes] | None) -> AsyncIterator[list[_Kept]]:
        """The letters of those ids that are there, or all of them, oldest first."""
        dead = self._keys.dead
        if ids is not None:
            for first in range(0, len(ids), PAGE):
                part = ids[first : first + PAGE]
                found = zip(part, await fields_of(lane, dead, part), strict=True)
                yield [_Kept(dead_id, decode_dead(flat)) for dead_id, flat in found if flat]
            return
        start = b"-"
        while page := await entries_between(lane, dead, start=start, count=PAGE):
            yield [_Kept(dead_id, decode_dead(flat or [])) for dead_id, flat in page]
            start = b"(" + page[-1][0]

    def _again(self, kept: _Kept) -> Replay | None:
        """The letter as a new job; None if it cannot be decoded."""
        letter = kept.letter
        try:
            envelope, extras = _opened(letter)
        except DecodeError:
            return None
        fresh = Envelope(envelope.id, envelope.payload, envelope.created_at_ms, 0, envelope.retry)
        return Replay(
            kept.dead_id,
            encode_envelope(fresh),
            letter.raw_name,
            extras,
            self._keys.failure(envelope.id),
        )

    async def _put_back(self, line: QueueConnection, letters: list[Replay]) -> int:
        done = await replay(line.lane, self._keys.dead, stream=self._keys.stream, letters=letters)
        if line.events is not None:
            now = now_ms()
            for letter, put_back in zip(letters, done, strict=True):
                if put_back:
                    line.events.tell(_replayed(letter, now))
        return sum(done)


def _opened(letter: DeadEntry) -> tuple[Envelope, bytes]:
    """The envelope of a letter and its extras, wherever they are; b"" for none."""
    body, behind = split_extras(letter.envelope)
    envelope = decode_envelope(body)
    if letter.reason is BuryReason.DECODE_FAILED:
        decode_payload(
            envelope.payload
        )  # all others were read, or are for a worker that reads bytes
    extras = letter.extras if letter.extras is not None else behind
    if extras is not None and letter.reason is BuryReason.EXPIRED:
        # With its old deadline it would be buried again at once.
        extras = encode_extras(replace(decode_extras(extras), deadline_ms=None))
    return envelope, extras or b""


def dead_job(dead_id: bytes, fields: Sequence[bytes]) -> DeadLetter:
    """What an entry of the dead letters tells."""
    letter = decode_dead(fields)
    job_id, data = _content(letter)
    stamp_ms = letter.buried_at_ms
    return DeadLetter(
        dead_id=dead_id.decode(),
        buried_at=instant(_stamp_ms(dead_id) if stamp_ms is None else stamp_ms),
        name=letter.name,
        reason=letter.reason,
        detail=letter.detail,
        failure=letter.failure,
        attempt=letter.attempt,
        worker=letter.worker,
        job_id=job_id,
        data=data,
        raw=letter.envelope if letter.entry is None else letter.entry,
        source_id=letter.source_id,
    )


def _content(letter: DeadEntry) -> tuple[str | None, object]:
    """The job's id and data, as far as they can be decoded."""
    try:
        envelope = decode_envelope(split_extras(letter.envelope)[0])
    except DecodeError:
        return None, None
    try:
        return envelope.id, decode_payload(envelope.payload)
    except DecodeError:
        return envelope.id, None


def _replayed(letter: Replay, now: int) -> EventFields:
    job_id = decode_envelope(letter.body).id
    name = decode_text(letter.name)
    return encode_event(EventKind.REPLAYED, job_id=job_id, ts_ms=now, name=name)


def _stamp_ms(dead_id: bytes) -> int:
    """When a letter was written, by the server's clock."""
    return int(dead_id.partition(b"-")[0])


def _spelled(reason: BuryReason | str) -> str:
    return reason.value if isinstance(reason, BuryReason) else reason


def _checked_ids(ids: Sequence[str] | None) -> list[bytes] | None:
    if ids is None:
        return None
    if isinstance(ids, str):
        raise OptionError("ids", ids, "expected several: a list of them")
    return [_checked_id("ids", dead_id) for dead_id in ids]


def _checked_id(option: str, dead_id: str) -> bytes:
    given: object = dead_id
    if not isinstance(given, str) or not _DEAD_ID.fullmatch(given):
        raise OptionError(option, dead_id, "expected ids of dead letters, such as 1700000000000-0")
    return given.encode()
