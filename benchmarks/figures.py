"""What a scenario measures: a comparison with a rival, or a value of tampu alone."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Final, TypeVar

T = TypeVar("T")
Round = Callable[[], Awaitable[T]]
"""Runs one round of a contender, and returns what it measured."""

ROUNDS: Final = 7
_VERDICT_WIDTH: Final = 20


class Unit(Enum):
    """The unit of a figure. More jobs per second are better; of anything else, less is better."""

    PER_S = "/s"
    MS = " ms"
    BYTES = " bytes"
    MIB = " MiB"
    PERCENT = " %"
    S = " s"
    US = " us"
    COUNT = ""

    def format(self, value: float) -> str:
        """A value as it is printed."""
        return f"{value:>9,.{0 if self is Unit.PER_S else 2}f}{self.value}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much better tampu is than a rival."""

    what: str
    ours: float
    rival: str
    theirs: float
    floor: float | None = None  # None: only recorded
    unit: Unit = Unit.PER_S

    @property
    def ratio(self) -> float:
        """Above 1 if tampu is better."""
        if self.unit is Unit.PER_S:
            return self.ours / self.theirs
        return self.theirs / self.ours

    def __str__(self) -> str:
        verdict = f"{self._verdict():{_VERDICT_WIDTH}}"
        values = f"{self.unit.format(self.ours)} against {self.unit.format(self.theirs)}"
        return f"{verdict} {self.ratio:6.2f} x {values}  {self.what}, {self.rival}"

    def _verdict(self) -> str:
        if self.floor is None:
            return ""
        return f"{'ok' if self.ratio >= self.floor else 'MISSED'} (floor {self.floor:g} x)"

    def as_json(self) -> dict[str, object]:
        """The figure as it is written to results/."""
        return {
            "what": self.what,
            "ratio": round(self.ratio, 2),
            "floor": self.floor,
            "unit": self.unit.value.strip(),
            "ours": _round_value(self.ours, self.unit),
            "rival": self.rival,
            "theirs": _round_value(self.theirs, self.unit),
        }


@dataclass(frozen=True, slots=True)
class Value:
    """A figure of tampu alone."""

    what: str
    ours: float
    unit: Unit = Unit.PER_S
    limit: float | None = None  # the highest value that is ok; None: only recorded

    def __str__(self) -> str:
        verdict = f"{self._verdict():{_VERDICT_WIDTH}}"
        return f"{verdict} {'':6}   {self.unit.format(self.ours)}  {self.what}"

    def _verdict(self) -> str:
        if self.limit is None:
            return ""
        return f"{'ok' if self.ours <= self.limit else 'MISSED'} (limit {self.limit:g})"

    def as_json(self) -> dict[str, object]:
        """The figure as it is written to results/."""
        return {
            "what": self.what,
            "unit": self.unit.value.strip(),
            "ours": _round_value(self.ours, self.unit),
            "limit": self.limit,
        }


Figure = Comparison | Value


def _round_value(value: float, unit: Unit) -> float:
    return round(value) if unit is Unit.PER_S else round(value, 3)


async def run_rounds(
    contenders: Mapping[str, Round[T]], rounds: int = ROUNDS
) -> dict[str, list[T]]:
    """What each contender measured in each round. They take turns, so noise affects all alike."""
    results: dict[str, list[T]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run_round in contenders.items():
            results[name].append(await run_round())
    return results


async def run_for_medians(
    contenders: Mapping[str, Round[float]], rounds: int = ROUNDS
) -> dict[str, float]:
    """The median of each contender's rounds."""
    return {name: median(each) for name, each in (await run_rounds(contenders, rounds)).items()}
