"""The wall clock of this machine; what decides anything uses the server's instead."""

from datetime import UTC, datetime
from time import time_ns

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
