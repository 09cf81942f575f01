"""Administration of a queue's schedules: store, list, pause, trigger and backfill them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, Unpack

from msgspec import Struct
from msgspec.structs import replace

from tampu.errors import DecodeError, OptionError, ServerBusy
from tampu.limits.model import NO_NAMED, NamedLimits
from tampu.limits.placing import Placement, find_place
from tampu.producer.request import Request
from tampu.schedules.model import (
    Schedule,
    ScheduleCounts,
    ScheduleOptions,
    ScheduleSettings,
    check_rule,
)
from tampu.schedules.storing import ArmedSchedule, NewSchedule, StoredSchedule, read_schedule
from tampu.server.scripts.schedules import (
    Armed,
    NewSpec,
    list_armed,
    pause,
    read_snapshot,
    resume,
    spec_fields,
    unschedule,
    upsert,
)
from tampu.server.streams import server_time_ms
from tampu.timing import Rule
from tampu.util.clock import instant, instant_if_any, instant_ms
from tampu.util.options import at_least, parse_options
from tampu.wire.fields import decode_text, encode_name
from tampu.wire.names import check_job_name, check_schedule_key
from tampu.wire.payload import decode_payload, encode_payload
from tampu.wire.schedule import FIRED, MISSED, OUTSIDE, OVERLAPPED, OWN, PAUSED, SPEC, decode_count

if TYPE_CHECKING:
    from tampu.job import Job
    from tampu.server.lane import Lane
    from tampu.server.scripts.schedules import (
        RawFields,
        ScheduleSnapshot,
    )
    from tampu.wire.extras import Extras
    from tampu.wire.keys import QueueKeys

Key = str | bytes
"""The key of a schedule. Use bytes for a peer's key that is not valid text."""
Jobs: TypeAlias = "list[Job[Any]]"
Found: TypeAlias = "list[Schedule]"
Instants: TypeAlias = "list[datetime]"
_FIELDS: Final = (SPEC, OWN, FIRED, MISSED, OVERLAPPED, OUTSIDE, PAUSED)
_NO_COUNTS: Final[RawFields] = [None] * 5
_MAX_TRIES: Final = 20
_MAX_STEPS: Final = 10_000  # in case a rule never meets its window


class HasLane(Protocol):
    """What is needed of a connected queue."""

    @property
    def lane(self) -> Lane:
        """The lane to the queue."""


class _FoundSchedule(Struct, frozen=True):
    """A schedule that exists and can be read."""

    schedule: StoredSchedule
    due_ms: int
    fired: int
    now_ms: int


class Schedules:
    """The schedules of a queue: rules by which workers add jobs."""

    def __init__(
        self,
        keys: QueueKeys,
        connect: Callable[[], Awaitable[HasLane]],
        *,
        max_payload: int,
        limits: NamedLimits = NO_NAMED,
        add_jobs: Callable[[list[Request]], Awaitable[Jobs]],
        headers: Callable[[], dict[str, str]] | None = None,
    ) -> None:
        self._keys = keys
        self._connect = connect
        self._max_payload = max_payload
        self._limits = limits  # that were declared under a name
        self._add_jobs = add_jobs
        self._headers = headers or dict  # what fired jobs carry: empty without telemetry

    async def add(
        self, name: str, rule: Rule, data: object = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Store a schedule: workers add a job at each instant of `Every(...)` or `Cron(...)`.

        It replaces a schedule with the same key. If rule and start are the same, the next instant
        and the counts are kept; otherwise they start again. A paused schedule stays paused.
        """
        settings = parse_options(ScheduleSettings, "a schedule", options)
        checked = check_rule(rule, settings)
        new = NewSchedule(
            check_job_name(name),
            checked,
            encode_payload(data, max_bytes=self._max_payload),
            settings,
            place=find_place(name, data, settings.flow, named=self._limits),
            headers=self._headers(),
        )
        return await self.store(new)

    async def list(self, limit: int = 100) -> Found:
        """The schedules, ordered by next instant. An unreadable one has a `problem`."""
        at_least("limit", limit, 1)
        lane = (await self._connect()).lane
        armed, paused = await list_armed(lane, self._keys, limit=limit)
        active = {each.key for each in armed}
        places = [(each, False) for each in armed]
        places += [(each, True) for each in paused if each.key not in active]
        places.sort(key=lambda place: place[0].due_ms or 0)
        keys = [each.key for each, _ in places[:limit]]
        found = await spec_fields(lane, self._keys, keys, fields=_FIELDS)
        return [
            _schedule(each, fields, paused=is_paused)
            for (each, is_paused), fields in zip(places, found, strict=False)
            if not (is_paused and fields and fields[0] is None)  # a peer removed it
        ]

    async def remove(self, key: Key) -> bool:
        """Remove a schedule; True if there was one. Jobs that it has added stay."""
        return await unschedule((await self._connect()).lane, self._keys, _raw_key(key))

    async def pause(self, key: Key) -> bool:
        """Stop a schedule from firing until `resume`; False if there is none or it was paused."""
        return await pause((await self._connect()).lane, self._keys, _raw_key(key))

    async def resume(self, key: Key) -> bool:
        """Let a paused schedule fire from its next instant on; skipped instants are counted."""
        raw_key = _raw_key(key)
        lane = (await self._connect()).lane
        for _ in range(_MAX_TRIES):
            look = await read_snapshot(lane, self._keys, raw_key, fields=_FIELDS)
            if look.paused is None or _next_fire(look) is None:
                return False
            next_ms, passed = _after_pause(look.paused, look)
            if await resume(lane, self._keys, look.paused, next_ms=next_ms, passed=passed):
                return True
        raise ServerBusy(lane.server.name, "CHANGED", "other programs keep changing this schedule")

    async def trigger(self, key: Key) -> Job[Any]:
        """Add one job of a schedule now. It does not count towards the schedule's limit."""
        found = await self._find(key)
        (job,) = await self._add_jobs([_request(found.schedule, found.now_ms, found.now_ms)])
        return job

    async def backfill(self, key: Key, start: datetime, end: datetime, *, max: int = 1000) -> Jobs:
        """Add a job for each instant of a schedule from `start` up to, not including, `end`.

        If there are more than `max`, raises `OptionError` and adds nothing.
        """
        at_least("max", max, 1)
        start_ms, end_ms = instant_ms("start", start), instant_ms("end", end)
        if end_ms <= start_ms:
            raise OptionError("end", end, "must be after start")
        found = await self._find(key)
        rule = found.schedule.rule.with_anchor(found.due_ms)
        count = rule.count_between(start_ms - 1, end_ms - 1)
        if count > max:
            raise OptionError("max", max, f"there are {count} instants in that time")
        window = found.schedule.window
        return await self._add_jobs(
            [
                _request(found.schedule, at_ms, found.now_ms)
                for at_ms in _between(rule, start_ms, end_ms)
                if window is None or window.contains_ms(at_ms)
            ]
        )

    async def preview(self, what: Key | Rule, n: int = 5) -> Instants:
        """The next n instants of a schedule, or of a rule if it were stored now."""
        at_least("n", n, 1)
        if isinstance(what, Rule):
            now_ms = await server_time_ms((await self._connect()).lane)
            return what.with_anchor(now_ms).next_n(n, instant(now_ms))
        found = await self._find(what)
        limit = found.schedule.spec.limit
        count = n if not limit else min(n, max(0, limit - found.fired))
        return [instant(at_ms) for at_ms in _upcoming(found, count)]

    async def store(self, new: NewSchedule) -> Schedule:
        """As `add`, for a schedule that is checked and encoded; called by apps."""
        raw_key = new.key.encode()
        lane = (await self._connect()).lane
        for _ in range(_MAX_TRIES):
            look = await read_snapshot(lane, self._keys, raw_key, fields=_FIELDS)
            armed = _next_fire(look)
            stored = _read_armed(armed, look.fields)
            kept = stored if new.keeps(stored) else None
            encoded = new.encode(kept, look.now_ms)
            first_ms = None if kept else encoded.next_ms
            spec = NewSpec(raw_key, encoded.spec, encoded.own, first_ms, encoded.line)
            known = (look.fields[0] or b"") if armed else b""
            if await upsert(lane, self._keys, spec, known=known):
                counts = look.fields[2:] if kept else _NO_COUNTS
                is_paused = look.armed is None and armed is not None
                next_armed = Armed(raw_key, b"%d" % encoded.next_ms)
                fields = [encoded.spec, encoded.own, *counts]
                return _schedule(next_armed, fields, paused=is_paused)
        raise ServerBusy(lane.server.name, "CHANGED", "other programs keep changing this schedule")

    async def _find(self, key: Key) -> _FoundSchedule:
        raw_key = _raw_key(key)
        lane = (await self._connect()).lane
        look = await read_snapshot(lane, self._keys, raw_key, fields=_FIELDS)
        armed = _next_fire(look)
        if armed is None:
            raise OptionError("key", key, "the queue has no such schedule")
        spec, own, fired = look.fields[:3]
        schedule = read_schedule(spec, own)
        due_ms = armed.due_ms
        return _FoundSchedule(
            schedule, look.now_ms if due_ms is None else due_ms, decode_count(fired), look.now_ms
        )


def _raw_key(key: Key) -> bytes:
    return key if isinstance(key, bytes) else check_schedule_key(key).encode()


def _next_fire(look: ScheduleSnapshot) -> Armed | None:
    """When a schedule fires next, or would if it were not paused; None if it does not exist.

    A paused schedule without a spec was removed by a peer.
    """
    return look.armed or (None if look.fields[0] is None else look.paused)


def _read_armed(armed: Armed | None, fields: RawFields) -> ArmedSchedule | None:
    """The stored schedule, if there is one and it can be read."""
    if armed is None or (due_ms := armed.due_ms) is None:
        return None
    try:
        return ArmedSchedule(read_schedule(fields[0], fields[1]), due_ms)
    except DecodeError:
        return None


def _after_pause(paused: Armed, look: ScheduleSnapshot) -> tuple[int | None, int]:
    """When a paused schedule is next due, and how many instants have passed."""
    due_ms, now_ms = paused.due_ms or 0, look.now_ms
    stored = _read_armed(paused, look.fields)
    if stored is None or due_ms > now_ms:
        return due_ms, 0  # an unreadable schedule goes back unchanged
    rule = stored.schedule.instants(due_ms)
    return rule.next_ms(now_ms), 1 + rule.count_between(due_ms, now_ms)


def _request(schedule: StoredSchedule, at_ms: int, now_ms: int) -> Request:
    """The job of a schedule for an instant, to be run now."""
    extras = schedule.job_extras(at_ms, now_ms)
    return Request(
        name=schedule.spec.job_name,
        data=_data(schedule),
        payload=schedule.payload,
        raw_name=encode_name(schedule.spec.job_name),
        retry=schedule.retry,
        extras=replace(extras, headers={}),  # whoever adds it has its own
        place=_place(extras),
    )


def _place(extras: Extras) -> Placement | None:
    rule = extras.rule or ""
    return None if extras.line is None else Placement(extras.line, cost=extras.cost, rule=rule)


def _data(schedule: StoredSchedule) -> object:
    try:
        return decode_payload(schedule.payload)
    except DecodeError:
        return None


def _between(rule: Rule, start_ms: int, end_ms: int) -> Iterator[int]:
    at_ms = rule.next_ms(start_ms - 1)
    while at_ms is not None and at_ms < end_ms:
        yield at_ms
        at_ms = rule.next_ms(at_ms)


def _upcoming(found: _FoundSchedule, count: int) -> list[int]:
    """The next instants that would fire."""
    rule, window = found.schedule.instants(found.due_ms), found.schedule.window
    instants: list[int] = []
    # The armed instant comes first, even if a peer set one that the rule does not have.
    at_ms = found.due_ms if _is_in_future(found) else rule.next_ms(found.now_ms)
    for _ in range(_MAX_STEPS):
        if at_ms is None or len(instants) >= count:
            break
        open_ms = at_ms if window is None else window.next_open_ms(at_ms)
        if open_ms is None:
            break
        if open_ms == at_ms:
            instants.append(at_ms)
        at_ms = rule.next_ms(max(at_ms, open_ms - 1))
    return instants


def _is_in_future(found: _FoundSchedule) -> bool:
    end_ms = found.schedule.spec.end_before_ms
    return found.now_ms < found.due_ms and (end_ms is None or found.due_ms <= end_ms)


def _schedule(armed: Armed, fields: RawFields | None, *, paused: bool) -> Schedule:
    key, due_ms = decode_text(armed.key), armed.due_ms
    next_at = None if due_ms is None else instant_if_any(due_ms)
    fields = [None] * len(_FIELDS) if fields is None else fields
    try:
        schedule = read_schedule(fields[0], fields[1])
        settings = schedule.settings()
    except (DecodeError, OptionError) as error:
        return Schedule(
            key=key, raw_key=armed.key, next_at=next_at, paused=paused, problem=str(error)
        )
    fired, missed, overlapped, outside, passed = map(decode_count, fields[2:])
    return Schedule(
        key=key,
        raw_key=armed.key,
        name=schedule.spec.job_name,
        rule=schedule.rule,
        data=_data(schedule),
        next_at=next_at,
        paused=paused,
        counts=ScheduleCounts(
            fired=fired, missed=missed, overlapped=overlapped, outside=outside, paused=passed
        ),
        settings=settings,
        declared_by=schedule.extras.declared_by or None,
    )
