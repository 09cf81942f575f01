"""Where the boxes and lines of a graph are: in layers from left to right, with few crossings.

Each box is in the layer after the last one that it waits for. A line that passes layers takes a
place of its own in each of them, so that it runs between the boxes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

Box: TypeAlias = int
Line: TypeAlias = tuple[Box, Box]
Point: TypeAlias = tuple[float, float]
_Place: TypeAlias = Box | tuple[Line, int]  # a line has one in each layer that it passes

_SWEEPS: Final = 6


@dataclass(frozen=True, slots=True)
class BoxSizes:
    """How large boxes are, and how far apart."""

    width: float
    height: float
    gap_x: float
    gap_y: float


@dataclass(frozen=True, slots=True)
class Layout:
    """The upper left corner of each box, the points that each line passes, and the whole size."""

    boxes: Mapping[Box, Point]
    lines: Mapping[Line, Sequence[Point]]
    width: float
    height: float


@dataclass(slots=True)
class _Places:
    """Boxes and passing lines, as they are in their layers."""

    layers: list[list[_Place]]
    before: dict[_Place, list[_Place]] = field(default_factory=dict)
    after: dict[_Place, list[_Place]] = field(default_factory=dict)
    passing: dict[Line, list[_Place]] = field(default_factory=dict)  # its places in between


def lay_out(boxes: Sequence[Box], lines: Collection[Line], sizes: BoxSizes) -> Layout:
    """A place for everything. Lines must not go round in a circle."""
    layer_of = layers_of(boxes, lines)
    places = _fill(boxes, lines, layer_of)
    _order(places)
    middles = _align(places, sizes)
    top = min((y - _height(key, sizes) / 2 for key, y in middles.items()), default=0.0)
    bottom = max((y + _height(key, sizes) / 2 for key, y in middles.items()), default=0.0)
    step = sizes.width + sizes.gap_x
    corners = {key: (layer_of[key] * step, middles[key] - top - sizes.height / 2) for key in boxes}
    passed: dict[Line, list[Point]] = {}
    for line in lines:
        first, last = corners[line[0]], corners[line[1]]
        points = [(first[0] + sizes.width, first[1] + sizes.height / 2)]
        for key in places.passing[line]:
            x, y = (layer_of[line[0]] + len(points)) * step, middles[key] - top
            points.append((x + sizes.width / 2, y))
        passed[line] = [*points, (last[0], last[1] + sizes.height / 2)]
    width = max(len(places.layers) * step - sizes.gap_x, 0.0)
    return Layout(corners, passed, width, bottom - top)


def layers_of(boxes: Sequence[Box], lines: Collection[Line]) -> dict[Box, int]:
    """The layer of each box."""
    after: dict[Box, list[Box]] = {key: [] for key in boxes}
    left = dict.fromkeys(boxes, 0)
    for one, other in lines:
        after[one].append(other)
        left[other] += 1
    layer_of = dict.fromkeys(boxes, 0)
    todo = [key for key in boxes if not left[key]]
    while todo:
        key = todo.pop()
        for each in after[key]:
            layer_of[each] = max(layer_of[each], layer_of[key] + 1)
            left[each] -= 1
            if not left[each]:
                todo.append(each)
    return layer_of


def _fill(boxes: Sequence[Box], lines: Collection[Line], layer_of: Mapping[Box, int]) -> _Places:
    count = 1 + max(layer_of.values(), default=0)
    places = _Places([[] for _ in range(count)])
    for key in boxes:
        places.layers[layer_of[key]].append(key)
        places.before[key], places.after[key] = [], []
    for line in lines:
        one, other = line
        passing: list[_Place] = []
        for layer in range(layer_of[one] + 1, layer_of[other]):
            place = (line, layer)
            places.layers[layer].append(place)
            places.before[place], places.after[place] = [], []
            passing.append(place)
        chain: list[_Place] = [one, *passing, other]
        for left, right in pairwise(chain):
            places.after[left].append(right)
            places.before[right].append(left)
        places.passing[line] = passing
    return places


def _order(places: _Places) -> None:
    """Sort each layer by the middle of what it is connected to, forth and back."""
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        near = places.before if forth else places.after
        layers = places.layers[1:] if forth else places.layers[-2::-1]
        rank = {key: at for layer in places.layers for at, key in enumerate(layer)}
        for layer in layers:
            wanted = {
                key: sum(rank[each] for each in near[key]) / len(near[key])
                if near[key]
                else float(rank[key])
                for key in layer
            }
            layer.sort(key=wanted.__getitem__)
            rank |= {key: at for at, key in enumerate(layer)}


def _align(places: _Places, sizes: BoxSizes) -> dict[_Place, float]:
    """The middle of each place from top to bottom: near those it is connected to, none overlaps."""
    middles: dict[_Place, float] = {}
    for layer in places.layers:
        middles |= _stack(layer, [0.0] * len(layer), sizes)
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        near = places.before if forth else places.after
        for layer in places.layers if forth else reversed(places.layers):
            wanted = [
                sum(middles[each] for each in near[key]) / len(near[key])
                if near[key]
                else middles[key]
                for key in layer
            ]
            middles |= _stack(layer, wanted, sizes)
    return middles


def _stack(
    layer: Sequence[_Place], wanted: Sequence[float], sizes: BoxSizes
) -> dict[_Place, float]:
    """The middles nearest to those wanted at which nothing overlaps."""
    heights = [_height(key, sizes) for key in layer]
    apart = [(one + other) / 2 + sizes.gap_y for one, other in pairwise(heights)]
    down, up = list(wanted), list(wanted)
    for at in range(1, len(layer)):
        down[at] = max(down[at], down[at - 1] + apart[at - 1])
    for at in range(len(layer) - 2, -1, -1):
        up[at] = min(up[at], up[at + 1] - apart[at])
    return {key: (one + other) / 2 for key, one, other in zip(layer, down, up, strict=True)}


def _height(key: _Place, sizes: BoxSizes) -> float:
    """A box is as high as all boxes, the place of a passing line is flat."""
    return sizes.height if isinstance(key, int) else 0.0
