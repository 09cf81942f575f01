"""Rules with fixed instants: a grid, or a list."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Final, Self

from tampu.errors import OptionError
from tampu.timing.rule import Rule, short, shown_at, spoken
from tampu.util.clock import Duration, instant, instant_ms, to_positive_ms


def offset_ms(key: str, at_ms: int, spread_ms: int) -> int:
    """From 0 up to the spread, the spread itself left out.

    Drawn from the schedule's key and the instant, so whoever computes it, and however often,
    gets the same. Keeping it below the gap to the next instant is the caller's business.
    """
    if spread_ms <= 0:
        return 0
    digest = blake2b(f"{at_ms}:{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) % spread_ms


_FNV_BASIS: Final = 0xCBF2_9CE4_8422_2325
_FNV_PRIME: Final = 0x100_0000_01B3


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Every(Rule):
    """An instant each time that the interval has passed, from 1 ms to 10 years.

    The grid runs through the anchor in both directions, so that lateness never shifts it. Without
    an anchor it begins at the instant it is asked from; a schedule anchors it when it is armed.
    All answers are arithmetic: a year of milliseconds costs no more than an hour.
    """

    interval_ms: int
    anchor_ms: int | None

    def __init__(self, interval: Duration, *, anchor: datetime | None = None) -> None:
        anchor_ms = None if anchor is None else instant_ms("anchor", anchor)
        object.__setattr__(self, "interval_ms", to_positive_ms("interval", interval))
        object.__setattr__(self, "anchor_ms", anchor_ms)

    def __repr__(self) -> str:
        if self.anchor_ms is None:
            return f"Every({short(self.interval_ms)!r})"
        return f"Every({short(self.interval_ms)!r}, anchor={instant(self.anchor_ms)!r})"

    def anchored(self, at_ms: int) -> Self:
        """A copy that counts from an instant; one that has an anchor keeps it."""
        if self.anchor_ms is not None:
            return self
        copy = object.__new__(type(self))
        object.__setattr__(copy, "interval_ms", self.interval_ms)
        object.__setattr__(copy, "anchor_ms", at_ms)
        return copy

    def staggered(self, seed: str) -> Self:
        """A copy that counts from a phase of its own, drawn from the seed.

        Many rules of one interval spread evenly, and a seed has the same phase in every process.
        """
        given: object = seed
        if not isinstance(given, str):
            raise OptionError("seed", seed, "expected a text, such as a task's id")
        if self.anchor_ms is not None:
            raise OptionError(
                "anchor", instant(self.anchor_ms), "cannot be had with a seed as well"
            )
        return self.anchored(_fnv_1a(given) % self.interval_ms)

    @property
    def goes_on(self) -> bool:
        """It counts the time that passes."""
        return True

    def next_ms(self, after_ms: int) -> int | None:
        """The first point of the grid strictly after."""
        return after_ms + self.interval_ms - self._past(after_ms)

    def previous_ms(self, before_ms: int) -> int | None:
        """The last point of the grid strictly before."""
        return before_ms - (self._past(before_ms) or self.interval_ms)

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """How many points lie after the first instant and up to the second."""
        return max(0, (upto_ms - after_ms + self._past(after_ms)) // self.interval_ms)

    def explain(self) -> str:
        """Such as "Every 5 minutes"."""
        if self.anchor_ms is None:
            return f"Every {spoken(self.interval_ms)}"
        return f"Every {spoken(self.interval_ms)}, counted from {shown_at(self.anchor_ms)}"

    def _past(self, at_ms: int) -> int:
        """How far an instant lies behind the last point of the grid."""
        return 0 if self.anchor_ms is None else (at_ms - self.anchor_ms) % self.interval_ms


def _fnv_1a(text: str) -> int:
    """The 64-bit hash FNV-1a: the peers draw their phases with it."""
    found = _FNV_BASIS
    for byte in text.encode("utf-8", "surrogatepass"):
        found = (found ^ byte) * _FNV_PRIME % 2**64
    return found


_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, init=False, repr=False)
class At(Rule):
    """Exactly the given instants, in order and each of them once; none at all is a rule too."""

    instants_ms: tuple[int, ...]

    def __init__(self, *instants: datetime) -> None:
        stamps = {instant_ms("instants", moment) for moment in instants}
        object.__setattr__(self, "instants_ms", tuple(sorted(stamps)))

    def __repr__(self) -> str:
        shown = [repr(instant(ms)) for ms in self.instants_ms[:_SHOWN]]
        more = len(self.instants_ms) - len(shown)
        return f"At({', '.join(shown)}{f', and {more} more' if more else ''})"

    def next_ms(self, after_ms: int) -> int | None:
        """The first of them strictly after."""
        index = bisect_right(self.instants_ms, after_ms)
        return self.instants_ms[index] if index < len(self.instants_ms) else None

    def previous_ms(self, before_ms: int) -> int | None:
        """The last of them strictly before."""
        index = bisect_left(self.instants_ms, before_ms)
        return self.instants_ms[index - 1] if index else None

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """How many of them lie after the first instant and up to the second."""
        return max(
            0, bisect_right(self.instants_ms, upto_ms) - bisect_right(self.instants_ms, after_ms)
        )

    def explain(self) -> str:
        """Such as "Once, at 2026-01-31 09:00:00 UTC"."""
        if not self.instants_ms:
            return "Never"
        first, last, count = self.instants_ms[0], self.instants_ms[-1], len(self.instants_ms)
        if count == 1:
            return f"Once, at {shown_at(first)}"
        return f"{count} times, from {shown_at(first)} to {shown_at(last)}"
