"""What a scenario measures: a ratio to a rival, or a plain value; and what each has to reach."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Final, TypeVar

T = TypeVar("T")
Way = Callable[[], Awaitable[T]]

ROUNDS: Final = 7
_WIDTH: Final = 18


class Unit(Enum):
    """What is counted. Of jobs a second more is better, of all else less."""

    PER_S = "/s"
    MS = " ms"
    BYTES = " bytes"
    MIB = " MiB"
    PERCENT = " %"
    S = " s"

    def show(self, value: float) -> str:
        """A value as it is printed."""
        return f"{value:>9,.{0 if self is Unit.PER_S else 2}f}{self.value}"


@dataclass(frozen=True, slots=True)
class Figure:
    """How much better we are than a rival at one thing."""

    what: str
    ours: float
    rival: str
    theirs: float
    floor: float | None = None  # None: measured for the record
    unit: Unit = Unit.PER_S

    @property
    def ratio(self) -> float:
        """Above 1 where we are the better one."""
        if self.unit is Unit.PER_S:
            return self.ours / self.theirs
        return self.theirs / self.ours

    def __str__(self) -> str:
        sides = f"{self.unit.show(self.ours)} against {self.unit.show(self.theirs)}"
        return f"{self._verdict():{_WIDTH}} {self.ratio:6.2f} x {sides}  {self.what}, {self.rival}"

    def _verdict(self) -> str:
        if self.floor is None:
            return ""
        return f"{'ok' if self.ratio >= self.floor else 'LESS'} (floor {self.floor:g} x)"

    def kept(self) -> dict[str, object]:
        """As it is written to results/."""
        return {
            "what": self.what,
            "ratio": round(self.ratio, 2),
            "floor": self.floor,
            "unit": self.unit.value.strip(),
            "ours": _rounded(self.ours, self.unit),
            "rival": self.rival,
            "theirs": _rounded(self.theirs, self.unit),
        }


@dataclass(frozen=True, slots=True)
class Value:
    """Something of ours alone."""

    what: str
    ours: float
    unit: Unit = Unit.PER_S
    limit: float | None = None  # the most it may be; None: measured for the record

    def __str__(self) -> str:
        return f"{self._verdict():{_WIDTH}} {'':6}   {self.unit.show(self.ours)}  {self.what}"

    def _verdict(self) -> str:
        if self.limit is None:
            return ""
        return f"{'ok' if self.ours <= self.limit else 'MORE'} (limit {self.limit:g})"

    def kept(self) -> dict[str, object]:
        """As it is written to results/."""
        return {
            "what": self.what,
            "unit": self.unit.value.strip(),
            "ours": _rounded(self.ours, self.unit),
            "limit": self.limit,
        }


Measured = Figure | Value


def _rounded(value: float, unit: Unit) -> float:
    return round(value) if unit is Unit.PER_S else round(value, 3)


async def rounds_of(ways: Mapping[str, Way[T]], rounds: int = ROUNDS) -> dict[str, list[T]]:
    """What each way came to in each round; they take turns, so that noise hits all alike."""
    results: dict[str, list[T]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            results[name].append(await way())
    return results


async def in_turns(ways: Mapping[str, Way[float]], rounds: int = ROUNDS) -> dict[str, float]:
    """The median of each way's rounds."""
    return {name: median(each) for name, each in (await rounds_of(ways, rounds)).items()}
