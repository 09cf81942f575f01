"""Charts as SVG, made on the server: pure functions from figures to markup.

No chart has a style or a script of its own: classes colour it, and `charts.js` adds the crosshair.
Axis labels are HTML beside the SVG, so that they stay readable at any width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from markupsafe import Markup

from tampu.dashboard.render import NOTHING, format_count, format_short, time_tag

Format: TypeAlias = Callable[[float | None], str]
Values: TypeAlias = Sequence[float | None]

_WIDTH: Final = 600
_HEIGHT: Final = 100
_X_LABELS: Final = 4  # parts of the time axis
_NAMED_MARKS: Final = 2  # more of them are counted
_NICE: Final = (1, 2, 4, 6, 8, 10)  # their halves are as short


@dataclass(frozen=True, slots=True)
class Series:
    """One row of figures: its name, its colour, and a value for each instant; None is a gap."""

    name: str
    tone: str  # blue, green, amber, red, violet or gray
    values: Values


@dataclass(frozen=True, slots=True)
class ChartMark:
    """A line at an instant, such as a deploy."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What charts of the same stretch of time have in common."""

    times: Sequence[datetime]  # of each value, oldest first, at equal distances
    clock: bool = True  # whether the time axis shows hours or days
    marks: Sequence[ChartMark] = ()
    empty: str = "Nothing was recorded in this time. Workers record it."


def line_chart(
    title: str, frame: Frame, series: Sequence[Series], *, unit: Format = format_short
) -> Markup:
    """Lines over time; a single one is filled down to the axis."""
    top = nice_ceiling(_highest(_values(series)))
    shapes = _grid()
    for each in series:
        points = _points(each.values, top)
        if len(series) == 1:
            shapes += _areas(points, each.tone)
        shapes += _lines(points, each.tone)
    return _figure(title, frame, series, unit=unit, drawing=_Drawing(shapes, "points", top))


def stacked_bars(
    title: str, frame: Frame, series: Sequence[Series], *, unit: Format = format_short
) -> Markup:
    """Bars over time, the first series at the bottom."""
    sums = [sum(value or 0 for value in step) for step in zip(*_values(series), strict=True)]
    top = nice_ceiling(max(sums, default=0))
    shapes, base = _grid(), [0.0] * len(sums)
    width = _WIDTH / max(1, len(sums))
    for each in series:
        rects = []
        for place, value in enumerate(each.values):
            height = (value or 0) / top * _HEIGHT
            if height <= 0:
                continue
            base[place] += height
            rects.append(
                f"M{_n(place * width + width * 0.1)} {_n(_HEIGHT - base[place])}"
                f"h{_n(width * 0.8)}v{_n(height)}h{_n(-width * 0.8)}z"
            )
        shapes += _path("bar", each.tone, "".join(rects))
    return _figure(title, frame, series, unit=unit, drawing=_Drawing(shapes, "bars", top))


def sparkline(name: str, values: Values, tone: str = "blue") -> Markup:
    """A line without axes, for a cell of a table; its name says the highest and the last value."""
    known = [value for value in values if value is not None]
    if not any(known):
        return Markup('<span class="muted">{}</span>').format(NOTHING)
    points = _points(values, max(known))
    said = f"{name}: at most {format_short(max(known))}, last {format_short(known[-1])}"
    return Markup(
        '<svg class="spark" viewBox="0 -4 {w} {h}" preserveAspectRatio="none" role="img"'
        ' aria-label="{said}">{shapes}</svg>'
    ).format(w=_WIDTH, h=_HEIGHT + 8, said=said, shapes=_areas(points, tone) + _lines(points, tone))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatColumns:
    """For each instant, how many fell into each row; rows are whole numbers, low ones below."""

    columns: Sequence[Mapping[int, int]]
    label: Callable[[int], str]  # of the upper end of a row


def heat_map(
    title: str,
    frame: Frame,
    heat: HeatColumns,
    *,
    figures: Sequence[Series],
    unit: Format = format_count,
) -> Markup:
    """How values are spread over time. `figures` stand in the table behind it."""
    rows = sorted({row for column in heat.columns for row in column})
    low, high = (rows[0], rows[-1]) if rows else (0, 0)
    count = high - low + 1
    most = max((n for column in heat.columns for n in column.values()), default=0)
    width, height = _WIDTH / max(1, len(heat.columns)), _HEIGHT / count
    shapes = Markup("")
    for place, column in enumerate(heat.columns):
        for row, n in sorted(column.items()):
            shapes += Markup(
                '<rect class="cell" x="{}" y="{}" width="{}" height="{}" fill-opacity="{}"/>'
            ).format(
                _n(place * width),
                _n(_HEIGHT - (row - low + 1) * height),
                _n(width),
                _n(height),
                _n(0.12 + 0.88 * math.log1p(n) / math.log1p(most)),
            )
    labels = [heat.label(high), heat.label((low + high) // 2), heat.label(low)] if rows else []
    plot = _plot(frame, _Drawing(shapes, "bars"), labels=labels, said=title)
    table = _table(title, frame, figures, unit=unit)
    return _wrap(title, (), plot=plot, table=table, marks=_texts(frame))


def nice_ceiling(value: float) -> float:
    """The smallest round number that is not below the value; 1 for nothing."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in _NICE if step * size >= value * 0.999999)


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The shapes of a plot, how wide a step is, and the value at its upper edge."""

    shapes: Markup
    steps: str  # "points", with one at both ends, or "bars", which fill their part
    top: float = 0.0


# --- parts --------------------------------------------------------------------------------------


def _figure(
    title: str,
    frame: Frame,
    series: Sequence[Series],
    *,
    unit: Format,
    drawing: _Drawing,
) -> Markup:
    blank = not any(value for each in series for value in each.values)
    said = f"{title}. " + ". ".join(_say(each, unit) for each in series)
    labels = [] if blank else _y_labels(drawing.top, unit)
    plot = _plot(frame, drawing, labels=labels, said=said)
    table = _table(title, frame, series, unit=unit)
    return _wrap(title, series, plot=plot, table=table, marks=_texts(frame))


def _y_labels(top: float, unit: Format) -> list[str]:
    """The labels of the vertical axis; half of one job is none."""
    middle = unit(top / 2)
    return [unit(top), "" if middle in {unit(0), unit(top)} else middle, unit(0)]


def _wrap(
    title: str, series: Sequence[Series], *, plot: Markup, table: Markup, marks: Sequence[str]
) -> Markup:
    keys = [
        Markup('<span class="key {}"><span>{}</span></span>').format(each.tone, each.name)
        for each in series
        if len(series) > 1
    ]
    if marks:
        text = f"{len(marks)} marks" if len(marks) > _NAMED_MARKS else ", ".join(marks)
        keys.append(Markup('<span class="key gray"><span>{}</span></span>').format(text))
    return Markup(
        '<figure class="chart card"><figcaption><strong>{}</strong>{}</figcaption>{}{}</figure>'
    ).format(title, Markup("").join(keys), plot, table)


def _plot(frame: Frame, drawing: _Drawing, *, labels: Sequence[str], said: str) -> Markup:
    """The plot with its axes; without labels there is nothing to show, and it says so."""
    blank = not labels
    note = Markup('<div class="nothing-yet">{}</div>').format(frame.empty) if blank else Markup("")
    style = "clock" if frame.clock else "day"
    last = len(frame.times) - 1
    places = [round(part * last / _X_LABELS) for part in range(_X_LABELS + 1)] if last > 0 else []
    times = [Markup("<span>{}</span>").format(time_tag(frame.times[i], style)) for i in places]
    return Markup(
        '<div class="plot"><div class="y" aria-hidden="true">{y}</div>'
        '<div class="area" data-steps="{steps}"><svg viewBox="0 0 {w} {h}"'
        ' preserveAspectRatio="none" role="img" aria-label="{said}">{shapes}{marks}</svg>'
        "{note}</div>"
        '<div class="x" aria-hidden="true">{x}</div></div>'
    ).format(
        y=Markup("").join(Markup("<span>{}</span>").format(each) for each in labels),
        x=Markup("").join(times),
        w=_WIDTH,
        h=_HEIGHT,
        steps=drawing.steps,
        said=said,
        shapes=_grid() if blank else drawing.shapes,
        marks=_marks(frame),
        note=note,
    )


def _marks(frame: Frame) -> Markup:
    if len(frame.times) < 2:
        return Markup("")
    first, last = frame.times[0], frame.times[-1]
    end = last + (last - first) / (len(frame.times) - 1)
    lines = Markup("")
    for mark in frame.marks:
        if first <= mark.at < end:  # those of the step that is not over stand at its beginning
            share = min(1.0, (mark.at - first) / (last - first))
            lines += Markup(
                '<line class="mark" x1="{x}" x2="{x}" y1="0" y2="{h}"><title>{text}</title></line>'
            ).format(x=_n(share * _WIDTH), h=_HEIGHT, text=mark.text)
    return lines


def _table(title: str, frame: Frame, series: Sequence[Series], *, unit: Format) -> Markup:
    """The figures of a chart, for those who cannot see it, and for the tooltip."""
    names = [each.name for each in series] + (["Mark"] if frame.marks else [])
    marked = _marks_by_step(frame)
    rows = []
    for place, at in enumerate(frame.times):
        values: list[str | Markup] = [unit(each.values[place]) for each in series]
        values += [", ".join(marked.get(place, ()))] if frame.marks else []
        cells = Markup("").join(Markup('<td class="num">{}</td>').format(v) for v in values)
        rows.append(Markup('<tr><th scope="row">{}</th>{}</tr>').format(time_tag(at), cells))
    heads = Markup("").join(Markup('<th scope="col" class="num">{}</th>').format(n) for n in names)
    return Markup(
        '<details class="data"><summary>Figures</summary><div class="scroll" tabindex="0"'
        ' role="region" aria-label="{title}: figures"><table><caption class="hidden">{title}'
        '</caption><thead><tr><th scope="col">From</th>{heads}</tr></thead><tbody>{rows}</tbody>'
        "</table></div></details>"
    ).format(title=title, heads=heads, rows=Markup("").join(rows))


def _texts(frame: Frame) -> list[str]:
    return [mark.text for mark in frame.marks]


def _marks_by_step(frame: Frame) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for mark in frame.marks:
        place = sum(at <= mark.at for at in frame.times) - 1
        if place >= 0:
            found.setdefault(place, []).append(mark.text)
    return found


def _say(series: Series, unit: Format) -> str:
    known = [value for value in series.values if value is not None]
    if not known:
        return f"{series.name}: nothing"
    return f"{series.name}: at most {unit(max(known))}, last {unit(known[-1])}"


def _grid() -> Markup:
    lines = [f"M0 {y}H{_WIDTH}" for y in (0, _HEIGHT // 2, _HEIGHT)]
    return Markup('<path class="grid" d="{}"/>').format("".join(lines))


def _points(values: Values, top: float) -> list[list[tuple[float, float]]]:
    """Runs of neighbouring points; a gap ends a run."""
    step = _WIDTH / max(1, len(values) - 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place * step, _HEIGHT - value / top * _HEIGHT))
    return [run for run in runs if run]


def _lines(runs: Sequence[Sequence[tuple[float, float]]], tone: str) -> Markup:
    # A lone point becomes a dot: the round ends of a line without length.
    dots = "".join(_trace(run) + "h0" for run in runs if len(run) == 1)
    lines = "".join(_trace(run) for run in runs if len(run) > 1)
    return _path("line", tone, lines) + _path("line dot", tone, dots)


def _areas(runs: Sequence[Sequence[tuple[float, float]]], tone: str) -> Markup:
    parts = [f"{_trace(run)}L{_n(run[-1][0])} {_HEIGHT}L{_n(run[0][0])} {_HEIGHT}z" for run in runs]
    return _path("fill", tone, "".join(parts))


def _trace(run: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in run)


def _path(kind: str, tone: str, d: str) -> Markup:
    return Markup('<path class="{} {}" d="{}"/>').format(kind, tone, d) if d else Markup("")


def _values(series: Sequence[Series]) -> list[Values]:
    return [each.values for each in series]


def _highest(rows: Sequence[Values]) -> float:
    return max((value for row in rows for value in row if value is not None), default=0.0)


def _n(number: float) -> str:
    """A coordinate with no more digits than a screen can show."""
    return f"{number:.2f}".rstrip("0").rstrip(".")
