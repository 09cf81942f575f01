"""Schedules and dead letters, converted between chasquimq's dicts and tampu's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from tampu.compat.chasquimq._arguments import (
    check_limit,
    get_count,
    get_dict,
    get_text,
    require_text,
    require_value,
)
from tampu.compat.chasquimq._job_options import job_name
from tampu.compat.chasquimq.errors import translate_errors
from tampu.compat.chasquimq.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
from tampu.errors import OptionError
from tampu.timing import Cron, Every, Missed, MissedKind
from tampu.util.clock import MAX_MS, instant_if_any, instant_ms
from tampu.wire.dead import BuryReason

if TYPE_CHECKING:
    from tampu.admin.dead import DeadLetter
    from tampu.compat.chasquimq._job_options import RetryOptions
    from tampu.compat.chasquimq._lifecycle import QueuePerLoop
    from tampu.schedules.model import Schedule, ScheduleOptions

_ANY_AGE: Final = timedelta(milliseconds=MAX_MS)
"""chasquimq catches up on missed fires no matter how old they are."""

# --- storing a schedule ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """A schedule to store."""

    name: str
    rule: Every | Cron
    payload: bytes
    options: ScheduleOptions

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any], retry: RetryOptions) -> ScheduleRequest:
        """Read a schedule from a `spec` dict; raises `ValueError` if it is invalid."""
        name = require_text(spec, "spec", "job_name")
        pattern = get_dict(spec, "spec", "pattern")
        if pattern is None:
            raise ValueError("spec.pattern is required")
        payload = require_value(spec, "spec", "payload")
        if not isinstance(payload, bytes):
            raise ValueError("spec.payload must be `bytes`")  # noqa: TRY004 - as in chasquimq
        options: ScheduleOptions = {
            "key": get_text(spec, "spec", "key") or None,
            "limit": get_count(spec, "spec", "limit") or None,
            "missed": _read_missed(get_dict(spec, "spec", "missed_fires")),
            "attempts": retry.attempts,
            "backoff": retry.backoff,
        }
        start_ms = get_count(spec, "spec", "start_after_ms")
        end_ms = get_count(spec, "spec", "end_before_ms")
        if start_ms is not None:
            options["start"] = _read_start(start_ms)
        if end_ms is not None:
            options["end"] = instant_if_any(end_ms)  # after the year 9999 there is no end
        return cls(job_name(name), _read_rule(pattern), payload, options)

    async def store(self, queues: QueuePerLoop) -> str:
        """Store the schedule and return its key."""
        try:
            with translate_errors():
                stored = await queues.current().schedules.add(
                    self.name, self.rule, Raw(self.payload), **self.options
                )
        except OptionError as refusal:
            if refusal.option != "end":
                raise
            problem = "config: repeat spec end_before_ms is before the first fire"
            raise RuntimeError(problem) from refusal
        return stored.key


def _read_rule(pattern: Mapping[str, Any]) -> Every | Cron:
    match require_text(pattern, "pattern", "kind"):
        case "cron":
            if "expression" not in pattern:
                raise ValueError('cron pattern requires `expression` (e.g. "0 2 * * *")')
            expression = require_text(pattern, "pattern", "expression")
            return _read_cron(expression, get_text(pattern, "pattern", "tz"))
        case "every":
            require_value(pattern, "pattern", "interval_ms")
            interval_ms = get_count(pattern, "pattern", "interval_ms")
            if not interval_ms:
                raise ValueError("pattern.interval_ms must be > 0")
            if interval_ms > MAX_MS:
                raise ValueError(f"pattern.interval_ms must be at most {MAX_MS}, ten years")
            return Every(interval_ms / 1000)
        case kind:
            raise ValueError(f"unknown pattern kind \"{kind}\"; expected 'cron' or 'every'")


def _read_cron(expression: str, tz: str | None) -> Cron:
    try:
        return Cron(expression, tz=tz)
    except OptionError as refusal:
        if refusal.option == "tz":
            problem = f'config: unsupported timezone "{tz}": {refusal.problem}'
        else:
            problem = f'config: invalid cron expression "{expression}": {refusal.problem}'
        raise RuntimeError(problem) from refusal


def _read_start(start_ms: int) -> datetime:
    start = instant_if_any(start_ms)
    if start is None:
        raise ValueError(f"spec.start_after_ms must be before the year 10000; got {start_ms}")
    return start


def _read_missed(given: Mapping[str, Any] | None) -> Missed:
    if given is None:
        return Missed.SKIP
    match require_text(given, "missed_fires", "kind"):
        case "skip":
            return Missed.SKIP
        case "fire-once":
            return Missed.ONCE.within(catch_up=_ANY_AGE)
        case "fire-all":
            return Missed.all(max=_read_max_catchup(given)).within(catch_up=_ANY_AGE)
        case kind:
            raise ValueError(
                f"unknown missed-fires kind \"{kind}\"; expected 'skip' / 'fire-once' / 'fire-all'"
            )


def _read_max_catchup(given: Mapping[str, Any]) -> int:
    count = get_count(given, "missed_fires", "max_catchup", bits=32)
    if count is None:
        raise ValueError("missed_fires.max_catchup is required when kind is 'fire-all'")
    if count < 1:
        raise ValueError(f"missed_fires.max_catchup must be a positive integer (>= 1), got {count}")
    return count


# --- listing schedules ----------------------------------------------------------------------------


async def list_schedules(queues: QueuePerLoop, limit: int) -> list[RepeatableMeta]:
    """The queue's schedules by next fire, without those that chasquimq has no values for."""
    count = check_limit(limit)
    if not count:
        return []
    with translate_errors():
        schedules = await queues.current().schedules.list(count)
    return [
        RepeatableMeta(
            key=each.key,
            job_name=each.name,
            pattern=_rule_to_pattern(each.rule),
            next_fire_ms=instant_ms("next_at", each.next_at),
            limit=each.settings.limit,
            start_after_ms=_bound_ms(each, "start"),
            end_before_ms=_bound_ms(each, "end"),
            missed_fires=_missed_to_policy(each.settings.missed),
        )
        for each in schedules
        if isinstance(each.rule, Every | Cron) and each.next_at is not None
    ]


def meta_to_dict(meta: RepeatableMeta) -> dict[str, Any]:
    """A schedule as `Producer.list_repeatable` returns it."""
    pattern, missed = meta.pattern.to_dict(), meta.missed_fires
    if meta.pattern.kind == "cron":
        pattern["tz"] = meta.pattern.tz
    return {
        **vars(meta),
        "pattern": pattern,
        "missed_fires": None if missed is None else missed.to_dict(),
    }


def _rule_to_pattern(rule: Every | Cron) -> RepeatPattern:
    if isinstance(rule, Cron):
        return RepeatPattern.cron(rule.text, tz=rule.tz if rule.has_zone else None)
    return RepeatPattern.every(rule.interval_ms)


def _missed_to_policy(missed: Missed) -> MissedFiresPolicy | None:
    match missed.kind:
        case MissedKind.SKIP:
            return None
        case MissedKind.ONCE:
            return MissedFiresPolicy.fire_once()
        case MissedKind.ALL:
            return MissedFiresPolicy.fire_all(missed.max)


def _bound_ms(schedule: Schedule, bound: str) -> int | None:
    moment = getattr(schedule.settings, bound)
    return None if moment is None else instant_ms(bound, moment)


# --- dead letters ---------------------------------------------------------------------------------


async def peek_dead_letters(queues: QueuePerLoop, limit: int) -> list[dict[str, Any]]:
    """The oldest dead letters, which stay where they are."""
    count = check_limit(limit)
    if not count:
        return []
    with translate_errors():
        return [_dead_letter_to_dict(each) for each in await queues.current().dead.peek(count)]


async def replay_dead_letters(queues: QueuePerLoop, limit: int) -> int:
    """Put the oldest dead letters back on the queue and return how many."""
    count = check_limit(limit)
    if not count:
        return 0
    with translate_errors():
        return await queues.current().dead.replay(count)


def _dead_letter_to_dict(letter: DeadLetter) -> dict[str, Any]:
    reason = letter.reason
    return {
        "dlq_id": letter.dead_id,
        "source_id": letter.source_id,
        "reason": reason.value if isinstance(reason, BuryReason) else reason,
        "detail": letter.detail,
        "payload": b"" if reason is BuryReason.MALFORMED else letter.raw,
        "name": letter.name,
    }
