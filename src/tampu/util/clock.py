"""Instants and durations: the clock of this machine, and durations as users write them."""

import re
from datetime import UTC, datetime, timedelta
from random import random
from time import monotonic, time_ns
from typing import Final, TypeAlias

from tampu.errors import OptionError

_frozen_ms: int | None = None


def now_ms() -> int:
    """Milliseconds since 1970, by the clock of this machine."""
    return time_ns() // 1_000_000 if _frozen_ms is None else _frozen_ms


def freeze_clock(at_ms: int | None) -> None:
    """Let `now_ms` stand still at an instant; None lets it run again. For the test kit."""
    global _frozen_ms  # noqa: PLW0603 - a process has one clock
    _frozen_ms = at_ms


def frozen_ms() -> int | None:
    """The instant at which the clock stands still; None while it runs."""
    return _frozen_ms


_PHASE: Final = random()  # noqa: S311 - spreads processes, guards nothing


def until_tick(period_s: float) -> float:
    """Seconds until the next tick of this process, one of which comes every `period_s`.

    What is done at the ticks of the same period is done together: the process wakes up once, and
    calls to a server share one write.
    """
    left_s = period_s - (monotonic() + _PHASE * period_s) % period_s
    return left_s if left_s > period_s / 10 else left_s + period_s


def instant(ms: int) -> datetime:
    """The aware datetime for milliseconds since 1970."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def instant_if_any(ms: int) -> datetime | None:
    """As `instant`, for a number that another program wrote; None if it is out of range."""
    try:
        return instant(ms)
    except (ValueError, OverflowError, OSError):
        return None


def instant_ms(option: str, moment: datetime) -> int:
    """Milliseconds since 1970 for an aware datetime. A naive one is ambiguous: `OptionError`."""
    given: object = moment
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise OptionError(option, moment, "expected an aware datetime, such as datetime.now(UTC)")
    return round(given.timestamp() * 1000)


Duration: TypeAlias = timedelta | float | str
MAX_MS: Final = 10 * 366 * 86_400_000
"""Ten years. A longer duration is more likely a mistaken unit than a wish."""
_EXPECTED: Final = (
    'expected a timedelta, a number of seconds or text such as "1h30m", from 0 to 10 years'
)
# Text may be the only choice, as on the command line.
_EXPECTED_TEXT: Final = 'expected numbers with units, such as "90s" or "1h30m", from 0 to 10 years'
UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def to_ms(option: str, given: Duration) -> int:
    """Whole milliseconds, rounded. `OptionError` names the option if it is no valid duration."""
    ms = _parse(given)
    if ms is None or not 0 <= ms <= MAX_MS:
        raise OptionError(option, given, _EXPECTED_TEXT if isinstance(given, str) else _EXPECTED)
    return round(ms)


def to_positive_ms(option: str, given: Duration) -> int:
    """As `to_ms`, and 0 is not allowed."""
    ms = to_ms(option, given)
    if ms == 0:
        raise OptionError(option, given, "must be at least one millisecond")
    return ms


def to_s(option: str, given: Duration) -> float:
    """Seconds, rounded to milliseconds."""
    return to_ms(option, given) / 1000


def _parse(given: object) -> float | None:
    if isinstance(given, timedelta):
        return given / timedelta(milliseconds=1)
    if isinstance(given, str):
        return _parse_text(given.replace(" ", ""))
    if isinstance(given, int | float) and not isinstance(given, bool):
        return given * 1000  # NaN and infinity fail the range check
    return None


def _parse_text(text: str) -> float | None:
    if not _WHOLE.fullmatch(text):
        return None
    return sum(float(number) * UNIT_MS[unit] for number, unit in _PART.findall(text))


_SPANS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def span_text(seconds: int) -> str:
    """A length of time of at least a second, in at most two units: 45s, 2m10s, 3d4h."""
    index, (unit, size) = next(each for each in enumerate(_SPANS) if seconds >= each[1][1])
    text = f"{seconds // size}{unit}"
    if index + 1 < len(_SPANS):
        smaller_unit, smaller_size = _SPANS[index + 1]
        rest = seconds % size // smaller_size
        text += f"{rest}{smaller_unit}" if rest else ""
    return text
