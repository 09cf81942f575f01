"""What is compared: columns, cells and rows. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from benchmarks.figures import Comparison, Unit
from benchmarks.peers.catalog import OURS
from benchmarks.peers.protocol import GROUP_SIZE, RATE_PER_S, RUN_PER_VALUE, VALUES


class Column(Enum):
    """A column of a table: its title and its unit. The tables have subclasses."""

    @property
    def title(self) -> str:
        """The head of the column."""
        title: str = self.value[0]
        return title

    @property
    def unit(self) -> Unit:
        """The unit, which also says whether more or less is better."""
        unit: Unit = self.value[1]
        return unit

    @property
    def head(self) -> str:
        """The title with the unit, if it has one."""
        unit = self.unit.value.strip()
        return f"{self.title} [{unit}]" if unit else self.title

    @property
    def compared(self) -> bool:
        """Whether cells show how much better tampu is."""
        return True


class Scenario(Column):
    """The columns of the comparison of plain jobs."""

    ADD = "add one by one", Unit.PER_S
    ADD_MANY = "add many", Unit.PER_S
    CONSUME = "consume", Unit.PER_S
    DISPATCH = "add to handler", Unit.MS
    LATENESS = "lateness of delayed jobs", Unit.MS
    RESULT = "add to result", Unit.MS
    MEMORY = "server memory per job", Unit.BYTES
    CPU = "CPU time for 100 k jobs", Unit.S


class FlowScenario(Column):
    """The columns of the comparison of flow control and flows."""

    PLAIN = "plain jobs", Unit.PER_S
    PRIORITIES = "two priorities", Unit.PER_S
    SERVER = "two priorities: server CPU per job", Unit.US
    URGENT = "urgent job: p50", Unit.MS
    URGENT_WORST = "urgent job: latest of 50", Unit.MS
    OPEN_RATE = "rate never reached", Unit.PER_S
    RATE_USED = f"{RATE_PER_S}/s: share used", Unit.PERCENT
    RATE_WORST = f"{RATE_PER_S}/s: most in one second", Unit.COUNT
    JOINS = f"groups of {GROUP_SIZE} with a join", Unit.PER_S
    CONCURRENCY = f"{RUN_PER_VALUE} at a time for each of {VALUES} values", Unit.PER_S

    @property
    def compared(self) -> bool:
        """Not how well a rate is kept, where neither more nor less is better."""
        return self not in {FlowScenario.RATE_USED, FlowScenario.RATE_WORST}


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


def join_passes(first: Mapping[Column, Cell], second: Mapping[Column, Cell]) -> dict[Column, Cell]:
    """The rounds of both passes. If a scenario failed in one of them, the other one counts."""
    return {each: _join_cells(cell, second[each]) for each, cell in first.items()}


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
    cells: Mapping[Column, Cell]

    @property
    def columns(self) -> list[Column]:
        """All columns of the table that the row belongs to."""
        return list(type(next(iter(self.cells))))

    @property
    def head(self) -> str:
        """The head of the row."""
        return f"{self.title} {self.version}".rstrip()


def ratio_to_ours(rows: Sequence[Row], row: Row, scenario: Column) -> float | None:
    """How many times better tampu is; below 1 if the peer is better; None without figures."""
    ours = next((each.cells[scenario].value for each in rows if each.name == OURS), None)
    theirs = row.cells[scenario].value
    if not ours or not theirs or theirs < 0:  # below 0: a job ran too early, which is not better
        return None
    return Comparison(scenario.title, ours, row.title, theirs, unit=scenario.unit).ratio


def failed_cells(why: str, columns: Iterable[Column] = Scenario) -> dict[Column, Cell]:
    """The cells of a peer that could not run at all."""
    return {column: Cell(why=why) for column in columns}
