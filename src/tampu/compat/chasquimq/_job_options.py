"""Names, delays and retries of jobs, converted from chasquimq's arguments to tampu's options."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from tampu.backoff import DEFAULT_BACKOFF, Backoff
from tampu.compat.chasquimq._arguments import (
    get_count,
    get_dict,
    get_number,
    require_text,
    require_value,
)
from tampu.compat.chasquimq.repeat import BackoffSpec
from tampu.job import JobOptions
from tampu.util.clock import MAX_MS, instant, now_ms
from tampu.wire.envelope import BackoffKind, WireBackoff
from tampu.wire.names import MAX_JOB_NAME_BYTES

DelayMsLike: TypeAlias = int | float | datetime
BackoffLike: TypeAlias = int | BackoffSpec | dict[str, Any]

_DEFAULT_MAX_DELAY_S: Final = 30 * 86_400
_LONGEST_DELAY_S: Final = MAX_MS // 1000
_BACKOFF_KINDS: Final = frozenset(kind.value for kind in BackoffKind)


def job_name(name: str | None) -> str:
    """The job's name if it is valid; None means the empty name."""
    given: object = name or ""
    if not isinstance(given, str):
        raise ValueError("opts.name must be a string")  # noqa: TRY004 - as in chasquimq
    size = len(given.encode())
    if size > MAX_JOB_NAME_BYTES:
        raise RuntimeError(
            f"config: job name exceeds {MAX_JOB_NAME_BYTES}-byte cap (got {size} bytes)"
        )
    return given


# --- delays ---------------------------------------------------------------------------------------


def due_options(
    delay_ms: DelayMsLike | None, delay: timedelta | None, *, max_delay_s: int | None
) -> JobOptions:
    """Options for the `delay_ms` and `delay` of `Queue.add`, of which at most one may be set."""
    if delay_ms is not None and delay is not None:
        raise ValueError("pass either delay_ms (int/float/datetime) or delay (timedelta), not both")
    if isinstance(delay_ms, datetime):
        return instant_options(_timestamp_ms(delay_ms), max_delay_s)
    if delay is not None:
        return delay_options(_timedelta_ms(delay), max_delay_s)
    return {} if delay_ms is None else delay_options(_number_ms(delay_ms), max_delay_s)


def delay_options(delay_ms: int, max_delay_s: int | None) -> JobOptions:
    """Options for a delay; with 0 the job runs at once."""
    _check_max_delay(delay_ms, max_delay_s)
    return {"delay": timedelta(milliseconds=delay_ms)} if delay_ms else {}


def instant_options(when_ms: int, max_delay_s: int | None) -> JobOptions:
    """Options for an instant; if it has passed, the job runs at once."""
    delay_ms = when_ms - now_ms()
    _check_max_delay(delay_ms, max_delay_s)
    return {"at": instant(when_ms)} if delay_ms > 0 else {}


def _check_max_delay(delay_ms: int, max_delay_s: int | None) -> None:
    """Compare whole seconds. None is chasquimq's default, 0 is tampu's limit of ten years."""
    given_s = _DEFAULT_MAX_DELAY_S if max_delay_s is None else max_delay_s
    limit_s = min(given_s or _LONGEST_DELAY_S, _LONGEST_DELAY_S)
    if delay_ms // 1000 > limit_s:
        raise RuntimeError(f"config: delay {delay_ms // 1000}s exceeds max_delay_secs {limit_s}s")


def _timestamp_ms(moment: datetime) -> int:
    """Milliseconds since 1970; a naive datetime is taken as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _timedelta_ms(delay: timedelta) -> int:
    given: object = delay
    if not isinstance(given, timedelta):
        raise TypeError(f"delay must be a datetime.timedelta; got {type(given).__name__}")
    if given < timedelta(0):
        raise ValueError(f"delay must be non-negative, got {given!r}")
    return given // timedelta(milliseconds=1)


def _number_ms(delay_ms: float) -> int:
    given: object = delay_ms
    match given:
        case timedelta():  # not in the signature, but chasquimq accepts it
            return _timedelta_ms(given)
        case bool():
            raise TypeError("delay_ms must be int/float/datetime; got bool")
        case int():
            if given < 0:
                raise ValueError(f"delay_ms must be non-negative, got {given}")
            return given
        case float():
            if not math.isfinite(given) or given < 0:
                raise ValueError(f"delay_ms must be a finite non-negative number, got {given!r}")
            return int(given)
        case _:
            got = type(given).__name__
            raise TypeError(f"delay_ms must be int (ms) / float (ms) / datetime; got {got}")


# --- retries --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """Attempts and backoff of a job; None means the worker's own."""

    attempts: int | None = None
    backoff: Backoff | None = None

    def to_job_options(self) -> JobOptions:
        """The same as options of a tampu job."""
        return {"attempts": self.attempts, "backoff": self.backoff}


@dataclass(frozen=True, slots=True)
class PartialBackoff(Backoff):
    """A backoff that is sent as the caller gave it. The worker fills in what is not set."""

    wire: WireBackoff

    def to_wire(self) -> WireBackoff:
        """The fields that the caller set, and no defaults."""
        return self.wire


def retry_options(attempts: int | None, backoff: BackoffLike | None) -> RetryOptions:
    """Options for the `attempts` and `backoff` of `Queue.add`."""
    retry: dict[str, Any] = {"max_attempts": attempts}
    if backoff is not None:
        retry["backoff"] = _backoff_to_dict(backoff)
    return read_retry(retry)


def read_retry(given: Mapping[str, Any]) -> RetryOptions:
    """Options for a `retry` dict, with the keys `max_attempts` and `backoff`."""
    backoff = get_dict(given, "retry", "backoff")
    attempts = get_count(given, "retry", "max_attempts", bits=32)
    return RetryOptions(attempts, None if backoff is None else _read_backoff(backoff))


def _backoff_to_dict(backoff: BackoffLike) -> dict[str, Any]:
    given: object = backoff
    match given:
        case BackoffSpec():
            return given.to_dict()
        case dict():
            return given
        case bool():
            raise TypeError("backoff must be int / BackoffSpec / dict; got bool")
        case int():
            return {"kind": "fixed", "delay_ms": given}
        case _:
            got = type(given).__name__
            raise TypeError(f"backoff must be int (ms) / BackoffSpec / dict; got {got}")


def _read_backoff(given: Mapping[str, Any]) -> PartialBackoff:
    kind = require_text(given, "backoff", "kind")
    if kind not in _BACKOFF_KINDS:
        raise ValueError(f"unknown backoff kind \"{kind}\"; expected 'fixed' or 'exponential'")
    require_value(given, "backoff", "delay_ms")
    wire = WireBackoff(
        kind,
        get_count(given, "backoff", "delay_ms") or 0,
        get_count(given, "backoff", "max_delay_ms"),
        get_number(given, "backoff", "multiplier"),
        get_count(given, "backoff", "jitter_ms"),
    )
    full = DEFAULT_BACKOFF.with_override(wire)
    return PartialBackoff(
        full.kind, full.delay_ms, full.max_ms, full.multiplier, full.jitter_ms, wire
    )
