"""The schedules of a queue: stored, looked at, paused, and fired out of turn."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from tampu.admin.dead import QueueConnection
from tampu.errors import DecodeError, OptionError, ServerBusy
from tampu.job import Job
from tampu.producer.request import Request
from tampu.schedules.model import Schedule, ScheduleCounts
from tampu.schedules.storing import NewSchedule, StoredPosition, StoredSchedule, read_schedule
from tampu.server.scripts.schedules import (
    Armed,
    NewSpec,
    RawFields,
    ScheduleLook,
    fields_of_specs,
    look_at,
    pause,
    resume,
    stored,
    unschedule,
    upsert,
)
from tampu.server.streams import server_time_ms
from tampu.timing import Rule
from tampu.util.clock import instant, instant_if_any, instant_ms
from tampu.util.options import at_least
from tampu.wire.fields import encode_name, show_text
from tampu.wire.keys import QueueKeys, check_schedule_key
from tampu.wire.payload import decode_payload
from tampu.wire.schedule import FIRED, MISSED, OUTSIDE, OVERLAPPED, OWN, PAUSED, SPEC, decode_count

Key = str | bytes
"""A schedule's key; as bytes, one that is not text or that we would not take."""
_FIELDS: Final = (SPEC, OWN, FIRED, MISSED, OVERLAPPED, OUTSIDE, PAUSED)
_NO_COUNTS: Final[RawFields] = [None] * 5
_TRIES: Final = 20
_STEPS: Final = 10_000  # of a rule that never meets its window


class _Found(Struct, frozen=True):
    """A schedule that is there and can be read."""

    repeat: StoredSchedule
    due_ms: int
    fired: int
    now_ms: int


class Schedules:
    """The schedules of one queue."""

    def __init__(
        self,
        keys: QueueKeys,
        reach: Callable[[], Awaitable[QueueConnection]],
        *,
        add: Callable[[list[Request]], Awaitable[list[Job[Any]]]],
    ) -> None:
        self._keys = keys
        self._reach = reach
        self._add = add

    async def store(self, wanted: NewSchedule) -> Schedule:
        """Store a schedule; one of the same key and rule keeps its place and its counts."""
        raw_key = wanted.key.encode()
        lane = (await self._reach()).lane
        for _ in range(_TRIES):
            look = await look_at(lane, self._keys, raw_key, fields=_FIELDS)
            there = _there(look)
            place = _place(there, look.fields)
            kept = place if wanted.keeps(place) else None
            written = wanted.written(kept, look.now_ms)
            first_ms = None if kept else written.next_ms
            new = NewSpec(raw_key, written.spec, written.own, first_ms)
            known = (look.fields[0] or b"") if there else b""
            if await upsert(lane, self._keys, new, known=known):
                counts = look.fields[2:] if kept else _NO_COUNTS
                armed = Armed(raw_key, b"%d" % written.next_ms)
                is_paused = look.armed is None and there is not None
                return _shown(armed, [written.spec, written.own, *counts], paused=is_paused)
        raise ServerBusy(lane.server.name, "CHANGED", "others store this schedule all the time")

    async def all(self, limit: int) -> list[Schedule]:
        """The first so many, by their next instants; those that cannot be read say why."""
        at_least("limit", limit, 1)
        lane = (await self._reach()).lane
        armed, paused = await stored(lane, self._keys, limit=limit)
        active = {each.key for each in armed}
        places = [(each, False) for each in armed]
        places += [(each, True) for each in paused if each.key not in active]
        places.sort(key=lambda place: place[0].due_ms or 0)
        keys = [each.key for each, _ in places[:limit]]
        found = await fields_of_specs(lane, self._keys, keys, fields=_FIELDS)
        return [
            _shown(each, fields, paused=is_paused)
            for (each, is_paused), fields in zip(places, found, strict=False)
            if not (is_paused and fields and fields[0] is None)  # a peer has removed it
        ]

    async def remove(self, key: Key) -> bool:
        """Remove one; whether it was there."""
        return await unschedule((await self._reach()).lane, self._keys, _raw(key))

    async def pause(self, key: Key) -> bool:
        """Have one not fire; False if there is none or it was paused before."""
        return await pause((await self._reach()).lane, self._keys, _raw(key))

    async def resume(self, key: Key) -> bool:
        """Have one fire again from its next instant on; False if it was not paused."""
        raw_key = _raw(key)
        lane = (await self._reach()).lane
        for _ in range(_TRIES):
            look = await look_at(lane, self._keys, raw_key, fields=_FIELDS)
            if look.paused is None or _there(look) is None:
                return False
            next_ms, passed = _after_pause(look.paused, look)
            if await resume(lane, self._keys, look.paused, next_ms=next_ms, passed=passed):
                return True
        raise ServerBusy(lane.server.name, "CHANGED", "others change this schedule all the time")

    async def trigger(self, key: Key) -> Job[Any]:
        """Add one job of it now."""
        found = await self._found(key)
        (job,) = await self._add([_request(found.repeat, found.now_ms)])
        return job

    async def backfill(
        self, key: Key, start: datetime, end: datetime, *, most: int
    ) -> list[Job[Any]]:
        """Add a job for each instant from `start` up to `end`, that one left out."""
        at_least("max", most, 1)
        start_ms, end_ms = instant_ms("start", start), instant_ms("end", end)
        if end_ms <= start_ms:
            raise OptionError("end", end, "must lie after start")
        found = await self._found(key)
        rule = found.repeat.rule.with_anchor(found.due_ms)
        count = rule.count_between(start_ms - 1, end_ms - 1)
        if count > most:
            raise OptionError("max", most, f"is less than the {count} instants of that time")
        instants = list(_between(rule, start_ms, end_ms))
        window = found.repeat.window
        return await self._add(
            [
                _request(found.repeat, at_ms)
                for at_ms in instants
                if window is None or window.contains_ms(at_ms)
            ]
        )

    async def preview(self, what: Key | Rule, n: int) -> list[datetime]:
        """The next instants of a schedule, or of a rule that would be stored now."""
        at_least("n", n, 1)
        if isinstance(what, Rule):
            now_ms = await server_time_ms((await self._reach()).lane)
            return what.with_anchor(now_ms).next_n(n, instant(now_ms))
        found = await self._found(what)
        limit = found.repeat.spec.limit
        count = n if not limit else min(n, max(0, limit - found.fired))
        return [instant(at_ms) for at_ms in _upcoming(found, count)]

    async def _found(self, key: Key) -> _Found:
        raw_key = _raw(key)
        lane = (await self._reach()).lane
        look = await look_at(lane, self._keys, raw_key, fields=_FIELDS)
        there = _there(look)
        if there is None:
            raise OptionError("key", key, "names no schedule of this queue")
        spec, own, fired = look.fields[:3]
        repeat = read_schedule(spec, own)
        due_ms = there.due_ms
        return _Found(
            repeat, look.now_ms if due_ms is None else due_ms, decode_count(fired), look.now_ms
        )


def _raw(key: Key) -> bytes:
    return key if isinstance(key, bytes) else check_schedule_key(key).encode()


def _there(look: ScheduleLook) -> Armed | None:
    """Where a schedule is; a paused one without a spec was removed by a peer."""
    return look.armed or (None if look.fields[0] is None else look.paused)


def _place(armed: Armed | None, fields: RawFields) -> StoredPosition | None:
    """What is stored, if it can be read; what cannot has no place to keep."""
    if armed is None or (due_ms := armed.due_ms) is None:
        return None
    try:
        return StoredPosition(read_schedule(fields[0], fields[1]), due_ms)
    except DecodeError:
        return None


def _after_pause(paused: Armed, look: ScheduleLook) -> tuple[int | None, int]:
    """When a paused schedule is next due, and how many instants have passed."""
    due_ms, now_ms = paused.due_ms or 0, look.now_ms
    place = _place(paused, look.fields)
    if place is None or due_ms > now_ms:
        return due_ms, 0  # what cannot be read goes back as it came
    rule = place.repeat.instants(due_ms)
    return rule.next_ms(now_ms), 1 + rule.count_between(due_ms, now_ms)


def _request(repeat: StoredSchedule, at_ms: int) -> Request:
    """A job of a schedule for an instant."""
    return Request(
        name=repeat.spec.job_name,
        data=_data(repeat),
        payload=repeat.payload,
        raw_name=encode_name(repeat.spec.job_name),
        retry=repeat.retry,
        extras=repeat.job_extras(at_ms),
    )


def _data(repeat: StoredSchedule) -> object:
    try:
        return decode_payload(repeat.payload)
    except DecodeError:
        return None


def _between(rule: Rule, start_ms: int, end_ms: int) -> Iterator[int]:
    at_ms = rule.next_ms(start_ms - 1)
    while at_ms is not None and at_ms < end_ms:
        yield at_ms
        at_ms = rule.next_ms(at_ms)


def _upcoming(found: _Found, count: int) -> list[int]:
    """The next instants that would fire, as far as anybody can tell."""
    rule, window = found.repeat.instants(found.due_ms), found.repeat.window
    instants: list[int] = []
    # What it is armed for comes first, also if a peer has put it beside the rule's own instants.
    at_ms = found.due_ms if _is_to_come(found) else rule.next_ms(found.now_ms)
    for _ in range(_STEPS):
        if at_ms is None or len(instants) >= count:
            break
        open_ms = at_ms if window is None else window.next_open_ms(at_ms)
        if open_ms is None:
            break
        if open_ms == at_ms:
            instants.append(at_ms)
        at_ms = rule.next_ms(max(at_ms, open_ms - 1))
    return instants


def _is_to_come(found: _Found) -> bool:
    end_ms = found.repeat.spec.end_before_ms
    return found.now_ms < found.due_ms and (end_ms is None or found.due_ms <= end_ms)


def _shown(armed: Armed, fields: RawFields | None, *, paused: bool) -> Schedule:
    key, due_ms = show_text(armed.key), armed.due_ms
    next_at = None if due_ms is None else instant_if_any(due_ms)
    fields = [None] * len(_FIELDS) if fields is None else fields
    try:
        repeat = read_schedule(fields[0], fields[1])
        settings = repeat.settings()
    except (DecodeError, OptionError) as error:
        return Schedule(
            key=key, raw_key=armed.key, next_at=next_at, paused=paused, problem=str(error)
        )
    fired, missed, overlapped, outside, passed = map(decode_count, fields[2:])
    return Schedule(
        key=key,
        raw_key=armed.key,
        name=repeat.spec.job_name,
        rule=repeat.rule,
        data=_data(repeat),
        next_at=next_at,
        paused=paused,
        counts=ScheduleCounts(
            fired=fired, missed=missed, overlapped=overlapped, outside=outside, paused=passed
        ),
        settings=settings,
    )
