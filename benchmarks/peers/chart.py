"""The comparison as a picture: a panel for each scenario, bars on a log scale. Pure; SVG as text.

Its colours are of middle lightness and its ground is clear, so that it can be read on white and
on black.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from benchmarks.figure import Unit
from benchmarks.peers.pins import OURS
from benchmarks.peers.score import Row, Scenario
from benchmarks.peers.table import shown

COLUMNS: Final = 2
PANEL: Final = 470  # wide
LABEL: Final = 92  # for the names
FIGURE: Final = 74  # for the numbers behind the bars
BAR: Final = 14
STEP: Final = 19
HEAD: Final = 46
GAP: Final = 26
TOP: Final = 34

TEXT: Final = "#7b8490"
OUR_BAR: Final = "#d9822b"
THEIR_BAR: Final = "#6f8fb5"
GRID: Final = "#8a939e"


def as_svg(rows: Sequence[Row], *, title: str) -> str:
    """The whole picture."""
    panel_height = HEAD + STEP * len(rows) + GAP
    width = COLUMNS * PANEL
    height = TOP + math.ceil(len(Scenario) / COLUMNS) * panel_height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="{TEXT}">',
        f"<title>{escape(title)}</title>",
        _text(8, 20, title, size=14),
    ]
    for number, scenario in enumerate(Scenario):
        x, y = (number % COLUMNS) * PANEL, TOP + (number // COLUMNS) * panel_height
        parts.append(f'<g transform="translate({x} {y})">')
        parts += _panel(rows, scenario)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def bounds(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten that hold all values; a bar of the least one is still seen."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    if math.log10(min(values)) - low < 0.1:
        low -= 1
    return low, max(high, low + 1)


def length(value: float, low: int, high: int) -> float:
    """How long a value's bar is, of the room that there is."""
    room = PANEL - LABEL - FIGURE
    return room * (math.log10(value) - low) / (high - low)


def _panel(rows: Sequence[Row], scenario: Scenario) -> Iterator[str]:
    better = "more is better" if scenario.unit is Unit.PER_S else "less is better"
    yield _text(8, 18, f"{scenario.title} [{scenario.unit.value.strip()}], {better}", bold=True)
    values = [value for row in rows if (value := row.cells[scenario].value) and value > 0]
    if not values:
        return
    low, high = bounds(values)
    yield from _grid(low, high, len(rows))
    for number, row in enumerate(rows):
        value = row.cells[scenario].value
        yield from _bar(row, value, y=HEAD + number * STEP, scale=(low, high))


def _grid(low: int, high: int, rows: int) -> Iterator[str]:
    for power in range(low, high + 1):
        x = LABEL + length(10.0**power, low, high)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 4}" y2="{HEAD + rows * STEP}" '
            f'stroke="{GRID}" stroke-opacity="0.35"/>'
        )
        yield _text(x, HEAD - 9, _power(power), anchor="middle", size=10)


def _power(power: int) -> str:
    for above, letter in ((6, " M"), (3, " k")):
        if power >= above:
            return f"{10 ** (power - above)}{letter}"
    return f"{10.0**power:g}"


def _bar(row: Row, value: float | None, *, y: float, scale: tuple[int, int]) -> Iterator[str]:
    middle = y + BAR - 3
    yield _text(LABEL - 6, middle, row.title, anchor="end", bold=row.name == OURS)
    if not value or value < 0:
        yield _text(LABEL + 4, middle, f"{shown(-value)} too early" if value else "none")
        return
    long = length(value, *scale)
    fill = OUR_BAR if row.name == OURS else THEIR_BAR
    yield f'<rect x="{LABEL}" y="{y}" width="{long:.1f}" height="{BAR}" rx="2" fill="{fill}"/>'
    yield _text(LABEL + long + 5, middle, shown(value))


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight}>'
        f"{escape(text)}</text>"
    )
