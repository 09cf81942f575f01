"""Durations and instants in words, for explanations and reprs."""

from typing import Final

from tampu.clock import instant

_UNITS: Final = (
    (86_400_000, "d", "day"),
    (3_600_000, "h", "hour"),
    (60_000, "m", "minute"),
    (1000, "s", "second"),
    (1, "ms", "millisecond"),
)


def short(ms: int) -> str:
    """As an option takes it, such as "1h30m"."""
    return "".join(f"{number}{letter}" for number, letter, _ in _parts(ms)) or "0s"


def spoken(ms: int) -> str:
    """As it follows the word "every": "second", "5 minutes", "1 hour 30 minutes"."""
    parts = _parts(ms)
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][2]
    return " ".join(f"{number} {word}{'s' * (number > 1)}" for number, _, word in parts)


def shown_at(ms: int) -> str:
    """An instant for people, in UTC; milliseconds only if it has any."""
    spec = "milliseconds" if ms % 1000 else "seconds"
    return instant(ms).replace(tzinfo=None).isoformat(" ", spec) + " UTC"


def _parts(ms: int) -> list[tuple[int, str, str]]:
    parts = []
    for size, letter, word in _UNITS:
        number, ms = divmod(ms, size)
        if number:
            parts.append((number, letter, word))
    return parts
