"""Whose turn it is, and when the next turn comes."""

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

_FEW: Final = 1000  # turns that do not count any more, and are not worth a look


class Dated(Protocol):
    """What has a turn of its own."""

    turn_ms: int | None


T = TypeVar("T", bound=Dated)


class Agenda(Generic[T]):
    """Turns by their instants; of each who has one, only the last that was set counts."""

    def __init__(self) -> None:
        self._turns: list[tuple[int, int, T]] = []
        self._numbers = count()
        self._most = _FEW

    def set(self, one: T, at_ms: int | None) -> None:
        """Give somebody a turn in place of the one before; None for none."""
        one.turn_ms = at_ms
        if at_ms is not None:
            heappush(self._turns, (at_ms, next(self._numbers), one))
            if len(self._turns) > self._most:
                self._tidy()

    def due(self, now_ms: int, limit: int) -> list[T]:
        """Those whose turn has come, the earliest first; they have no turn then."""
        found: list[T] = []
        turns = self._turns
        while turns and len(found) < limit and turns[0][0] <= now_ms:
            at_ms, _, one = heappop(turns)
            if one.turn_ms == at_ms:
                one.turn_ms = None
                found.append(one)
        return found

    def next_ms(self) -> int | None:
        """When the next turn comes."""
        turns = self._turns
        while turns and turns[0][2].turn_ms != turns[0][0]:
            heappop(turns)
        return turns[0][0] if turns else None

    def _tidy(self) -> None:
        """Leave out what does not count any more; each time that there is twice as much."""
        counts = {id(turn[2]): turn for turn in self._turns if turn[2].turn_ms == turn[0]}
        self._turns = list(counts.values())
        heapify(self._turns)
        self._most = 2 * len(self._turns) + _FEW
