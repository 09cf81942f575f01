"""From which id on a relay looks. Pure: the time is an argument.

Rows that were deleted stay in the index until no old snapshot can see them, and a look from the
beginning passes all of them. So a look begins at a floor. Ids are given when a row is inserted,
not when it is committed: a row below others may come later. So the floor is a second behind, and
from time to time a look begins at 0.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

FULL_LOOK_S: Final = 10.0
TRAIL_S: Final = 1.0
_STEP_S: Final = TRAIL_S / 20


class Floor:
    """Where the next look begins."""

    def __init__(self) -> None:
        self._floor = 0
        self._last: int | None = None  # of a batch that was full: more follow it
        self._full_at = -inf
        self._moved: deque[tuple[float, int]] = deque()  # when, and up to which id

    def next_start(self, now: float) -> int:
        """The id after which to look."""
        if now >= self._full_at:
            self._full_at = now + FULL_LOOK_S
            return 0
        if self._last is not None:
            return self._last
        while self._moved and self._moved[0][0] <= now - TRAIL_S:
            self._floor = max(self._floor, self._moved.popleft()[1])
        return self._floor

    def note(self, last: int | None, now: float, *, is_full: bool) -> None:
        """A look has found rows up to this id, all done; None: it has found nothing."""
        self._last = last if is_full else None
        if last is not None and (not self._moved or now - self._moved[-1][0] >= _STEP_S):
            self._moved.append((now, last))

    def look_everywhere(self) -> None:
        """Begin the next look at 0: rows were left behind."""
        self._full_at, self._last = -inf, None
