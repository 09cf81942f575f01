"""Fires schedules when they are due."""

import logging
from collections.abc import Iterator, Sequence
from math import inf
from time import monotonic
from typing import Final

from msgspec import Struct

from tampu.errors import DecodeError, EncodeError
from tampu.metrics.facts import Firings
from tampu.schedules.storing import StoredSchedule, read_schedule
from tampu.server.scripts.schedules import (
    Armed,
    Due,
    Fired,
    Firing,
    NewFire,
    RawFields,
    due,
    fire,
    spec_fields,
)
from tampu.services.leader import LeaderContext, LeaderService, Upcoming
from tampu.timing import Overlap, Rule, decide_missed, offset_ms
from tampu.util.ids import new_ids
from tampu.wire.entry import encode_member
from tampu.wire.envelope import Envelope, encode_envelope
from tampu.wire.extras import encode_extras
from tampu.wire.fields import decode_text, encode_name
from tampu.wire.keys import QueueKeys
from tampu.wire.schedule import HELD, OWN, SPEC, decode_count

BYTES_PER_CALL: Final = 4 * 1024 * 1024
"""The limit for the jobs that one call adds, in case their payloads are large."""
_ENVELOPE_BYTES: Final = 256


class FireDecision(Struct, frozen=True, kw_only=True):
    """Which instants of a schedule fire, how many do not, and when the next one is.

    `next_ms` is in the past if there is more to fire than one call takes, and None at the end.
    """

    fires: Sequence[int] = ()
    missed: int = 0
    outside: int = 0
    overlapped: int = 0
    next_ms: int | None = None


class DueSchedule(Struct, frozen=True):
    """A schedule that is due, and the instant that waits for an earlier job, if any."""

    schedule: StoredSchedule
    due_ms: int
    held_ms: int | None = None


def decide_fires(due: DueSchedule, now_ms: int) -> FireDecision:
    """Which of the instants that are due fire now."""
    schedule, due_ms = due.schedule, due.due_ms
    end_ms = schedule.spec.end_before_ms
    if end_ms is not None and due_ms > end_ms:
        return FireDecision()
    rule = schedule.instants(due_ms)
    if schedule.overlap is Overlap.QUEUE_ONE and due.held_ms == due_ms:
        return _fire_held(rule, due_ms, now_ms)
    decision = decide_missed(rule, schedule.missed, due_ms=due_ms, now_ms=now_ms)
    most = max(1, BYTES_PER_CALL // (len(schedule.payload) + _ENVELOPE_BYTES))
    instants, (next_ms, *_) = decision.fires[:most], (*decision.fires[most:], decision.next_ms)
    inside = [at_ms for at_ms in instants if _is_inside(schedule, at_ms)]
    if schedule.overlap is Overlap.QUEUE_ONE and inside:
        # One at a time: whether the second has to wait depends on the first.
        first_ms = inside[0]
        return FireDecision(
            fires=(first_ms,),
            missed=decision.skipped,
            outside=instants.index(first_ms),
            next_ms=rule.next_ms(first_ms),
        )
    return FireDecision(
        fires=inside,
        missed=decision.skipped,
        outside=len(instants) - len(inside),
        next_ms=next_ms,
    )


def make_firing(due: DueSchedule, armed: Armed, now_ms: int, *, ids: Iterator[str]) -> Firing:
    """The decision on a schedule with the jobs that it adds. Job ids come from `ids`."""
    schedule, decision = due.schedule, decide_fires(due, now_ms)
    return Firing(
        armed=armed,
        limit=schedule.spec.limit or 0,
        overlap=schedule.extras.overlap.value,
        missed=decision.missed,
        outside=decision.outside,
        overlapped=decision.overlapped,
        next_ms=decision.next_ms,
        fires=[_new_fire(due, at_ms, now_ms, job_id=next(ids)) for at_ms in decision.fires],
    )


def _fire_held(rule: Rule, held_ms: int, now_ms: int) -> FireDecision:
    """Fire the instant that waited, however late; those that passed meanwhile do not fire."""
    return FireDecision(
        fires=(held_ms,),
        overlapped=rule.count_between(held_ms, now_ms),
        next_ms=rule.next_ms(now_ms),
    )


def _is_inside(schedule: StoredSchedule, at_ms: int) -> bool:
    return schedule.window is None or schedule.window.contains_ms(at_ms)


def _new_fire(due: DueSchedule, at_ms: int, now_ms: int, *, job_id: str) -> NewFire:
    schedule, spec = due.schedule, due.schedule.spec
    envelope = encode_envelope(Envelope(job_id, schedule.payload, now_ms, 0, schedule.retry))
    due_ms = at_ms
    if spread_ms := schedule.extras.jitter_ms:
        rule = schedule.rule.with_anchor(due.due_ms)
        due_ms += _offset_ms(rule, at_ms, key=spec.key, spread_ms=spread_ms)
    extras = schedule.job_extras(at_ms, max(due_ms, now_ms))
    if due_ms > now_ms:
        member = encode_member(spec.job_name, envelope, extras)
        return NewFire(at_ms, member, b"", b"", job_id, due_ms)
    name = encode_name(spec.job_name)
    return NewFire(at_ms, envelope, name, encode_extras(extras) or b"", job_id)


def _offset_ms(rule: Rule, at_ms: int, *, key: str, spread_ms: int) -> int:
    """The jitter of a fire; always less than the time to the next instant."""
    next_ms = rule.next_ms(at_ms)
    if next_ms is not None:
        spread_ms = min(spread_ms, next_ms - at_ms)
    return offset_ms(key, at_ms, spread_ms)


logger = logging.getLogger(__name__)
_BATCH: Final = 256
_FIRES_PER_CALL: Final = 1000
_HELD_S: Final = 0.1  # until a waiting instant is checked again
_UNREADABLE_S: Final = 60.0
_MAX_CACHED: Final = 20_000


class FiringService(LeaderService):
    """Fires schedules while it leads: each instant once, by the server's clock, never early."""

    name = "schedule-firer"
    peer_look_s = 1.0

    def __init__(self, context: LeaderContext) -> None:
        super().__init__(context)
        self._skip = 0  # how many due schedules at the front are resting
        self._resting: dict[Armed, float] = {}  # not to be looked at until then
        self._reported: set[bytes] = set()
        self._cache: dict[tuple[bytes | None, bytes | None], StoredSchedule] = {}

    @staticmethod
    def lock_key(keys: QueueKeys) -> bytes:
        """The lock key, shared with peers."""
        return keys.scheduler_lock

    @staticmethod
    def wakeup_key(keys: QueueKeys) -> bytes:
        """Written when a schedule is stored or resumed."""
        return keys.schedule_wakeup

    @staticmethod
    def due_key(keys: QueueKeys) -> bytes:
        """The next instant of each schedule."""
        return keys.repeat

    async def work(self) -> Upcoming:
        """Fire one batch of due schedules; the wait until the next one is due."""
        self._end_rests()
        found = await due(self._lane, self._keys, skip=self._skip, limit=_BATCH)
        ready = [armed for armed in found.schedules if armed not in self._resting]
        if not ready and len(found.schedules) == _BATCH:
            self._skip += _BATCH
            return Upcoming(0.0, None)
        self._skip = 0
        if not ready:
            return Upcoming(self._wait_s(found), found.first)
        await self._fire(ready, found.now_ms)
        return Upcoming(0.0, None)  # a schedule that has just fired may be due again

    async def _fire(self, ready: Sequence[Armed], now_ms: int) -> None:
        for part in _split(await self._decide(ready, now_ms)):
            results = await fire(
                self._lane,
                self._keys,
                holder=self._leader.holder,
                events_max_len=self._events_max_len,
                history=self._history,
                firings=part,
            )
            if results is None:
                self._leader.note_loss()
                return
            self._record(part, results)

    async def _decide(self, ready: Sequence[Armed], now_ms: int) -> list[Firing]:
        keys = [armed.key for armed in ready]
        stored = await spec_fields(self._lane, self._keys, keys, fields=(SPEC, OWN, HELD))
        firings = []
        ids = _new_ids(now_ms)
        for armed, fields in zip(ready, stored, strict=True):
            try:
                schedule = self._read(armed, fields)
                if schedule is None:
                    firings.append(Firing(armed=armed))
                else:
                    firings.append(make_firing(schedule, armed, now_ms, ids=ids))
            except (DecodeError, EncodeError) as error:
                self._set_aside(armed, error)
        return firings

    def _read(self, armed: Armed, fields: RawFields | None) -> DueSchedule | None:
        """The due schedule; None if its spec has been removed."""
        if fields is None:
            raise DecodeError("schedule spec", "its key has another type")
        due_ms = armed.due_ms
        if due_ms is None:
            raise DecodeError("schedule", "its next instant is invalid")
        spec, own, held = fields
        if spec is None:
            return None
        held_ms = None if held is None else decode_count(held)
        return DueSchedule(self._parse(spec, own), due_ms, held_ms)

    def _parse(self, spec: bytes, own: bytes | None) -> StoredSchedule:
        """Cached, because parsing a rule is slow."""
        schedule = self._cache.get((spec, own))
        if schedule is None:
            schedule = read_schedule(spec, own)
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[spec, own] = schedule
        return schedule

    def _record(self, firings: Sequence[Firing], results: Sequence[Fired]) -> None:
        """Count what fired, and let the others rest."""
        total = [0] * 5
        for firing, result in zip(firings, results, strict=True):
            if result.held or result.changed:
                # A changed schedule has another next instant or was removed.
                self._resting[firing.armed] = monotonic() + _HELD_S
                continue
            overlapped = firing.overlapped + result.met
            counts = (result.fired, firing.missed, overlapped, firing.outside, result.past)
            total = [sum(pair) for pair in zip(total, counts, strict=True)]
        self._sink.record([Firings(*total)])

    def _set_aside(self, armed: Armed, error: Exception) -> None:
        """Leave a schedule that cannot be read where it is, and log it once."""
        self._resting[armed] = monotonic() + _UNREADABLE_S
        if armed.key not in self._reported:
            self._reported.add(armed.key)
            queue, key = self._keys.name, decode_text(armed.key)
            logger.warning(
                "cannot read schedule %r of queue %s, leaving it alone: %s",
                key,
                queue,
                error,
                extra={"queue": queue, "schedule_key": key},
            )

    def _end_rests(self) -> None:
        now = monotonic()
        for armed in [armed for armed, until in self._resting.items() if until <= now]:
            del self._resting[armed]

    def _wait_s(self, found: Due) -> float:
        waits = [inf]
        if found.next_in_us is not None:
            waits.append(found.next_in_us / 1_000_000)
        if self._resting:
            waits.append(max(0.0, min(self._resting.values()) - monotonic()))
        return min(waits)


def _new_ids(now_ms: int) -> Iterator[str]:
    """Endless job ids, made in batches because that is faster."""
    while True:
        yield from new_ids(_BATCH, now_ms)


def _split(firings: Sequence[Firing]) -> list[list[Firing]]:
    """Split into calls of limited jobs and bytes, so that none blocks the server for long."""
    parts: list[list[Firing]] = []
    jobs = size = 0
    for firing in firings:
        more, heavier = len(firing.fires), sum(len(new.body) for new in firing.fires)
        if not parts or jobs + more > _FIRES_PER_CALL or size + heavier > BYTES_PER_CALL:
            parts.append([])
            jobs = size = 0
        parts[-1].append(firing)
        jobs, size = jobs + more, size + heavier
    return parts
