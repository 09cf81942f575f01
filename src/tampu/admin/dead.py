"""Dead letters: read, replay and delete them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Unpack

from msgspec import Struct
from msgspec.structs import replace

from tampu.admin.dead_filter import (
    LetterFilter,
    LetterOptions,
    LetterSettings,
    StoredLetter,
    stamp_ms,
)
from tampu.errors import DecodeError, OptionError
from tampu.server.scripts.flows import replay_members
from tampu.server.scripts.settling import Replay, replay
from tampu.server.streams import (
    delete_entries,
    drop_all,
    entries_from,
    fields_of,
    server_time_ms,
    trim_before,
)
from tampu.util.clock import instant, now_ms
from tampu.util.options import at_least, parse_options
from tampu.wire.dead import BuryReason, DeadEntry, Failure, decode_dead
from tampu.wire.envelope import Envelope, decode_envelope, encode_envelope
from tampu.wire.event import EventKind, encode_event
from tampu.wire.extras import decode_extras, encode_extras, split_extras
from tampu.wire.fields import decode_text
from tampu.wire.flow import MemberId, awaited_id, parse_member
from tampu.wire.payload import decode_payload, encode_payload
from tampu.wire.placeholders import decode_shown

if TYPE_CHECKING:
    from tampu.producer.connection import QueueConnection
    from tampu.server.lane import Lane
    from tampu.wire.event import EventFields
    from tampu.wire.keys import QueueKeys

PAGE: Final = 100
_DEAD_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
MAX_REPLAYED_BYTES: Final = 1_048_576
"""The most bytes of new data for a dead letter: as much as a worker accepts by default."""


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A dead letter, as far as it can be decoded. `raw` holds its exact bytes."""

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
    source_id: str  # the id of its entry on the queue

    def __repr__(self) -> str:
        return f"<DeadLetter {self.dead_id} {self.name!r} {self.reason}>"


class DeadLetters:
    """The dead letters of a queue: jobs that will not run again, each with its reason."""

    def __init__(self, keys: QueueKeys, connect: Callable[[], Awaitable[QueueConnection]]) -> None:
        self._keys = keys
        self._connect = connect

    async def peek(
        self, count: int = 20, *, after: str | None = None, **filters: Unpack[LetterOptions]
    ) -> list[DeadLetter]:
        """The oldest dead letters that match, after the one with this id. Changes nothing."""
        at_least("count", count, 1)
        settings = parse_options(LetterSettings, "peek", filters)
        start = b"-" if after is None else b"(" + _check_id("after", after)
        lane = (await self._connect()).lane
        if not filters:
            page = await entries_from(lane, self._keys.dead, start=start, count=count)
            return [read_dead_letter(dead_id, flat or []) for dead_id, flat in page]
        chosen, found = await self._filter(lane, settings), list[DeadLetter]()
        while page := await entries_from(lane, self._keys.dead, start=start, count=PAGE):
            found += [
                read_dead_letter(dead_id, flat or [])
                for dead_id, flat in page
                if chosen.matches(StoredLetter(dead_id, decode_dead(flat or [])))
            ]
            if len(found) >= count:
                break
            start = b"(" + page[-1][0]
        return found[:count]

    async def get(self, dead_id: str) -> DeadLetter | None:
        """The dead letter with this id, or None."""
        raw = _check_id("dead_id", dead_id)
        (fields,) = await fields_of((await self._connect()).lane, self._keys.dead, [raw])
        return None if fields is None else read_dead_letter(raw, fields)

    async def replay(
        self,
        count: int = 100,
        *,
        ids: Sequence[str] | None = None,
        **filters: Unpack[LetterOptions],
    ) -> int:
        """Put dead letters that match back on the queue, oldest first, and return their number.

        Each runs like a new job with its name, data and options. Letters that cannot be decoded
        stay. Concurrent replays never put a letter back twice. If the connection breaks, this
        raises, and some letters may have been put back.
        """
        at_least("count", count, 1)
        settings = parse_options(LetterSettings, "replay", filters)
        connection, replayed = await self._connect(), 0
        chosen = await self._filter(connection.lane, settings)
        async for page in self._pages(connection.lane, _check_ids(ids)):
            letters = [self._to_replay(each) for each in page if chosen.matches(each)]
            able = [letter for letter in letters if letter is not None]
            while able and replayed < count:
                part, able = able[: count - replayed], able[count - replayed :]
                replayed += await self._replay(connection, part)
            if replayed >= count:
                break
        return replayed

    async def replay_with(
        self, dead_id: str, data: object, *, max_payload: int = MAX_REPLAYED_BYTES
    ) -> bool:
        """Put one dead letter back on the queue with other data; False if it is there no more.

        Name, id and options stay. In one step: no letter is lost or put back twice, however often
        this is called. Raises `EncodeError`, or `DecodeError` for a letter that cannot be decoded.
        """
        raw = _check_id("dead_id", dead_id)
        payload = encode_payload(data, max_bytes=max_payload)
        connection = await self._connect()
        (fields,) = await fields_of(connection.lane, self._keys.dead, [raw])
        if fields is None:
            return False
        letter = StoredLetter(raw, decode_dead(fields))
        envelope, extras = _decode_letter(letter.entry, check=False)
        new = self._as_new(letter, replace(envelope, payload=payload), extras)
        return bool(await self._replay(connection, [new]))

    async def purge(
        self,
        *,
        ids: Sequence[str] | None = None,
        everything: bool = False,
        **filters: Unpack[LetterOptions],
    ) -> int:
        """Delete the dead letters that match all given filters, and return their number.

        `everything=True` cannot be combined with filters.
        """
        settings = parse_options(LetterSettings, "purge", filters)
        given = {name for name, value in filters.items() if value is not None}
        if (ids is not None or bool(given)) is bool(everything):
            known = ", ".join(LetterOptions.__annotations__)
            problem = f"pass either everything=True or at least one of ids, {known}"
            raise OptionError("everything", everything, problem)
        chosen_ids = _check_ids(ids)
        lane = (await self._connect()).lane
        if everything:
            return await drop_all(lane, self._keys.dead)
        chosen = await self._filter(lane, settings)
        if chosen.before_ms is not None and ids is None and given == {"older_than"}:
            return await trim_before(lane, self._keys.dead, b"%d" % chosen.before_ms)
        return await self._delete(lane, chosen, chosen_ids)

    async def _filter(self, lane: Lane, settings: LetterSettings) -> LetterFilter:
        return settings.at(await server_time_ms(lane) if settings.asks_for_time else 0)

    async def _delete(self, lane: Lane, chosen: LetterFilter, ids: list[bytes] | None) -> int:
        deleted = 0
        async for page in self._pages(lane, ids):
            if found := [each.dead_id for each in page if chosen.matches(each)]:
                deleted += await delete_entries(lane, self._keys.dead, found)
        return deleted

    async def _pages(
        self, lane: Lane, ids: list[bytes] | None
    ) -> AsyncIterator[list[StoredLetter]]:
        """The letters with these ids that exist, or all of them, oldest first."""
        dead = self._keys.dead
        if ids is not None:
            for first in range(0, len(ids), PAGE):
                part = ids[first : first + PAGE]
                found = zip(part, await fields_of(lane, dead, part), strict=True)
                yield [StoredLetter(dead_id, decode_dead(flat)) for dead_id, flat in found if flat]
            return
        start = b"-"
        while page := await entries_from(lane, dead, start=start, count=PAGE):
            yield [StoredLetter(dead_id, decode_dead(flat or [])) for dead_id, flat in page]
            start = b"(" + page[-1][0]

    def _to_replay(self, stored: StoredLetter) -> Replay | None:
        """The letter as a new job; None if it cannot be decoded."""
        try:
            envelope, extras = _decode_letter(stored.entry)
        except DecodeError:
            return None
        return self._as_new(stored, envelope, extras)

    def _as_new(self, stored: StoredLetter, envelope: Envelope, extras: bytes) -> Replay:
        fresh = Envelope(envelope.id, envelope.payload, envelope.created_at_ms, 0, envelope.retry)
        return Replay(
            stored.dead_id,
            encode_envelope(fresh),
            stored.entry.raw_name,
            extras,
            self._keys.failure(awaited_id(envelope.id)),
            envelope.id,
        )

    async def _put_back(self, lane: Lane, letters: list[Replay]) -> list[bool]:
        """Put letters back; jobs of flows get new ids, and their flows go on."""
        others, members = list[Replay](), list[Replay]()
        for each in letters:
            member = parse_member(each.job_id)
            if member is None:
                others.append(each)
            else:
                members.append(_as_next_run(each, member))
        done: dict[bytes, bool] = {}
        for some, put_back in ((others, replay), (members, replay_members)):
            if some:
                found = await put_back(lane, self._keys, some)
                done |= zip((each.dead_id for each in some), found, strict=True)
        return [done[each.dead_id] for each in letters]

    async def _replay(self, connection: QueueConnection, letters: list[Replay]) -> int:
        done = await self._put_back(connection.lane, letters)
        if connection.events is not None:
            now = now_ms()
            for letter, is_back in zip(letters, done, strict=True):
                if is_back:
                    connection.events.tell(_replayed_event(letter, now))
        return sum(done)


def _as_next_run(letter: Replay, member: MemberId) -> Replay:
    """The job of a flow under the id of its next run."""
    new_id = str(member.next_run)
    envelope = replace(decode_envelope(letter.body), id=new_id)
    return replace(letter, body=encode_envelope(envelope), job_id=new_id)


def _decode_letter(letter: DeadEntry, *, check: bool = True) -> tuple[Envelope, bytes]:
    """The envelope of a letter and its extras; b"" if it has none."""
    body, appended = split_extras(letter.envelope)
    envelope = decode_envelope(body)
    if check and letter.reason is BuryReason.DECODE_FAILED:
        # Others were decoded once, or belong to a worker that takes raw bytes.
        decode_payload(envelope.payload)
    extras = letter.extras if letter.extras is not None else appended
    return envelope, b"" if extras is None else _start_again(extras, letter.reason)


def _start_again(data: bytes, reason: BuryReason | str) -> bytes:
    """The extras of a job that begins again with its first attempt."""
    extras = decode_extras(data)
    fresh = extras.without_failures()
    if reason is BuryReason.EXPIRED:
        # With its old deadline it would be buried again at once.
        fresh = replace(fresh, deadline_ms=None)
    return data if fresh == extras else encode_extras(fresh) or b""


def read_dead_letter(dead_id: bytes, fields: Sequence[bytes]) -> DeadLetter:
    """The dead letter in an entry of the dead stream."""
    letter = decode_dead(fields)
    job_id, data = _content(letter)
    buried_ms = letter.buried_at_ms
    return DeadLetter(
        dead_id=dead_id.decode(),
        buried_at=instant(stamp_ms(dead_id) if buried_ms is None else buried_ms),
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
        return envelope.id, decode_shown(envelope.payload)
    except DecodeError:
        return envelope.id, None


def _replayed_event(letter: Replay, now: int) -> EventFields:
    job_id = decode_envelope(letter.body).id
    name = decode_text(letter.name)
    return encode_event(EventKind.REPLAYED, job_id=job_id, ts_ms=now, name=name)


def _check_ids(ids: Sequence[str] | None) -> list[bytes] | None:
    if ids is None:
        return None
    if isinstance(ids, str):
        raise OptionError("ids", ids, "expected a list of ids")
    return [_check_id("ids", dead_id) for dead_id in ids]


def _check_id(option: str, dead_id: str) -> bytes:
    given: object = dead_id
    if not isinstance(given, str) or not _DEAD_ID.fullmatch(given):
        raise OptionError(
            option, dead_id, "expected the id of a dead letter, such as 1700000000000-0"
        )
    return given.encode()
