"""A flow as a picture: its nodes as boxes with lines between them, and when each of them ran.

Made on the server as SVG, coloured by classes. Large flows are grouped, and very large ones cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from tampu.admin.flow_info import EdgeKind, NodeState
from tampu.dashboard.layers import BoxSizes, lay_out, layers_of
from tampu.dashboard.render import NOTHING, age_s, format_count, format_seconds, time_tag

if TYPE_CHECKING:
    from datetime import datetime

    from tampu.admin.flow_info import FlowInfo, NodeInfo
    from tampu.dashboard.layers import Line, Point

_MOST_BOXES: Final = 60
_SIZES: Final = BoxSizes(width=188, height=62, gap_x=48, gap_y=18)
_MARGIN: Final = 8
_SCALE: Final = 1000
TONES: Final = {
    NodeState.WAITING: "gray",
    NodeState.RUNNING: "blue",
    NodeState.DONE: "green",
    NodeState.FAILED: "red",
}
URGENCY: Final = (NodeState.FAILED, NodeState.RUNNING, NodeState.WAITING, NodeState.DONE)
_LINES: Final = {EdgeKind.SUCCESS: "", EdgeKind.END: " outcome", EdgeKind.ORDER: " order"}


@dataclass(frozen=True, slots=True)
class FlowBox:
    """A node of a flow, or nodes that are shown as one."""

    nodes: Sequence[NodeInfo]
    href: str

    @property
    def label(self) -> str:
        """The name of its task, and how many nodes it stands for if there are several."""
        name, count = self.nodes[0].name, len(self.nodes)
        return name if count == 1 else f"{name} \N{MULTIPLICATION SIGN} {format_count(count)}"

    @property
    def state(self) -> NodeState:
        """The state that matters most."""
        states = {node.state for node in self.nodes}
        if len(states) == 1 or NodeState.FAILED in states:
            return next(each for each in URGENCY if each in states)
        return NodeState.RUNNING

    @property
    def jobs(self) -> int:
        """How many jobs are known so far."""
        return sum(node.jobs for node in self.nodes)

    @property
    def done(self) -> int:
        """How many jobs are done."""
        return sum(node.done for node in self.nodes)

    @property
    def failed(self) -> int:
        """How many jobs have failed."""
        return sum(node.failed for node in self.nodes)

    @property
    def running(self) -> int:
        """How many jobs wait on their queue or run."""
        return sum(node.running for node in self.nodes)

    @property
    def is_growing(self) -> bool:
        """Whether there will be more jobs."""
        return any(node.is_growing for node in self.nodes)

    @property
    def started_at(self) -> datetime | None:
        """When the first of its jobs was added."""
        return min((each.started_at for each in self.nodes if each.started_at), default=None)

    @property
    def ended_at(self) -> datetime | None:
        """When the last of its jobs ended; None if one has not."""
        ends = [each.ended_at for each in self.nodes]
        return None if None in ends else max(each for each in ends if each)

    def took_s(self, now: datetime) -> float | None:
        """How long it has run; None if it has not begun."""
        return age_s(self.started_at, self.ended_at or now)

    @property
    def text(self) -> str:
        """How far it is, in words."""
        if self.state is NodeState.WAITING or (self.jobs == 1 and not self.is_growing):
            return str(self.state)
        growing = "+" if self.is_growing else ""
        done = f"{format_count(self.done)} of {format_count(self.jobs)}{growing}"
        return f"{done}, {format_count(self.failed)} failed" if self.failed else done


@dataclass(frozen=True, slots=True)
class FlowPicture:
    """What is drawn of a flow: boxes, the kinds of the lines between them, and what is left out."""

    boxes: Sequence[FlowBox]
    lines: Mapping[Line, str]
    note: str = ""


def picture_of(info: FlowInfo, link_to: Callable[[NodeInfo], str]) -> FlowPicture:
    """A flow in at most so many boxes that people can look at them."""
    groups, note = _group(info)
    box_of = {node.number: at for at, nodes in enumerate(groups) for node in nodes}
    lines: dict[Line, str] = {}
    for node in info.nodes:
        for edge in node.waits_for:
            if edge.node in box_of and node.number in box_of:
                line = (box_of[edge.node], box_of[node.number])
                waits = "" if edge.node in node.missing else " met"
                lines.setdefault(line, f"edge{_LINES[edge.kind]}{waits}")
    return FlowPicture([FlowBox(nodes, link_to(nodes[0])) for nodes in groups], lines, note)


def _group(info: FlowInfo) -> tuple[list[list[NodeInfo]], str]:
    """The nodes of each box; and a sentence about what is left out."""
    if len(info.nodes) <= _MOST_BOXES:
        return [[node] for node in info.nodes], ""
    numbers = [node.number for node in info.nodes]
    lines = {(edge.node, node.number) for node in info.nodes for edge in node.waits_for}
    layer_of = layers_of(numbers, lines)
    groups: dict[tuple[int, str, str], list[NodeInfo]] = {}
    for node in info.nodes:
        groups.setdefault((layer_of[node.number], node.name, node.queue), []).append(node)
    found, count = list(groups.values()), format_count(len(info.nodes))
    if len(found) <= _MOST_BOXES:
        return found, f"The {count} nodes are grouped by their tasks and what they wait for."
    found.sort(key=lambda nodes: min(URGENCY.index(node.state) for node in nodes))
    kept = sorted(found[:_MOST_BOXES], key=lambda nodes: nodes[0].number)
    shown = format_count(sum(map(len, kept)))
    return kept, f"{shown} of {count} nodes are shown, first those that have failed or run."


# --- the graph ----------------------------------------------------------------------------------


def draw_graph(picture: FlowPicture, now: datetime) -> Markup:
    """The boxes and the lines between them, from left to right."""
    layout = lay_out(range(len(picture.boxes)), picture.lines, _SIZES)
    lines = Markup("").join(
        _line(points, picture.lines[line]) for line, points in layout.lines.items()
    )
    boxes = Markup("").join(
        _box(picture.boxes[number], at, now) for number, at in layout.boxes.items()
    )
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    return Markup(
        '<svg class="graph" width="{w}" height="{h}" viewBox="{x} {x} {w} {h}" role="group"'
        ' aria-label="Nodes of the flow">{lines}{boxes}</svg>'
    ).format(w=_n(width), h=_n(height), x=-_MARGIN, lines=lines, boxes=boxes)


def _line(points: Sequence[Point], kind: str) -> Markup:
    """A curve from box to box, straight where it passes others."""
    (x, y), *passing, (end_x, end_y) = points
    path, half = f"M{_n(x)} {_n(y)}", _SIZES.width / 2
    for at_x, at_y in passing:
        path += _curve((x, y), (at_x - half, at_y)) + f"H{_n(at_x + half)}"
        x, y = at_x + half, at_y
    path += _curve((x, y), (end_x - 6, end_y))
    head = f"M{_n(end_x - 1)} {_n(end_y)}l-7 -4v8z"
    return Markup('<path class="{}" d="{}"/><path class="{} head" d="{}"/>').format(
        kind, path, kind, head
    )


def _curve(start: Point, end: Point) -> str:
    middle = _n((start[0] + end[0]) / 2)
    return f"C{middle} {_n(start[1])} {middle} {_n(end[1])} {_n(end[0])} {_n(end[1])}"


def _box(box: FlowBox, at: Point, now: datetime) -> Markup:
    took_s = box.took_s(now)
    inner = Markup(
        '<b><bdi>{}</bdi></b><span class="{}">{}</span><span class="muted">{}</span>'
    ).format(
        box.label, TONES[box.state], box.text, "" if took_s is None else format_seconds(took_s)
    )
    shape = Markup(
        '<rect class="box" width="{w}" height="{h}" rx="8"/>'
        '<rect class="stripe {tone}" y="12" width="3" height="{stripe}" rx="1.5"/>'
        '<foreignObject width="{w}" height="{h}"><div class="node">{inner}</div></foreignObject>'
        "{bar}"
    ).format(
        w=_n(_SIZES.width),
        h=_n(_SIZES.height),
        tone=TONES[box.state],
        stripe=_n(_SIZES.height - 24),
        inner=inner,
        bar=_bar_of(box),
    )
    if box.href:
        shape = Markup('<a href="{}">{}</a>').format(box.href, shape)
    place = f"translate({_n(at[0])} {_n(at[1])})"
    return Markup('<g class="node-box {}" transform="{}">{}</g>').format(
        str(box.state), place, shape
    )


def _bar_of(box: FlowBox) -> Markup:
    """How many of its jobs have ended, at the lower edge of a box of many."""
    if box.jobs <= 1:
        return Markup("")
    width = _SIZES.width - 24
    parts, x = Markup(""), 12.0
    for tone, count in (("green", box.done), ("red", box.failed)):
        part = width * count / box.jobs
        if count:
            parts += Markup('<rect class="{}" x="{}" width="{}" y="54" height="3"/>').format(
                f"fill-{tone}", _n(x), _n(part)
            )
        x += part
    return Markup('<rect class="track" x="12" width="{}" y="54" height="3"/>{}').format(
        _n(width), parts
    )


# --- progress and time --------------------------------------------------------------------------


def meter(done: int, failed: int, jobs: int) -> Markup:
    """How many of some jobs are done and have failed, as a bar."""
    total = max(1, jobs)
    good, bad = done * _SCALE // total, failed * _SCALE // total
    return Markup(
        '<svg class="meter" viewBox="0 0 {s} 10" preserveAspectRatio="none" role="img"'
        ' aria-label="{said}"><rect class="track" width="{s}" height="10"/>'
        '<rect class="fill-green" width="{good}" height="10"/>'
        '<rect class="fill-red" x="{good}" width="{bad}" height="10"/></svg>'
    ).format(s=_SCALE, good=good, bad=bad, said=f"{done} of {jobs} done, {failed} failed")


def draw_timeline(info: FlowInfo, picture: FlowPicture, now: datetime) -> Markup:
    """When each box ran, one below the other."""
    end = info.ended_at if info.is_over and info.ended_at else now
    whole_s = max(0.001, (end - info.started_at).total_seconds())
    begun = [box for box in picture.boxes if box.started_at is not None]
    begun.sort(key=lambda box: (box.started_at or now, box.nodes[0].number))
    rows = Markup("").join(
        _span(box, began=info.started_at, whole_s=whole_s, end=end) for box in begun
    )
    axis = Markup("").join(
        Markup("<span>{}</span>").format(format_seconds(whole_s * part / 4) if part else "0s")
        for part in range(5)
    )
    return Markup(
        '<div class="gantt">{rows}<div class="row axis"><span class="muted">since {began}</span>'
        '<div class="scale" aria-hidden="true">{axis}</div><span></span></div></div>'
    ).format(rows=rows, began=time_tag(info.started_at, "clock"), axis=axis)


def _span(box: FlowBox, *, began: datetime, whole_s: float, end: datetime) -> Markup:
    started, took_s = box.started_at, box.took_s(end)
    if started is None or took_s is None:
        return Markup("")
    x = min(1.0, max(0.0, (started - began).total_seconds() / whole_s)) * _SCALE
    width = max(4.0, min(_SCALE - x, took_s / whole_s * _SCALE))
    x = min(x, _SCALE - width)
    label = Markup("<bdi>{}</bdi>").format(box.label)
    if box.href:
        label = Markup('<a href="{}">{}</a>').format(box.href, label)
    return Markup(
        '<div class="row" data-row="{number}"><span class="clip" title="{name}">{label}</span>'
        '<svg viewBox="0 0 {s} 10" preserveAspectRatio="none" role="img" aria-label="{said}">'
        '<rect class="fill-{tone}{open}" x="{x}" width="{width}" height="10"/></svg>'
        '<span class="num">{took}</span></div>'
    ).format(
        number=box.nodes[0].number,
        name=box.label,
        label=label,
        s=_SCALE,
        said=f"{box.label}: {box.state}",
        tone=TONES[box.state],
        open=" open" if box.ended_at is None else "",
        x=_n(x),
        width=_n(width),
        took=format_seconds(took_s) if took_s else NOTHING,
    )


def _n(number: float) -> str:
    """A coordinate with no more digits than a screen can show."""
    return f"{number:.1f}".removesuffix(".0")
