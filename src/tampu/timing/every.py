"""Rules with a fixed grid (`Every`) or a list of instants (`At`), and the jitter of a run."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Final, Self

from tampu.errors import OptionError
from tampu.timing.rule import Rule, duration_text, instant_text, interval_words
from tampu.util.clock import Duration, instant, instant_ms, to_positive_ms

_FNV_BASIS: Final = 0xCBF2_9CE4_8422_2325
_FNV_PRIME: Final = 0x100_0000_01B3
_MOST_IN_REPR: Final = 3


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Every(Rule):
    """Instants at a fixed interval, from 1 ms to 10 years.

        Every("90s")
        Every(timedelta(hours=1), anchor=datetime(2026, 1, 1, tzinfo=UTC))  # on the hour

    The interval is a timedelta, a number of seconds or text such as "1h30m". The instants form a
    fixed grid, so a late run never shifts the runs after it. `anchor` is any point of that grid,
    in the past or in the future. Without an anchor, the grid starts when the schedule is added,
    and the first instant comes one interval later; a restart keeps the grid.
    """

    interval_ms: int
    anchor_ms: int | None

    def __init__(self, interval: Duration, *, anchor: datetime | None = None) -> None:
        anchor_ms = None if anchor is None else instant_ms("anchor", anchor)
        object.__setattr__(self, "interval_ms", to_positive_ms("interval", interval))
        object.__setattr__(self, "anchor_ms", anchor_ms)

    def __repr__(self) -> str:
        if self.anchor_ms is None:
            return f"Every({duration_text(self.interval_ms)!r})"
        return f"Every({duration_text(self.interval_ms)!r}, anchor={instant(self.anchor_ms)!r})"

    def with_anchor(self, at_ms: int) -> Self:
        """A copy that counts from `at_ms`; a rule that has an anchor keeps it."""
        if self.anchor_ms is not None:
            return self
        copy = object.__new__(type(self))
        object.__setattr__(copy, "interval_ms", self.interval_ms)
        object.__setattr__(copy, "anchor_ms", at_ms)
        return copy

    def stagger(self, seed: str) -> Self:
        """A copy whose anchor is computed from `seed`.

        Many rules with the same interval and different seeds spread evenly over the interval. The
        same seed gives the same instants in every process.
        """
        given: object = seed
        if not isinstance(given, str):
            raise OptionError("seed", seed, "expected text, such as a task's id")
        if self.anchor_ms is not None:
            raise OptionError("anchor", instant(self.anchor_ms), "cannot be combined with a seed")
        return self.with_anchor(_fnv_1a(given) % self.interval_ms)

    @property
    def follows_elapsed_time(self) -> bool:
        """Always True."""
        return True

    def next_ms(self, after_ms: int) -> int | None:
        """The first point of the grid strictly after `after_ms`."""
        return after_ms + self.interval_ms - self._phase_ms(after_ms)

    def previous_ms(self, before_ms: int) -> int | None:
        """The last point of the grid strictly before `before_ms`."""
        return before_ms - (self._phase_ms(before_ms) or self.interval_ms)

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """The number of points after `after_ms` and up to `upto_ms`."""
        return max(0, (upto_ms - after_ms + self._phase_ms(after_ms)) // self.interval_ms)

    def explain(self) -> str:
        """Such as "Every 5 minutes"."""
        if self.anchor_ms is None:
            return f"Every {interval_words(self.interval_ms)}"
        words = interval_words(self.interval_ms)
        return f"Every {words}, counted from {instant_text(self.anchor_ms)}"

    def _phase_ms(self, at_ms: int) -> int:
        """The time since the last point of the grid; `at_ms` is a point if there is no anchor."""
        return 0 if self.anchor_ms is None else (at_ms - self.anchor_ms) % self.interval_ms


@dataclass(frozen=True, slots=True, init=False, repr=False)
class At(Rule):
    """Exactly the given instants.

        At(datetime(2026, 1, 31, 9, tzinfo=UTC))

    Takes any number of aware datetimes, in any order; duplicates count once. A task whose list is
    empty ends at once.
    """

    instants_ms: tuple[int, ...]

    def __init__(self, *instants: datetime) -> None:
        unique_ms = {instant_ms("instants", moment) for moment in instants}
        object.__setattr__(self, "instants_ms", tuple(sorted(unique_ms)))

    def __repr__(self) -> str:
        first = [repr(instant(ms)) for ms in self.instants_ms[:_MOST_IN_REPR]]
        more = len(self.instants_ms) - len(first)
        return f"At({', '.join(first)}{f', and {more} more' if more else ''})"

    def next_ms(self, after_ms: int) -> int | None:
        """The first instant strictly after `after_ms`."""
        index = bisect_right(self.instants_ms, after_ms)
        return self.instants_ms[index] if index < len(self.instants_ms) else None

    def previous_ms(self, before_ms: int) -> int | None:
        """The last instant strictly before `before_ms`."""
        index = bisect_left(self.instants_ms, before_ms)
        return self.instants_ms[index - 1] if index else None

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """The number of instants after `after_ms` and up to `upto_ms`."""
        return max(
            0, bisect_right(self.instants_ms, upto_ms) - bisect_right(self.instants_ms, after_ms)
        )

    def explain(self) -> str:
        """Such as "Once, at 2026-01-31 09:00:00 UTC"."""
        if not self.instants_ms:
            return "Never"
        first, last, count = self.instants_ms[0], self.instants_ms[-1], len(self.instants_ms)
        if count == 1:
            return f"Once, at {instant_text(first)}"
        return f"{count} times, from {instant_text(first)} to {instant_text(last)}"


def offset_ms(key: str, at_ms: int, spread_ms: int) -> int:
    """The jitter of one instant: from 0 to `spread_ms`, which is excluded.

    Computed from the schedule's key and the instant, so every process gets the same value every
    time. The caller keeps `spread_ms` below the gap to the next instant.
    """
    if spread_ms <= 0:
        return 0
    digest = blake2b(f"{at_ms}:{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) % spread_ms


def _fnv_1a(text: str) -> int:
    """The 64-bit hash FNV-1a, which cloudiful-scheduler uses for its staggered intervals."""
    found = _FNV_BASIS
    for byte in text.encode("utf-8", "surrogatepass"):
        found = (found ^ byte) * _FNV_PRIME % 2**64
    return found
