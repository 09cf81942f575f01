"""What is compared, and what it came to: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from benchmarks.figure import Figure, Unit
from benchmarks.peers.pins import OURS


class Scenario(Enum):
    """One column: what it is called, and its unit."""

    ADD = "add one by one", Unit.PER_S
    ADD_MANY = "add many", Unit.PER_S
    CONSUME = "consume", Unit.PER_S
    DISPATCH = "add to handler", Unit.MS
    LATENESS = "delayed job late", Unit.MS
    RESULT = "add to result", Unit.MS
    MEMORY = "server memory a job", Unit.BYTES
    CPU = "CPU s for 100 k", Unit.S

    @property
    def title(self) -> str:
        """As a column's head."""
        return self.value[0]

    @property
    def unit(self) -> Unit:
        """What is counted; says also whether more or less is better."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Cell:
    """A peer's figures of one scenario, one for each round; or why there is none."""

    rounds: tuple[float, ...] = ()
    why: str | None = None
    of: str = ""  # what they are made of: so many jobs, so many samples

    @property
    def value(self) -> float | None:
        """The median of the rounds."""
        return median(self.rounds) if self.rounds else None


def joined(first: Mapping[Scenario, Cell], again: Mapping[Scenario, Cell]) -> dict[Scenario, Cell]:
    """The rounds of both passes; what failed in one of them has those of the other."""
    return {each: _joined(first[each], again[each]) for each in Scenario}


def _joined(first: Cell, again: Cell) -> Cell:
    if not first.rounds or not again.rounds:
        return first if first.rounds else again
    return Cell(first.rounds + again.rounds, of=first.of)


@dataclass(frozen=True, slots=True)
class Row:
    """What one peer came to."""

    name: str
    title: str
    version: str
    way: str
    cells: Mapping[Scenario, Cell]

    @property
    def head(self) -> str:
        """As a row's head."""
        return f"{self.title} {self.version}".rstrip()


def ratio_to_ours(rows: Sequence[Row], row: Row, scenario: Scenario) -> float | None:
    """How many times better we are; below 1, how much better the peer is. None: nothing to say."""
    ours = next((each.cells[scenario].value for each in rows if each.name == OURS), None)
    theirs = row.cells[scenario].value
    if not ours or not theirs or theirs < 0:  # what comes too early is not better for it
        return None
    return Figure(scenario.title, ours, row.title, theirs, unit=scenario.unit).ratio


def failed(why: str) -> dict[Scenario, Cell]:
    """The cells of a peer that could not run at all."""
    return {scenario: Cell(why=why) for scenario in Scenario}
