"""The comparison as an SVG chart: a panel for each scenario, bars on a log scale. Pure.

Colours of medium lightness and a transparent background make it readable on white and on black.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from benchmarks.figures import Unit
from benchmarks.peers.catalog import OURS
from benchmarks.peers.comparison import Row, Scenario
from benchmarks.peers.table import format_figure

COLUMNS: Final = 2
PANEL: Final = 470  # width of a panel
LABEL: Final = 92  # width of the names
FIGURE: Final = 74  # width of the numbers after the bars
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
    """The whole chart."""
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


def scale_bounds(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around all values; the smallest bar is still visible."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    if math.log10(min(values)) - low < 0.1:
        low -= 1
    return low, max(high, low + 1)


def bar_length(value: float, low: int, high: int) -> float:
    """The length of the bar for a value, in pixels."""
    room = PANEL - LABEL - FIGURE
    return room * (math.log10(value) - low) / (high - low)


def _panel(rows: Sequence[Row], scenario: Scenario) -> Iterator[str]:
    better = "more is better" if scenario.unit is Unit.PER_S else "less is better"
    yield _text(8, 18, f"{scenario.title} [{scenario.unit.value.strip()}], {better}", bold=True)
    values = [value for row in rows if (value := row.cells[scenario].value) and value > 0]
    if not values:
        return
    low, high = scale_bounds(values)
    yield from _grid(low, high, len(rows))
    for number, row in enumerate(rows):
        value = row.cells[scenario].value
        yield from _bar(row, value, y=HEAD + number * STEP, scale=(low, high))


def _grid(low: int, high: int, rows: int) -> Iterator[str]:
    for power in range(low, high + 1):
        x = LABEL + bar_length(10.0**power, low, high)
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
        yield _text(LABEL + 4, middle, f"{format_figure(-value)} too early" if value else "none")
        return
    width = bar_length(value, *scale)
    fill = OUR_BAR if row.name == OURS else THEIR_BAR
    yield f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{fill}"/>'
    yield _text(LABEL + width + 5, middle, format_figure(value))


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight}>'
        f"{escape(text)}</text>"
    )
