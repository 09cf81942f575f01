"""When a job is to run, as `Queue.add` may be told."""

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from tampu.job import JobOptions
from tampu.util.clock import MAX_MS, instant, now_ms

DelayMsLike: TypeAlias = int | float | datetime

DEFAULT_MAX_DELAY_S = 30 * 86_400
_MOST_S = MAX_MS // 1000


def when(
    delay_ms: DelayMsLike | None, delay: timedelta | None, *, max_delay_s: int | None
) -> JobOptions:
    """The delay or the instant that was given; at most one of the two may be."""
    if delay_ms is not None and delay is not None:
        raise ValueError("pass either delay_ms (int/float/datetime) or delay (timedelta), not both")
    if isinstance(delay_ms, datetime):
        return run_at(_stamp_ms(delay_ms), max_delay_s)
    if delay is not None:
        return run_in(_span_ms(delay), max_delay_s)
    return {} if delay_ms is None else run_in(_number_ms(delay_ms), max_delay_s)


def run_in(delay_ms: int, max_delay_s: int | None) -> JobOptions:
    """So many milliseconds from now; none at all is at once."""
    _check_reach(delay_ms, max_delay_s)
    return {"delay": timedelta(milliseconds=delay_ms)} if delay_ms else {}


def run_at(when_ms: int, max_delay_s: int | None) -> JobOptions:
    """At an instant; one that has passed is at once."""
    left_ms = when_ms - now_ms()
    _check_reach(left_ms, max_delay_s)
    return {"at": instant(when_ms)} if left_ms > 0 else {}


def _check_reach(delay_ms: int, max_delay_s: int | None) -> None:
    """Whole seconds are compared; 0 is as far as tampu goes, ten years."""
    given_s = DEFAULT_MAX_DELAY_S if max_delay_s is None else max_delay_s
    most_s = min(given_s or _MOST_S, _MOST_S)
    if delay_ms // 1000 > most_s:
        raise RuntimeError(f"config: delay {delay_ms // 1000}s exceeds max_delay_secs {most_s}s")


def _stamp_ms(moment: datetime) -> int:
    """A naive datetime counts as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _span_ms(delay: timedelta) -> int:
    given: object = delay
    if not isinstance(given, timedelta):
        raise TypeError(f"delay must be a datetime.timedelta; got {type(given).__name__}")
    if given < timedelta(0):
        raise ValueError(f"delay must be non-negative, got {given!r}")
    return given // timedelta(milliseconds=1)


def _number_ms(delay_ms: float) -> int:
    given: object = delay_ms
    match given:
        case timedelta():  # not in its signature, and taken all the same
            return _span_ms(given)
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
