"""Numbers and times as people read them."""

from datetime import UTC, datetime
from typing import Final

from tampu.cli.visible import visible

NOTHING: Final = "-"
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def span(seconds: float) -> str:
    """How long something is, in at most two units: 45s, 2m10s, 3d4h; below ten seconds 1.5s."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    left, told = round(seconds), ""
    for place, (unit, size) in enumerate(_UNITS):
        if left >= size:
            told = f"{left // size}{unit}"
            if place + 1 < len(_UNITS):
                smaller, smaller_size = _UNITS[place + 1]
                rest = left % size // smaller_size
                told += f"{rest}{smaller}" if rest else ""
            break
    return told


def clock(at: datetime | None) -> str:
    """An instant to the second, in UTC; for tables."""
    return NOTHING if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def stamp(at: datetime | None) -> str | None:
    """An instant to the millisecond, in UTC; for JSON."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rate(per_s: float | None) -> str:
    """How many a second; a dash where nothing tells."""
    if per_s is None:
        return NOTHING
    return f"{per_s:.1f}" if 0 < per_s < 10 else f"{per_s:.0f}"


def shortened(text: str, most: int) -> str:
    """The text in one line of at most so many characters."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def counted(number: int, noun: str) -> str:
    """A number and what it counts: 1 job, 2 jobs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
