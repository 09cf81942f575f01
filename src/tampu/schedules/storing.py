"""Converts schedules between what users write and what is stored."""

from datetime import timedelta
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.backoff import DEFAULT_BACKOFF
from tampu.errors import DecodeError, OptionError
from tampu.limits.placing import Placement, encode_definitions
from tampu.schedules.model import ScheduleSettings
from tampu.server.scripts.schedules import NewLine
from tampu.timing import Cron, Every, Missed, MissedKind, Overlap, Rule, TimeWindow
from tampu.timing.policies import CATCH_UP_MS, GRACE_MS
from tampu.timing.rule import Until
from tampu.util.clock import MAX_MS, Duration, instant, instant_ms, to_ms
from tampu.wire.envelope import RetryOverride
from tampu.wire.extras import Extras
from tampu.wire.lines import parse_line
from tampu.wire.names import check_schedule_key
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
_CACHED_RULES: Final = 1024
_OVERLAPS: Final = {
    OverlapRule.ALLOW: Overlap.ALLOW,
    OverlapRule.SKIP: Overlap.SKIP,
    OverlapRule.QUEUE_ONE: Overlap.QUEUE_ONE,
}
_OVERLAP_RULES: Final = {overlap: rule for rule, overlap in _OVERLAPS.items()}


class StoredSchedule(Struct, frozen=True):
    """A schedule read from the server. `rule` has its anchor if that is known, but no end."""

    spec: ScheduleSpec
    extras: ScheduleExtras
    rule: Every | Cron
    missed: Missed
    window: TimeWindow | None
    payload: bytes

    @property
    def retry(self) -> RetryOverride | None:
        """Retry settings of its jobs. Later peers store them in the spec."""
        return self.extras.retry or self.spec.retry

    @property
    def overlap(self) -> Overlap:
        """The overlap policy."""
        return _OVERLAPS[self.extras.overlap]

    def instants(self, due_ms: int) -> Rule:
        """All instants up to the end. An interval without an anchor counts from the due one."""
        rule, end_ms = self.rule.with_anchor(due_ms), self.spec.end_before_ms
        return rule if end_ms is None else Until(rule, end_ms)

    def job_extras(self, at_ms: int, due_ms: int) -> Extras:
        """The extras of the job that fires for an instant, and is to run at `due_ms`."""
        expires_ms = self.extras.expires_ms
        return Extras(
            line=self.extras.line,
            deadline_ms=None if expires_ms is None else due_ms + expires_ms,
            cost=self.extras.cost,
            rule=self.extras.rule,
            timeout_ms=self.extras.timeout_ms,
            scheduled_at_ms=at_ms,
            schedule_key=self.spec.key,
            headers=self.extras.headers,
        )

    def settings(self) -> ScheduleSettings:
        """The settings, without the key, which may be a peer's and invalid for us.

        Weight and limits are not here: the queue has them, and they may be changed there.
        """
        spec, extras, retry = self.spec, self.extras, self.retry
        line = None if extras.line is None else parse_line(extras.line)
        wire = None if retry is None else retry.backoff
        return ScheduleSettings(
            missed=self.missed,
            overlap=self.overlap,
            window=self.window,
            limit=spec.limit or None,
            start=None if spec.start_after_ms is None else instant(spec.start_after_ms),
            end=None if spec.end_before_ms is None else instant(spec.end_before_ms),
            jitter=_timedelta(extras.jitter_ms),
            attempts=(retry.max_attempts or None) if retry else None,
            backoff=None if wire is None else DEFAULT_BACKOFF.with_override(wire),
            timeout=_timedelta(extras.timeout_ms),
            expires=_timedelta(extras.expires_ms),
            priority=None if line is None else line.level,
            job_key=None if line is None else line.key,
            ordered=None if line is None else line.is_ordered,
            cost=extras.cost,
        )


def read_schedule(spec: bytes | None, own: bytes | None) -> StoredSchedule:
    """The schedule in two fields of its hash; `DecodeError` if it cannot be read or fired."""
    if spec is None:
        raise DecodeError("schedule spec", "it is missing")
    stored = decode_spec(spec)
    if max(stored.start_after_ms or 0, stored.end_before_ms or 0) > _CALENDAR_END_MS:
        raise DecodeError("schedule spec", "a time is out of range")
    extras = decode_schedule_extras(own, spec)
    try:
        return StoredSchedule(
            spec=stored,
            extras=extras,
            rule=_rule(stored.pattern, extras.anchor_ms),
            missed=_missed_options(stored.missed, extras),
            window=_window(extras.window),
            payload=stored.payload(),
        )
    except OptionError as error:
        raise DecodeError("schedule spec", f"{error.option}: {error.problem}") from None


class EncodedSchedule(Struct, frozen=True):
    """A schedule in bytes, ready to store, and its next instant."""

    key: str
    spec: bytes
    own: bytes
    next_ms: int
    line: NewLine | None


class ArmedSchedule(Struct, frozen=True):
    """A stored schedule and the instant that it is armed for."""

    schedule: StoredSchedule
    next_ms: int


class NewSchedule(Struct, frozen=True):
    """A schedule to store, as the user defined it."""

    name: str
    rule: Every | Cron
    payload: bytes
    settings: ScheduleSettings
    place: Placement | None = None  # where its jobs wait, if flow control applies to them
    declared_by: str = ""
    headers: dict[str, str] = {}  # of its jobs

    @property
    def key(self) -> str:
        """The given key, or one derived from the name and the rule."""
        explicit = self.settings.key or ""
        return check_schedule_key(spec_key(self.name, _pattern(self.rule), explicit=explicit))

    def keeps(self, stored: ArmedSchedule | None) -> bool:
        """Whether the stored schedule has the same rule, so that its next instant stays."""
        if stored is None:
            return False
        spec, rule = stored.schedule.spec, self.rule
        same = _is_same(spec.pattern, _pattern(rule)) and spec.start_after_ms == self._start_ms
        if not same or isinstance(rule, Cron) or rule.anchor_ms is None:
            return same
        return (_anchor_of(stored) - rule.anchor_ms) % rule.interval_ms == 0

    def encode(self, kept: ArmedSchedule | None, now_ms: int) -> EncodedSchedule:
        """The bytes to store; `OptionError` if it would never fire.

        `kept` is the stored schedule whose next instant stays.
        """
        anchor_ms = self._anchor_ms(kept, now_ms)
        next_ms = self._first_ms(anchor_ms, now_ms) if kept is None else kept.next_ms
        settings = self.settings
        if settings.end is not None and instant_ms("end", settings.end) < next_ms:
            problem = f"must not be before the next instant, {instant(next_ms)}"
            raise OptionError("end", settings.end, problem)
        spec = encode_spec(self._spec())
        own = replace(self._extras(), of=digest_of_spec(spec), anchor_ms=anchor_ms)
        return EncodedSchedule(self.key, spec, encode_schedule_extras(own), next_ms, self._line)

    @property
    def _line(self) -> NewLine | None:
        place = self.place
        if place is None:
            return None
        flags = b"".join(sorted(place.flags(expires=self.settings.expires is not None)))
        limits = encode_definitions(dict(place.limits))
        return NewLine(place.line.encode(), place.weight_text, limits, flags)

    @property
    def _start_ms(self) -> int | None:
        start = self.settings.start
        return None if start is None else instant_ms("start", start)

    def _anchor_ms(self, kept: ArmedSchedule | None, now_ms: int) -> int | None:
        """The instant that an interval counts from; None for a cron rule."""
        if isinstance(self.rule, Cron):
            return None
        anchor_ms = self.rule.anchor_ms
        if anchor_ms is None and kept is not None:
            anchor_ms = _anchor_of(kept)
        if anchor_ms is None:
            anchor_ms = now_ms if self._start_ms is None else self._start_ms
        return anchor_ms if anchor_ms >= 0 else anchor_ms % self.rule.interval_ms

    def _first_ms(self, anchor_ms: int | None, now_ms: int) -> int:
        after_ms = now_ms if self._start_ms is None else max(now_ms, self._start_ms - 1)
        rule = self.rule if anchor_ms is None else self.rule.with_anchor(anchor_ms)
        first_ms = rule.next_ms(after_ms)
        if first_ms is None:
            raise OptionError("rule", self.rule, "it has no instant in the future")
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
            missed=_missed_policy(settings.missed),
        )

    def _extras(self) -> ScheduleExtras:
        settings, window, missed = self.settings, self.settings.window, self.settings.missed
        place, retry = self.place, None
        if settings.attempts is not None or settings.backoff is not None:
            backoff = None if settings.backoff is None else settings.backoff.to_wire()
            retry = RetryOverride(settings.attempts, backoff)
        return ScheduleExtras(
            window=None if window is None else WireWindow(window.tz, window.days, window.segments),
            overlap=_OVERLAP_RULES[settings.overlap],
            jitter_ms=_ms("jitter", settings.jitter) or 0,
            retry=retry,
            timeout_ms=_ms("timeout", settings.timeout),
            expires_ms=_ms("expires", settings.expires),
            line=None if place is None else place.line,
            cost=None if place is None else place.cost,
            rule=None if place is None else place.own_rule,
            grace_ms=None if missed.grace_ms == GRACE_MS else missed.grace_ms,
            catch_up_ms=None if missed.catch_up_ms == CATCH_UP_MS else missed.catch_up_ms,
            declared_by=self.declared_by,
            headers=self.headers,
        )


def _anchor_of(stored: ArmedSchedule) -> int:
    """An instant that a stored interval counts from."""
    anchor_ms = stored.schedule.extras.anchor_ms
    return stored.next_ms if anchor_ms is None else anchor_ms


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


@lru_cache(_CACHED_RULES)
def _cron(expression: str, tz: str | None) -> Cron:
    """Cached, because parsing is slow and many schedules share a rule."""
    return Cron(expression, tz=tz)


def _is_same(stored: Pattern, wanted: Pattern) -> bool:
    """Whether two patterns are equal. A missing time zone means UTC."""
    if isinstance(stored, CronPattern) and isinstance(wanted, CronPattern):
        zones = stored.tz or "UTC", wanted.tz or "UTC"
        return stored.expression == wanted.expression and len(set(zones)) == 1
    return stored == wanted


def _missed_options(policy: MissedPolicy, extras: ScheduleExtras) -> Missed:
    grace_ms = GRACE_MS if extras.grace_ms is None else extras.grace_ms
    catch_up_ms = CATCH_UP_MS if extras.catch_up_ms is None else extras.catch_up_ms
    match policy:
        case FireAll(max_catchup):
            return Missed(MissedKind.ALL, max_catchup, grace_ms, catch_up_ms)
        case MissedRule.FIRE_ONCE:
            return Missed(MissedKind.ONCE, 0, grace_ms, catch_up_ms)
        case MissedRule.SKIP:
            return Missed(MissedKind.SKIP, 0, grace_ms, catch_up_ms)


def _missed_policy(missed: Missed) -> MissedPolicy:
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


def _timedelta(ms: int | None) -> timedelta | None:
    return timedelta(milliseconds=ms) if ms else None
