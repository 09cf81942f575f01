"""The comparison as text for a terminal and as Markdown. Pure."""

from collections.abc import Sequence
from typing import Final

from benchmarks.peers.catalog import OURS
from benchmarks.peers.comparison import Column, Row, ratio_to_ours

LEGEND: Final = (
    "x: how many times better tampu is (more jobs per second; less time, memory, CPU). "
    "Below 1 the peer is better."
)


def format_figure(value: float) -> str:
    """A figure with three digits; thousands as k."""
    if value >= 1000:
        return f"{_digits(value / 1000)} k"
    return _digits(value)


def _digits(value: float) -> str:
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"


def reasons(rows: Sequence[Row]) -> list[str]:
    """Why cells are empty, each reason once. A cell refers to its position in this list."""
    whys = (row.cells[column].why for row in rows for column in row.columns)
    return list(dict.fromkeys(why for why in whys if why is not None))


def cell_text(rows: Sequence[Row], row: Row, scenario: Column) -> str:
    """The figure and its ratio to ours, or the number of the reason why there is none."""
    cell = row.cells[scenario]
    if cell.value is None:
        return f"none [{reasons(rows).index(cell.why) + 1}]" if cell.why else "none"
    ratio = ratio_to_ours(rows, row, scenario)
    if cell.value < 0:
        return f"{format_figure(-cell.value)} too early"
    if ratio is None or row.name == OURS or not scenario.compared:
        return format_figure(cell.value)
    return f"{format_figure(cell.value)} ({_digits(ratio)} x)"


def grid(rows: Sequence[Row]) -> list[list[str]]:
    """The heads and cells of the table, as texts."""
    columns = rows[0].columns
    head = ["", *(each.head for each in columns)]
    return [head, *([row.head, *(cell_text(rows, row, each) for each in columns)] for row in rows)]


def notes(rows: Sequence[Row]) -> list[str]:
    """The reasons that empty cells refer to, and how each peer was run."""
    texts = [f"[{number}] {why}" for number, why in enumerate(reasons(rows), 1)]
    return texts + [f"{row.title}: {row.way}" for row in rows]


def as_text(rows: Sequence[Row]) -> str:
    """The table and its notes for a terminal."""
    lines = grid(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    ]
    return "\n".join([*aligned, "", LEGEND, *notes(rows)])


def as_markdown(rows: Sequence[Row], *, about: str) -> str:
    """The table, the conditions (`about`) and the notes for a README."""
    head, *body = grid(rows)
    lines = [_line(head), _line(["---", *["--:"] * (len(head) - 1)]), *map(_line, body)]
    listed = [f"- {note}" for note in notes(rows)]
    return "\n".join([*lines, "", about, LEGEND, "", *listed, ""])


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"
