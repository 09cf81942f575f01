"""What is compared: columns, cells and rows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from benchmarks.figures import Comparison, Unit
from benchmarks.peers.catalog import OURS


class Scenario(Enum):
    """One column: its title and its unit."""

    ADD = "add one by one", Unit.PER_S
    ADD_MANY = "add many", Unit.PER_S
    CONSUME = "consume", Unit.PER_S
    DISPATCH = "add to handler", Unit.MS
    LATENESS = "lateness of delayed jobs", Unit.MS
    RESULT = "add to result", Unit.MS
    MEMORY = "server memory per job", Unit.BYTES
    CPU = "CPU time for 100 k jobs", Unit.S

    @property
    def title(self) -> str:
        """The head of the column."""
        return self.value[0]

    @property
    def unit(self) -> Unit:
        """The unit, which also says whether more or less is better."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of a peer in one scenario, one per round; or why there are none."""

    rounds: tuple[float, ...] = ()
    why: str | None = None
    of: str = ""  # how many jobs or samples a round had

    @property
    def value(self) -> float | None:
        """The median of the rounds."""
        return median(self.rounds) if self.rounds else None


def join_passes(
    first: Mapping[Scenario, Cell], second: Mapping[Scenario, Cell]
) -> dict[Scenario, Cell]:
    """The rounds of both passes. If a scenario failed in one of them, the other one counts."""
    return {each: _join_cells(first[each], second[each]) for each in Scenario}


def _join_cells(first: Cell, second: Cell) -> Cell:
    if not first.rounds or not second.rounds:
        return first if first.rounds else second
    return Cell(first.rounds + second.rounds, of=first.of)


@dataclass(frozen=True, slots=True)
class Row:
    """All figures of one peer."""

    name: str
    title: str
    version: str
    way: str
    cells: Mapping[Scenario, Cell]

    @property
    def head(self) -> str:
        """The head of the row."""
        return f"{self.title} {self.version}".rstrip()


def ratio_to_ours(rows: Sequence[Row], row: Row, scenario: Scenario) -> float | None:
    """How many times better tampu is; below 1 if the peer is better; None without figures."""
    ours = next((each.cells[scenario].value for each in rows if each.name == OURS), None)
    theirs = row.cells[scenario].value
    if not ours or not theirs or theirs < 0:  # below 0: a job ran too early, which is not better
        return None
    return Comparison(scenario.title, ours, row.title, theirs, unit=scenario.unit).ratio


def failed_cells(why: str) -> dict[Scenario, Cell]:
    """The cells of a peer that could not run at all."""
    return {scenario: Cell(why=why) for scenario in Scenario}
