"""Fires schedules when they are due."""

import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

from msgspec import Struct

from tampu.errors import DecodeError, EncodeError
from tampu.metrics.facts import Firings
from tampu.metrics.sinks import Teller
from tampu.schedules.storing import StoredSchedule, read_schedule
from tampu.server.lane import Lane
from tampu.server.scripts.schedules import (
    Armed,
    Due,
    Fired,
    Firing,
    NewFire,
    RawFields,
    due,
    fields_of_specs,
    fire,
)
from tampu.services.leader import LeaderService
from tampu.timing import Overlap, Rule, decide_missed, offset_ms
from tampu.util.ids import new_ids
from tampu.wire.entry import encode_member
from tampu.wire.envelope import Envelope, encode_envelope
from tampu.wire.extras import encode_extras
from tampu.wire.fields import encode_name, show_text
from tampu.wire.holders import LockHolder
from tampu.wire.keys import QueueKeys
from tampu.wire.schedule import HELD, OWN, SPEC, decode_count

BYTES_A_CALL: Final = 4 * 1024 * 1024
"""Of the jobs that one call adds: those of a large payload must not pile up."""
_BESIDE_PAYLOAD: Final = 256


class Ruling(Struct, frozen=True, kw_only=True):
    """Which instants of a schedule fire, how many others there were, and when the next comes.

    `next_ms` is past if there is more to fire than at once, and None when there is no more.
    """

    fires: Sequence[int] = ()
    missed: int = 0
    outside: int = 0
    overlapped: int = 0
    next_ms: int | None = None


class Standing(Struct, frozen=True):
    """A schedule that is due: what it is, its instant, and the one that has been waiting."""

    repeat: StoredSchedule
    due_ms: int
    held_ms: int | None = None


def judge(standing: Standing, now_ms: int) -> Ruling:
    """What fires of all that was due up to now."""
    repeat, due_ms = standing.repeat, standing.due_ms
    end_ms = repeat.spec.end_before_ms
    if end_ms is not None and due_ms > end_ms:
        return Ruling()
    rule = repeat.instants(due_ms)
    if repeat.overlap is Overlap.QUEUE_ONE and standing.held_ms == due_ms:
        return _released(rule, due_ms, now_ms)
    decision = decide_missed(rule, repeat.missed, due_ms=due_ms, now_ms=now_ms)
    most = max(1, BYTES_A_CALL // (len(repeat.payload) + _BESIDE_PAYLOAD))
    instants, (next_ms, *_) = decision.fires[:most], (*decision.fires[most:], decision.next_ms)
    inside = [at_ms for at_ms in instants if _is_inside(repeat, at_ms)]
    if repeat.overlap is Overlap.QUEUE_ONE and inside:
        # One at a time: whether the second one has to wait depends on the first.
        first_ms = inside[0]
        return Ruling(
            fires=(first_ms,),
            missed=decision.skipped,
            outside=instants.index(first_ms),
            next_ms=rule.next_ms(first_ms),
        )
    return Ruling(
        fires=inside,
        missed=decision.skipped,
        outside=len(instants) - len(inside),
        next_ms=next_ms,
    )


def firing_of(standing: Standing, armed: Armed, now_ms: int, *, ids: Iterator[str]) -> Firing:
    """The ruling on a schedule, with the jobs that it adds; they take their ids from `ids`."""
    repeat, ruling = standing.repeat, judge(standing, now_ms)
    return Firing(
        armed=armed,
        limit=repeat.spec.limit or 0,
        overlap=repeat.extras.overlap.value,
        missed=ruling.missed,
        outside=ruling.outside,
        overlapped=ruling.overlapped,
        next_ms=ruling.next_ms,
        fires=[_job(standing, at_ms, now_ms, job_id=next(ids)) for at_ms in ruling.fires],
    )


def _released(rule: Rule, held_ms: int, now_ms: int) -> Ruling:
    """The instant that waited fires, however late; those that passed meanwhile do not."""
    return Ruling(
        fires=(held_ms,),
        overlapped=rule.count_between(held_ms, now_ms),
        next_ms=rule.next_ms(now_ms),
    )


def _is_inside(repeat: StoredSchedule, at_ms: int) -> bool:
    return repeat.window is None or repeat.window.contains_ms(at_ms)


def _job(standing: Standing, at_ms: int, now_ms: int, *, job_id: str) -> NewFire:
    repeat, spec = standing.repeat, standing.repeat.spec
    envelope = encode_envelope(Envelope(job_id, repeat.payload, now_ms, 0, repeat.retry))
    extras, due_ms = repeat.job_extras(at_ms), at_ms
    if spread_ms := repeat.extras.jitter_ms:
        rule = repeat.rule.with_anchor(standing.due_ms)
        due_ms += _offset_ms(rule, at_ms, key=spec.key, spread_ms=spread_ms)
    if due_ms > now_ms:
        member = encode_member(spec.job_name, envelope, extras)
        return NewFire(at_ms, member, b"", b"", job_id, due_ms)
    name, beside = encode_name(spec.job_name), encode_extras(extras) or b""
    return NewFire(at_ms, envelope, name, beside, job_id)


def _offset_ms(rule: Rule, at_ms: int, *, key: str, spread_ms: int) -> int:
    """How late a fire is on purpose; never as late as the next instant."""
    next_ms = rule.next_ms(at_ms)
    if next_ms is not None:
        spread_ms = min(spread_ms, next_ms - at_ms)
    return offset_ms(key, at_ms, spread_ms)


logger = logging.getLogger(__name__)
_BATCH: Final = 256
_FIRES_A_CALL: Final = 1000
_LOOK_AGAIN_S: Final = 1.0  # a peer that stores a schedule does not ring
_HELD_S: Final = 0.1  # until an instant that waits is looked at again
_UNREADABLE_S: Final = 60.0
_MOST_KNOWN: Final = 20_000


class FiringService(LeaderService):
    """Fires while it leads: each instant once, by the server's clock, never early."""

    name = "repeater"

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        holder: LockHolder,
        events_max_len: int,
        teller: Teller,
    ) -> None:
        super().__init__(lane, keys, holder=holder, events_max_len=events_max_len, teller=teller)
        self._skip = 0  # so many of those that are due rest, as far as we have looked
        self._resting: dict[Armed, float] = {}  # left where they are, and until when
        self._reported: set[bytes] = set()
        self._known: dict[tuple[bytes | None, bytes | None], StoredSchedule] = {}

    @staticmethod
    def lock_of(keys: QueueKeys) -> bytes:
        """The key that peers use too."""
        return keys.scheduler_lock

    @staticmethod
    def bell_of(keys: QueueKeys) -> bytes:
        """Rung by who stores or resumes a schedule."""
        return keys.schedule_bell

    async def work(self) -> float:
        """Fire one batch of what is due; the wait until the next schedule is."""
        self._wake_rested()
        found = await due(self._lane, self._keys, skip=self._skip, limit=_BATCH)
        ready = [armed for armed in found.schedules if armed not in self._resting]
        if not ready and len(found.schedules) == _BATCH:
            self._skip += _BATCH
            return 0.0
        self._skip = 0
        if not ready:
            return self._wait_s(found)
        await self._attend(ready, found.now_ms)
        return 0.0  # look from the start once more: what has fired may be due again already

    async def _attend(self, ready: Sequence[Armed], now_ms: int) -> None:
        for part in _parts(await self._decided(ready, now_ms)):
            results = await fire(
                self._lane,
                self._keys,
                holder=self._leader.holder,
                events_max_len=self._events_max_len,
                firings=part,
            )
            if results is None:
                self._leader.lost()
                return
            self._note(part, results)

    async def _decided(self, ready: Sequence[Armed], now_ms: int) -> list[Firing]:
        keys = [armed.key for armed in ready]
        stored = await fields_of_specs(self._lane, self._keys, keys, fields=(SPEC, OWN, HELD))
        firings = []
        ids = _new_ids(now_ms)
        for armed, fields in zip(ready, stored, strict=True):
            try:
                standing = self._standing(armed, fields)
                if standing is None:
                    firings.append(Firing(armed=armed))
                else:
                    firings.append(firing_of(standing, armed, now_ms, ids=ids))
            except (DecodeError, EncodeError) as problem:
                self._set_aside(armed, problem)
        return firings

    def _standing(self, armed: Armed, fields: RawFields | None) -> Standing | None:
        """What is due; None if it was removed a moment ago, or only its place is left."""
        if fields is None:
            raise DecodeError("repeat spec", "its key holds something else")
        due_ms = armed.due_ms
        if due_ms is None:
            raise DecodeError("repeat", "what it is armed for is no instant")
        spec, own, held = fields
        if spec is None:
            return None
        held_ms = None if held is None else decode_count(held)
        return Standing(self._opened(spec, own), due_ms, held_ms)

    def _opened(self, spec: bytes, own: bytes | None) -> StoredSchedule:
        """Opened once: parsing a rule takes far longer than asking it."""
        repeat = self._known.get((spec, own))
        if repeat is None:
            repeat = read_schedule(spec, own)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[spec, own] = repeat
        return repeat

    def _note(self, firings: Sequence[Firing], results: Sequence[Fired]) -> None:
        """Count what was done, and let rest what was not."""
        total = [0] * 5
        for firing, result in zip(firings, results, strict=True):
            if result.held or result.changed:
                # One that was changed is armed for another instant, or not there any more.
                self._resting[firing.armed] = monotonic() + _HELD_S
                continue
            overlapped = firing.overlapped + result.met
            counts = (result.fired, firing.missed, overlapped, firing.outside, result.past)
            total = [sum(pair) for pair in zip(total, counts, strict=True)]
        self._teller.tell(Firings(*total))

    def _set_aside(self, armed: Armed, problem: Exception) -> None:
        """Leave what cannot be read where it is; told once."""
        self._resting[armed] = monotonic() + _UNREADABLE_S
        if armed.key not in self._reported:
            self._reported.add(armed.key)
            facts = {"key": show_text(armed.key), "problem": str(problem)}
            logger.warning("a schedule cannot be read", extra=facts)

    def _wake_rested(self) -> None:
        now = monotonic()
        for armed in [armed for armed, until in self._resting.items() if until <= now]:
            del self._resting[armed]

    def _wait_s(self, found: Due) -> float:
        waits = [_LOOK_AGAIN_S]
        if found.next_in_us is not None:
            waits.append(found.next_in_us / 1_000_000)
        if self._resting:
            waits.append(max(0.0, min(self._resting.values()) - monotonic()))
        return min(waits)


def _new_ids(now_ms: int) -> Iterator[str]:
    """Ids without end; made by the batch: alone each takes far longer."""
    while True:
        yield from new_ids(_BATCH, now_ms)


def _parts(firings: Sequence[Firing]) -> list[list[Firing]]:
    """In calls of about so many jobs and bytes, so that none takes the server for long."""
    parts: list[list[Firing]] = []
    jobs = size = 0
    for firing in firings:
        more, heavier = len(firing.fires), sum(len(new.body) for new in firing.fires)
        if not parts or jobs + more > _FIRES_A_CALL or size + heavier > BYTES_A_CALL:
            parts.append([])
            jobs = size = 0
        parts[-1].append(firing)
        jobs, size = jobs + more, size + heavier
    return parts
