"""Schedules, from the dicts that chasquimq takes to tampu's, and back as they are listed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Raw

from tampu.compat.adapter.dicts import count_of, dict_of, needed, needed_text, text_of
from tampu.compat.adapter.errors import as_theirs
from tampu.compat.adapter.integers import at_most
from tampu.compat.adapter.line import Line, checked_name
from tampu.compat.adapter.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
from tampu.compat.adapter.retrying import Retrying
from tampu.errors import OptionError
from tampu.schedules.model import Schedule, ScheduleOptions
from tampu.timing import Cron, Every, Missed, MissedKind
from tampu.util.clock import MAX_MS, instant_if_any, instant_ms

_ANY_AGE: Final = timedelta(milliseconds=MAX_MS)
"""chasquimq makes up for missed fires however old they are."""


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to be stored, read from a dict."""

    name: str
    rule: Every | Cron
    payload: bytes
    options: ScheduleOptions

    @classmethod
    def read(cls, spec: Mapping[str, Any], retrying: Retrying) -> "NewSchedule":
        """Take the dict apart; nothing is sent for one that cannot be."""
        name = needed_text(spec, "spec", "job_name")
        pattern = dict_of(spec, "spec", "pattern")
        if pattern is None:
            raise ValueError("spec.pattern is required")
        payload = needed(spec, "spec", "payload")
        if not isinstance(payload, bytes):
            raise ValueError("spec.payload must be `bytes`")  # noqa: TRY004 - theirs
        options: ScheduleOptions = {
            "key": text_of(spec, "spec", "key") or None,
            "limit": count_of(spec, "spec", "limit") or None,
            "missed": _missed(dict_of(spec, "spec", "missed_fires")),
            "attempts": retrying.attempts,
            "backoff": retrying.backoff,
        }
        start_ms = count_of(spec, "spec", "start_after_ms")
        end_ms = count_of(spec, "spec", "end_before_ms")
        if start_ms is not None:
            options["start"] = _start(start_ms)
        if end_ms is not None:
            options["end"] = instant_if_any(end_ms)  # beyond every datetime it is none
        return cls(checked_name(name), _rule(pattern), payload, options)

    async def store(self, line: Line) -> str:
        """Store it; its key."""
        try:
            with as_theirs():
                stored = await line.queue().schedule(
                    self.name, self.rule, Raw(self.payload), **self.options
                )
        except OptionError as refusal:
            if refusal.option != "end":
                raise
            problem = "config: repeat spec end_before_ms is before the first fire"
            raise RuntimeError(problem) from refusal
        return stored.key


async def listed(line: Line, limit: int) -> list[RepeatableMeta]:
    """The schedules of a queue by their next fires, without those that cannot be read."""
    count = at_most(limit)
    if not count:
        return []
    with as_theirs():
        schedules = await line.queue().schedules(count)
    return [
        RepeatableMeta(
            key=each.key,
            job_name=each.name,
            pattern=_pattern(each.rule),
            next_fire_ms=instant_ms("next_at", each.next_at),
            limit=each.settings.limit,
            start_after_ms=_stamp(each, "start"),
            end_before_ms=_stamp(each, "end"),
            missed_fires=_policy(each.settings.missed),
        )
        for each in schedules
        if isinstance(each.rule, Every | Cron) and each.next_at is not None
    ]


def as_dict(meta: RepeatableMeta) -> dict[str, Any]:
    """As the low-level `Producer` lists it."""
    pattern, missed = meta.pattern.to_dict(), meta.missed_fires
    if meta.pattern.kind == "cron":
        pattern["tz"] = meta.pattern.tz
    return {
        **vars(meta),
        "pattern": pattern,
        "missed_fires": None if missed is None else missed.to_dict(),
    }


def _rule(pattern: Mapping[str, Any]) -> Every | Cron:
    match needed_text(pattern, "pattern", "kind"):
        case "cron":
            if "expression" not in pattern:
                raise ValueError('cron pattern requires `expression` (e.g. "0 2 * * *")')
            expression = needed_text(pattern, "pattern", "expression")
            return _cron(expression, text_of(pattern, "pattern", "tz"))
        case "every":
            needed(pattern, "pattern", "interval_ms")
            interval_ms = count_of(pattern, "pattern", "interval_ms")
            if not interval_ms:
                raise ValueError("pattern.interval_ms must be > 0")
            if interval_ms > MAX_MS:
                raise ValueError(f"pattern.interval_ms must be at most {MAX_MS}, ten years")
            return Every(interval_ms / 1000)
        case kind:
            raise ValueError(f"unknown pattern kind \"{kind}\"; expected 'cron' or 'every'")


def _start(start_ms: int) -> datetime:
    start = instant_if_any(start_ms)
    if start is None:
        raise ValueError(f"spec.start_after_ms must be before the year 10000; got {start_ms}")
    return start


def _cron(expression: str, tz: str | None) -> Cron:
    try:
        return Cron(expression, tz=tz)
    except OptionError as refusal:
        if refusal.option == "tz":
            problem = f'config: unsupported timezone "{tz}": it {refusal.problem}'
        else:
            problem = f'config: invalid cron expression "{expression}": it {refusal.problem}'
        raise RuntimeError(problem) from refusal


def _missed(given: Mapping[str, Any] | None) -> Missed:
    if given is None:
        return Missed.SKIP
    match needed_text(given, "missed_fires", "kind"):
        case "skip":
            return Missed.SKIP
        case "fire-once":
            return Missed.ONCE.within(catch_up=_ANY_AGE)
        case "fire-all":
            return Missed.all(max=_catchup(given)).within(catch_up=_ANY_AGE)
        case kind:
            raise ValueError(
                f"unknown missed-fires kind \"{kind}\"; expected 'skip' / 'fire-once' / 'fire-all'"
            )


def _catchup(given: Mapping[str, Any]) -> int:
    most = count_of(given, "missed_fires", "max_catchup", bits=32)
    if most is None:
        raise ValueError("missed_fires.max_catchup is required when kind is 'fire-all'")
    if most < 1:
        raise ValueError(f"missed_fires.max_catchup must be a positive integer (>= 1), got {most}")
    return most


def _pattern(rule: Every | Cron) -> RepeatPattern:
    if isinstance(rule, Cron):
        return RepeatPattern.cron(rule.text, tz=rule.tz if rule.has_zone else None)
    return RepeatPattern.every(rule.interval_ms)


def _policy(missed: Missed) -> MissedFiresPolicy | None:
    match missed.kind:
        case MissedKind.SKIP:
            return None
        case MissedKind.ONCE:
            return MissedFiresPolicy.fire_once()
        case MissedKind.ALL:
            return MissedFiresPolicy.fire_all(missed.max)


def _stamp(schedule: Schedule, bound: str) -> int | None:
    moment = getattr(schedule.settings, bound)
    return None if moment is None else instant_ms(bound, moment)
