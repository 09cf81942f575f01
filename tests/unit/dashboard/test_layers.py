"""The layout of graphs: everything has a place, and nothing lies on something else."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tampu.dashboard.layers import BoxSizes, lay_out

SIZES = BoxSizes(width=100, height=40, gap_x=30, gap_y=10)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 14))
    order = draw(st.permutations(range(count)))
    pairs = [(a, b) for place, a in enumerate(order) for b in order[place + 1 :]]
    lines = draw(st.lists(st.sampled_from(pairs), max_size=30, unique=True)) if pairs else []
    return count, lines


@given(graphs())
def test_boxes_lie_apart_and_lines_run_between_them(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    count, lines = graph
    found = lay_out(range(count), lines, SIZES)
    assert set(found.boxes) == set(range(count))
    corners = sorted(found.boxes.values())
    for (x, y), (other_x, other_y) in pairwise(corners):
        assert other_x > x or other_y >= y + SIZES.height + SIZES.gap_y - 1e-6
    for x, y in corners:
        assert -1e-6 <= x <= found.width - SIZES.width + 1e-6
        assert -1e-6 <= y <= found.height - SIZES.height + 1e-6
    for (one, other), points in found.lines.items():
        first, last = found.boxes[one], found.boxes[other]
        assert points[0] == (first[0] + SIZES.width, first[1] + SIZES.height / 2)
        assert points[-1] == (last[0], last[1] + SIZES.height / 2)
        assert points[-1][0] > points[0][0]
        step = SIZES.width + SIZES.gap_x
        assert len(points) == 1 + round((last[0] - first[0]) / step)
        for x, y in points[1:-1]:
            for box_x, box_y in corners:
                if box_x <= x <= box_x + SIZES.width:
                    assert not box_y - 1e-6 < y < box_y + SIZES.height + 1e-6


def test_a_line_is_straight_and_a_fork_is_centred() -> None:
    found = lay_out(range(4), [(0, 1), (1, 2), (1, 3)], SIZES)
    y = {box: at[1] for box, at in found.boxes.items()}
    assert y[0] == y[1]
    assert y[1] == (y[2] + y[3]) / 2
    assert (found.width, found.height) == (360, 90)


def test_few_lines_cross() -> None:
    crossed = [(0, 5), (1, 4), (2, 3)]
    found = lay_out(range(6), crossed, SIZES)
    for one, other in crossed:
        assert found.boxes[one][1] == found.boxes[other][1]
