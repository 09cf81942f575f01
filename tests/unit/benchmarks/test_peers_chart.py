import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from benchmarks.peers.chart import (
    FIGURE,
    LABEL,
    OUR_BAR,
    PANEL,
    STEP,
    THEIR_BAR,
    as_svg,
    bar_length,
    scale_bounds,
)
from benchmarks.peers.comparison import Cell, Row, Scenario, failed_cells

SVG = "{http://www.w3.org/2000/svg}"
ROOM = PANEL - LABEL - FIGURE


def row(name: str, value: float) -> Row:
    return Row(name, name, "1.0", "", {each: Cell((value,)) for each in Scenario})


def draw(*rows: Row) -> ElementTree.Element:
    return ElementTree.fromstring(as_svg(rows, title="a < b & c"))  # noqa: S314 - our own


def bars(picture: ElementTree.Element, panel: int = 0) -> list[ElementTree.Element]:
    return picture.findall(f"{SVG}g")[panel].findall(f"{SVG}rect")


@pytest.mark.parametrize(
    ("values", "powers"),
    [
        ([300.0, 250_000.0], (2, 6)),
        ([0.5, 20.0], (-1, 2)),
        ([100.0, 900.0], (1, 3)),  # 100 itself would be a bar without length
        ([50.0], (1, 2)),
        ([10.0], (0, 1)),
    ],
)
def test_the_scale_contains_all_values_between_powers_of_ten(
    values: list[float], powers: tuple[int, int]
) -> None:
    assert scale_bounds(values) == powers


def test_a_tenfold_value_is_one_step_of_the_scale_longer() -> None:
    assert bar_length(10.0, 0, 4) == pytest.approx(ROOM / 4)
    assert bar_length(1000.0, 0, 4) - bar_length(100.0, 0, 4) == pytest.approx(ROOM / 4)
    assert bar_length(10_000.0, 0, 4) == pytest.approx(ROOM)


def test_every_scenario_has_a_panel_with_a_bar_for_each_peer() -> None:
    picture = draw(row("tampu", 100.0), row("peer", 20.0))
    panels = picture.findall(f"{SVG}g")
    assert len(panels) == len(Scenario)
    assert all(len(bars(picture, number)) == 2 for number in range(len(panels)))


def test_bars_stay_within_their_panel_and_do_not_overlap() -> None:
    values = [0.003, 1.0, 17.0, 999.0, 250_000.0]
    found = bars(draw(*(row(f"peer{value}", value) for value in values)))
    for bar in found:
        assert 0 < float(bar.get("width", 0)) <= ROOM + 0.1
    tops = [float(bar.get("y", 0)) for bar in found]
    assert [b - a for a, b in pairwise(tops)] == [STEP] * (len(values) - 1)


def test_the_scale_shows_its_powers_of_ten() -> None:
    picture = draw(row("tampu", 0.05), row("peer", 2_000_000.0))
    texts = [each.text for each in picture.findall(f"{SVG}g")[0].findall(f"{SVG}text")]
    assert [text for text in texts if text in {"0.01", "1", "10 k", "1 M", "10 M"}] == [
        "0.01",
        "1",
        "10 k",
        "1 M",
        "10 M",
    ]


def test_our_bar_has_another_colour() -> None:
    found = bars(draw(row("tampu", 100.0), row("peer", 20.0)))
    assert [bar.get("fill") for bar in found] == [OUR_BAR, THEIR_BAR]


def test_a_peer_without_a_figure_gets_a_word_instead_of_a_bar() -> None:
    missing = Row("missing", "missing", "", "", failed_cells("cannot install it"))
    picture = draw(row("tampu", 100.0), missing)
    assert len(bars(picture)) == 1
    assert "none" in [each.text for each in picture.findall(f"{SVG}g")[0].findall(f"{SVG}text")]


def test_a_negative_figure_has_words_instead_of_a_bar() -> None:
    picture = draw(row("tampu", 100.0), row("early", -5.0))
    assert len(bars(picture)) == 1
    assert "5.00 too early" in [
        each.text for each in picture.findall(f"{SVG}g")[0].findall(f"{SVG}text")
    ]


def test_a_scenario_without_figures_is_a_panel_without_bars() -> None:
    missing = Row("missing", "missing", "", "", failed_cells("cannot install it"))
    assert not bars(draw(missing))


def test_names_and_titles_are_escaped() -> None:
    picture = draw(row("<peer>", 2.0))
    assert picture.findtext(f"{SVG}title") == "a < b & c"
    assert "<peer>" in [each.text for each in picture.iter(f"{SVG}text")]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else math.pow((part + 0.055) / 1.055, 2.4) for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#0d1117"])
def test_every_colour_is_visible_on_a_light_and_on_a_dark_background(background: str) -> None:
    picture = draw(row("tampu", 100.0), row("peer", 20.0))
    colours = {found for each in picture.iter() if (found := each.get("fill"))}
    for colour in colours:
        lighter, darker = sorted((luminance(colour), luminance(background)), reverse=True)
        contrast = (lighter + 0.05) / (darker + 0.05)
        assert contrast >= 2.8, (colour, background, contrast)  # 3 is the norm for large shapes
