"""One measured ratio, and the floor it has to reach."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from statistics import median

ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Figure:
    """How much faster we are than a rival at one thing."""

    what: str
    ours_per_s: float
    rival: str
    rival_per_s: float
    floor: float | None = None  # None: measured for the record

    @property
    def ratio(self) -> float:
        """Ours over the rival's."""
        return self.ours_per_s / self.rival_per_s

    def __str__(self) -> str:
        rates = f"{self.ours_per_s:>11,.0f}/s against {self.rival_per_s:>11,.0f}/s"
        return f"{self._verdict():14} {self.ratio:5.2f} x {rates}  {self.what}"

    def _verdict(self) -> str:
        if self.floor is None:
            return ""
        return f"{'ok' if self.ratio >= self.floor else 'LESS'} (floor {self.floor:g} x)"


async def in_turns(
    ways: Mapping[str, Callable[[], Awaitable[float]]], rounds: int = ROUNDS
) -> dict[str, float]:
    """The median rate of each way; they take turns, so that noise hits all alike."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(await way())
    return {name: median(each) for name, each in rates.items()}
