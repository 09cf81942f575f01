"""A fixed grid of instants."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from tampu.clock import instant, instant_ms
from tampu.duration import Duration, to_positive_ms
from tampu.errors import OptionError
from tampu.timing.rule import Rule
from tampu.timing.words import short, shown_at, spoken

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
