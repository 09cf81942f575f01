"""Instants and durations: the wall clock of this machine, and durations as users write them."""

import re
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Final, TypeAlias

from tampu.errors import OptionError


def now_ms() -> int:
    """Milliseconds since 1970, for stamps that people read."""
    return time_ns() // 1_000_000


def instant(ms: int) -> datetime:
    """The aware datetime of a stamp."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def instant_if_any(ms: int) -> datetime | None:
    """As `instant`, of a stamp that others wrote; None if no datetime is that far away."""
    try:
        return instant(ms)
    except (ValueError, OverflowError, OSError):
        return None


def instant_ms(option: str, moment: datetime) -> int:
    """The stamp of an aware datetime; a naive one could mean any of two dozen instants."""
    given: object = moment
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise OptionError(option, moment, "expected an aware datetime, such as datetime.now(UTC)")
    return round(given.timestamp() * 1000)


Duration: TypeAlias = timedelta | float | str
MAX_MS: Final = 10 * 366 * 86_400_000
"""Ten years: whoever asks for more has mistaken a unit."""
_ACCEPTED: Final = 'expected a timedelta, seconds, or a text such as "1h30m", from 0 to 10 years'
# Who gave a text may have had no other choice, as on the command line.
_TEXT_ACCEPTED: Final = 'expected numbers with units, such as "90s" or "1h30m", from 0 to 10 years'
_UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def to_ms(option: str, given: Duration) -> int:
    """Whole milliseconds, rounded; `OptionError` names the option if it cannot be."""
    ms = _ms(given)
    if ms is None or not 0 <= ms <= MAX_MS:
        raise OptionError(option, given, _TEXT_ACCEPTED if isinstance(given, str) else _ACCEPTED)
    return round(ms)


def to_positive_ms(option: str, given: Duration) -> int:
    """As `to_ms`, for what cannot be 0."""
    ms = to_ms(option, given)
    if ms == 0:
        raise OptionError(option, given, "must be at least a millisecond")
    return ms


def to_s(option: str, given: Duration) -> float:
    """Seconds, to the millisecond."""
    return to_ms(option, given) / 1000


def _ms(given: object) -> float | None:
    if isinstance(given, timedelta):
        return given / timedelta(milliseconds=1)
    if isinstance(given, str):
        return _text_ms(given.replace(" ", ""))
    if isinstance(given, int | float) and not isinstance(given, bool):
        return given * 1000  # NaN and infinity lie in no range either
    return None


def _text_ms(text: str) -> float | None:
    if not _WHOLE.fullmatch(text):
        return None
    return sum(float(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))
