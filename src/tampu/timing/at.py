"""A finite set of instants."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tampu.clock import instant, instant_ms
from tampu.timing.rule import Rule
from tampu.timing.words import shown_at

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
