"""A schedule between its two forms: what a user said of it, and what the wire carries."""

from datetime import timedelta
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.backoff import DEFAULT_BACKOFF
from tampu.errors import DecodeError, OptionError
from tampu.schedules.model import ScheduleSettings
from tampu.timing import Cron, Every, Missed, MissedKind, Overlap, Rule, TimeWindow
from tampu.timing.policies import CATCH_UP_MS, GRACE_MS
from tampu.timing.rule import Until
from tampu.util.clock import MAX_MS, Duration, instant, instant_ms, to_ms
from tampu.wire.envelope import RetryOverride
from tampu.wire.extras import Extras
from tampu.wire.keys import check_schedule_key
from tampu.wire.schedule import (
    CronPattern,
    EveryPattern,
    FireAll,
    MissedPolicy,
    MissedRule,
    OverlapRule,
    Pattern,
    ScheduleExtras,
    ScheduleSpec,
    WireWindow,
    decode_schedule_extras,
    digest_of_spec,
    encode_schedule_extras,
    encode_spec,
    slot_of_payload,
    spec_key,
)
from tampu.wire.schedule_reader import decode_spec

_CALENDAR_END_MS: Final = 253_402_300_799_000
_RULES_KEPT: Final = 1024
_OVERLAPS: Final = {
    OverlapRule.ALLOW: Overlap.ALLOW,
    OverlapRule.SKIP: Overlap.SKIP,
    OverlapRule.QUEUE_ONE: Overlap.QUEUE_ONE,
}
_WRITTEN_OVERLAPS: Final = {overlap: rule for rule, overlap in _OVERLAPS.items()}


class StoredSchedule(Struct, frozen=True):
    """A stored schedule, opened. `rule` has its anchor if that is known, and never an end."""

    spec: ScheduleSpec
    extras: ScheduleExtras
    rule: Every | Cron
    missed: Missed
    window: TimeWindow | None
    payload: bytes

    @property
    def retry(self) -> RetryOverride | None:
        """What its jobs say about their retries; a later peer writes that into the spec."""
        return self.extras.retry or self.spec.retry

    @property
    def overlap(self) -> Overlap:
        """How its runs may overlap."""
        return _OVERLAPS[self.extras.overlap]

    def instants(self, due_ms: int) -> Rule:
        """All instants up to the end; a grid without an anchor runs through the one due."""
        rule, end_ms = self.rule.with_anchor(due_ms), self.spec.end_before_ms
        return rule if end_ms is None else Until(rule, end_ms)

    def job_extras(self, at_ms: int) -> Extras:
        """What travels beside the job that is fired for an instant."""
        return Extras(
            timeout_ms=self.extras.timeout_ms, scheduled_at_ms=at_ms, schedule_key=self.spec.key
        )

    def settings(self) -> ScheduleSettings:
        """As a user could have given them; its key may be one that we would not take."""
        spec, extras, retry = self.spec, self.extras, self.retry
        wire = None if retry is None else retry.backoff
        return ScheduleSettings(
            missed=self.missed,
            overlap=self.overlap,
            window=self.window,
            limit=spec.limit or None,
            start=None if spec.start_after_ms is None else instant(spec.start_after_ms),
            end=None if spec.end_before_ms is None else instant(spec.end_before_ms),
            jitter=_span(extras.jitter_ms),
            attempts=(retry.max_attempts or None) if retry else None,
            backoff=None if wire is None else DEFAULT_BACKOFF.overridden(wire),
            timeout=_span(extras.timeout_ms),
        )


def read_schedule(spec: bytes | None, own: bytes | None) -> StoredSchedule:
    """The schedule in two fields of its hash; `DecodeError` if it cannot be read, or not fired."""
    if spec is None:
        raise DecodeError("repeat spec", "there is none")
    stored = decode_spec(spec)
    if max(stored.start_after_ms or 0, stored.end_before_ms or 0) > _CALENDAR_END_MS:
        raise DecodeError("repeat spec", "a time in it is beyond the calendar")
    extras = decode_schedule_extras(own, spec)
    try:
        return StoredSchedule(
            spec=stored,
            extras=extras,
            rule=_rule(stored.pattern, extras.anchor_ms),
            missed=_missed(stored.missed, extras),
            window=_window(extras.window),
            payload=stored.payload(),
        )
    except OptionError as refusal:
        raise DecodeError("repeat spec", f"its {refusal.option} {refusal.problem}") from None


class EncodedSchedule(Struct, frozen=True):
    """A schedule as bytes, ready to be stored, and when it fires first."""

    key: str
    spec: bytes
    own: bytes
    next_ms: int


class StoredPosition(Struct, frozen=True):
    """A schedule that is stored already, and the instant it is armed for."""

    repeat: StoredSchedule
    next_ms: int


class NewSchedule(Struct, frozen=True):
    """A schedule as a user wants it."""

    name: str
    rule: Every | Cron
    payload: bytes
    settings: ScheduleSettings

    @property
    def key(self) -> str:
        """The one that was given, or else made of name and rule."""
        explicit = self.settings.key or ""
        return check_schedule_key(spec_key(self.name, _pattern(self.rule), explicit=explicit))

    def keeps(self, place: StoredPosition | None) -> bool:
        """Whether what is stored has the same rule, so that it keeps its place."""
        if place is None:
            return False
        spec, rule = place.repeat.spec, self.rule
        same = _same(spec.pattern, _pattern(rule)) and spec.start_after_ms == self._start_ms
        if not same or isinstance(rule, Cron) or rule.anchor_ms is None:
            return same
        return (_anchor_of(place) - rule.anchor_ms) % rule.interval_ms == 0

    def written(self, place: StoredPosition | None, now_ms: int) -> EncodedSchedule:
        """The bytes; `OptionError` if it would never fire. `place` is given if it is kept."""
        anchor_ms = self._anchor_ms(place, now_ms)
        next_ms = self._first_ms(anchor_ms, now_ms) if place is None else place.next_ms
        settings = self.settings
        if settings.end is not None and instant_ms("end", settings.end) < next_ms:
            accepted = f"must not lie before the next instant, {instant(next_ms)}"
            raise OptionError("end", settings.end, accepted)
        spec = encode_spec(self._spec())
        own = replace(self._extras(), of=digest_of_spec(spec), anchor_ms=anchor_ms)
        return EncodedSchedule(self.key, spec, encode_schedule_extras(own), next_ms)

    @property
    def _start_ms(self) -> int | None:
        start = self.settings.start
        return None if start is None else instant_ms("start", start)

    def _anchor_ms(self, place: StoredPosition | None, now_ms: int) -> int | None:
        """Where the grid of an interval begins; None for a rule of the calendar."""
        if isinstance(self.rule, Cron):
            return None
        anchor_ms = self.rule.anchor_ms
        if anchor_ms is None and place is not None:
            anchor_ms = _anchor_of(place)
        if anchor_ms is None:
            anchor_ms = now_ms if self._start_ms is None else self._start_ms
        return anchor_ms if anchor_ms >= 0 else anchor_ms % self.rule.interval_ms

    def _first_ms(self, anchor_ms: int | None, now_ms: int) -> int:
        after_ms = now_ms if self._start_ms is None else max(now_ms, self._start_ms - 1)
        rule = self.rule if anchor_ms is None else self.rule.with_anchor(anchor_ms)
        first_ms = rule.next_ms(after_ms)
        if first_ms is None:
            raise OptionError("rule", self.rule, "has no instant that is still to come")
        return first_ms

    def _spec(self) -> ScheduleSpec:
        settings = self.settings
        return ScheduleSpec(
            key=self.key,
            job_name=self.name,
            pattern=_pattern(self.rule),
            slot=slot_of_payload(self.payload),
            limit=settings.limit,
            start_after_ms=self._start_ms,
            end_before_ms=None if settings.end is None else instant_ms("end", settings.end),
            missed=_written_missed(settings.missed),
        )

    def _extras(self) -> ScheduleExtras:
        settings, window, missed = self.settings, self.settings.window, self.settings.missed
        retry = None
        if settings.attempts is not None or settings.backoff is not None:
            backoff = None if settings.backoff is None else settings.backoff.to_wire()
            retry = RetryOverride(settings.attempts, backoff)
        return ScheduleExtras(
            window=None if window is None else WireWindow(window.tz, window.days, window.segments),
            overlap=_WRITTEN_OVERLAPS[settings.overlap],
            jitter_ms=_ms("jitter", settings.jitter) or 0,
            retry=retry,
            timeout_ms=_ms("timeout", settings.timeout),
            grace_ms=None if missed.grace_ms == GRACE_MS else missed.grace_ms,
            catch_up_ms=None if missed.catch_up_ms == CATCH_UP_MS else missed.catch_up_ms,
        )


def _anchor_of(place: StoredPosition) -> int:
    """A point of the grid that a stored interval fires on."""
    anchor_ms = place.repeat.extras.anchor_ms
    return place.next_ms if anchor_ms is None else anchor_ms


def _pattern(rule: Every | Cron) -> Pattern:
    if isinstance(rule, Cron):
        return CronPattern(rule.text, rule.tz if rule.has_zone else None)
    return EveryPattern(rule.interval_ms)


def _rule(pattern: Pattern, anchor_ms: int | None) -> Every | Cron:
    match pattern:
        case CronPattern(expression, tz):
            return _cron(expression, tz)
        case EveryPattern(interval_ms):
            every = Every(timedelta(milliseconds=min(interval_ms, MAX_MS + 1)))
            return every if anchor_ms is None else every.with_anchor(anchor_ms)


@lru_cache(_RULES_KEPT)
def _cron(expression: str, tz: str | None) -> Cron:
    """Parsing takes far longer than all else, and many schedules share a rule."""
    return Cron(expression, tz=tz)


def _same(stored: Pattern, wanted: Pattern) -> bool:
    """A zone that is left out is UTC."""
    if isinstance(stored, CronPattern) and isinstance(wanted, CronPattern):
        zones = stored.tz or "UTC", wanted.tz or "UTC"
        return stored.expression == wanted.expression and len(set(zones)) == 1
    return stored == wanted


def _missed(policy: MissedPolicy, extras: ScheduleExtras) -> Missed:
    grace_ms = GRACE_MS if extras.grace_ms is None else extras.grace_ms
    catch_up_ms = CATCH_UP_MS if extras.catch_up_ms is None else extras.catch_up_ms
    match policy:
        case FireAll(max_catchup):
            return Missed(MissedKind.ALL, max_catchup, grace_ms, catch_up_ms)
        case MissedRule.FIRE_ONCE:
            return Missed(MissedKind.ONCE, 0, grace_ms, catch_up_ms)
        case MissedRule.SKIP:
            return Missed(MissedKind.SKIP, 0, grace_ms, catch_up_ms)


def _written_missed(missed: Missed) -> MissedPolicy:
    match missed.kind:
        case MissedKind.ALL:
            return FireAll(missed.max)
        case MissedKind.ONCE:
            return MissedRule.FIRE_ONCE
        case MissedKind.SKIP:
            return MissedRule.SKIP


def _window(wire: WireWindow | None) -> TimeWindow | None:
    if wire is None:
        return None
    return TimeWindow(tz=wire.tz, days=wire.days, segments=wire.segments)


def _ms(option: str, given: Duration | None) -> int | None:
    return None if given is None else to_ms(option, given)


def _span(ms: int | None) -> timedelta | None:
    return timedelta(milliseconds=ms) if ms else None
