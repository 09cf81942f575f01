"""Pauses between attempts: each twice as long as the one before, up to a limit."""

from random import Random
from typing import Final

_MOST_DOUBLINGS: Final = 30


class Pauses:
    """Growing pauses: `first_s`, then doubled each time, at most `longest_s`.

    With `spread`, pauses are drawn at random, so that clients that failed together do not all come
    back together: the first from 0 to its length, the others from half of theirs to all of it.
    """

    def __init__(self, first_s: float, longest_s: float, *, spread: Random | None = None) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._spread = spread
        self._count = 0

    def next_s(self, *, skip_first: bool = False) -> float:
        """The next pause in seconds. `skip_first` makes the first one 0; it still counts."""
        count, self._count = self._count, self._count + 1
        if skip_first and not count:
            return 0.0
        pause_s = min(self._longest_s, self._first_s * 2.0 ** min(count, _MOST_DOUBLINGS))
        if self._spread is None:
            return pause_s
        return self._spread.uniform(pause_s / 2 if count else 0.0, pause_s)

    def reset(self) -> None:
        """Start again with the first pause, after a success."""
        self._count = 0
