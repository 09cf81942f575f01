"""Charts are well-formed, say what they show, and escape what they are given."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest
from markupsafe import Markup

from tampu.dashboard.charts import (
    ChartMark,
    Frame,
    HeatColumns,
    Series,
    heat_map,
    line_chart,
    nice_ceiling,
    sparkline,
    stacked_bars,
)
from tests.dashboards import HOSTILE

START = datetime(2026, 1, 31, 9, tzinfo=UTC)
TIMES = [START + timedelta(minutes=place) for place in range(5)]


def frame(*marks: ChartMark) -> Frame:
    return Frame(times=TIMES, marks=marks)


def series(name: str = "Done", values: tuple[float | None, ...] = (1, 2, None, 4, 5)) -> Series:
    return Series(name, "blue", values)


def heat(*columns: dict[int, int]) -> HeatColumns:
    return HeatColumns(columns=columns or [{3: 1, 9: 7}, {}, {4: 2}, {4: 9}, {5: 1}], label=str)


def parse(markup: Markup) -> ET.Element:
    return ET.fromstring(f"<root>{markup}</root>")  # noqa: S314 - our own markup


def all_charts(name: str, *marks: ChartMark) -> list[Markup]:
    given = [series(name), series("Failed", (0, 0, 1, 0, 0))]
    return [
        line_chart(name, frame(*marks), given),
        line_chart(name, frame(*marks), given[:1]),
        stacked_bars(name, frame(*marks), given),
        sparkline(name, given[0].values),
        heat_map(name, frame(*marks), heat(), figures=given),
    ]


@pytest.mark.parametrize("name", ["Throughput", *HOSTILE])
def test_charts_are_well_formed_and_escaped(name: str) -> None:
    for chart in all_charts(name, ChartMark(TIMES[2], name)):
        tree = parse(chart)
        assert not list(tree.iter("script"))
        for element in tree.iter():
            assert not any(key.startswith("on") or key == "style" for key in element.attrib)
        image = next(tree.iter("svg"))
        assert image.attrib["role"] == "img"
        assert name in image.attrib["aria-label"]


def test_the_table_behind_a_chart_holds_every_value() -> None:
    tree = parse(line_chart("Jobs", frame(), [series("Done"), series("Failed")]))
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.findall(".//tbody/tr")]
    assert [row[1:] for row in rows] == [["1"] * 2, ["2"] * 2, ["–"] * 2, ["4"] * 2, ["5"] * 2]  # noqa: RUF001
    assert rows[0][0] == "2026-01-31 09:00:00 UTC"
    assert tree.find(".//details/summary") is not None


def test_a_gap_breaks_a_line() -> None:
    tree = parse(line_chart("Jobs", frame(), [series(), series("Other")]))
    paths = [each for each in tree.iter("path") if "line" in each.attrib["class"]]
    assert paths[0].attrib["d"].count("M") == 2


def test_the_highest_value_is_at_the_top_of_its_scale() -> None:
    tree = parse(line_chart("Jobs", frame(), [series(values=(0, 4, 0, 0, 0))]))
    labels = [each.text for each in tree.findall(".//div[@class='y']/span")]
    assert labels == ["4", "2", "0"]
    path = next(each for each in tree.iter("path") if "line" in each.attrib["class"])
    assert path.attrib["d"] == "M0 100L150 0L300 100L450 100L600 100"


def test_bars_stand_on_each_other() -> None:
    done, failed = series(values=(2, 0, 0, 0, 0)), Series("Failed", "red", (2, 0, 0, 0, 0))
    tree = parse(stacked_bars("Jobs", frame(), [done, failed]))
    bars = [each.attrib["d"] for each in tree.iter("path") if "bar" in each.attrib["class"]]
    assert bars == ["M12 50h96v50h-96z", "M12 0h96v50h-96z"]


def test_marks_stand_where_they_belong_and_in_the_table() -> None:
    marks = ChartMark(TIMES[2], "v1.4"), ChartMark(START - timedelta(hours=1), "before")
    tree = parse(line_chart("Jobs", frame(*marks), [series()]))
    (line,) = tree.iter("line")
    assert line.attrib["x1"] == line.attrib["x2"] == "300"
    assert line.findtext("title") == "v1.4"
    cells = [row[-1].text for row in tree.findall(".//tbody/tr")]
    assert cells == [None, None, "v1.4", None, None]


@pytest.mark.parametrize("values", [(None,) * 5, (0,) * 5])
def test_a_chart_without_figures_says_so(values: tuple[float | None, ...]) -> None:
    for chart in (
        line_chart("Jobs", frame(), [series(values=values)]),
        stacked_bars("Jobs", frame(), [series(values=values)]),
    ):
        assert "Nothing was recorded in this time." in chart
    assert "Nothing was recorded in this time." in heat_map(
        "Jobs", frame(), heat({}, {}, {}, {}, {}), figures=[series(values=values)]
    )


def test_charts_without_steps_are_well_formed() -> None:
    nothing = Frame(times=[])
    parse(line_chart("Jobs", nothing, [series(values=())]))
    parse(stacked_bars("Jobs", nothing, [series(values=())]))
    parse(heat_map("Jobs", nothing, HeatColumns(columns=[], label=str), figures=[]))
    assert "–" in sparkline("Jobs", ())  # noqa: RUF001


def test_a_lone_point_is_visible() -> None:
    tree = parse(line_chart("Jobs", frame(), [series(values=(None, None, 3, None, None))]))
    path = next(each for each in tree.iter("path") if "line" in each.attrib["class"])
    assert path.attrib["d"].endswith("h0")


def test_the_fullest_cell_of_a_heat_map_is_the_strongest() -> None:
    tree = parse(heat_map("Run", frame(), heat(), figures=[series()]))
    strength = [float(each.attrib["fill-opacity"]) for each in tree.iter("rect")]
    assert max(strength) == 1.0
    assert strength.count(1.0) == 1
    assert min(strength) > 0


@pytest.mark.parametrize(
    ("value", "ceiling"),
    [(0, 1), (1, 1), (1.01, 2), (2.4, 4), (5, 6), (99, 100), (101, 200), (0.003, 0.004)],
)
def test_scales_end_at_round_numbers(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == pytest.approx(ceiling)


def test_the_axis_of_whole_numbers_has_no_label_for_a_half() -> None:
    for highest, labels in ((1, ["1", "", "0"]), (5, ["6", "3", "0"])):
        chart = line_chart("Jobs", frame(), [series(values=(0, highest) * 2 + (0,))], unit=str_of)
        axis = next(each for each in parse(chart).iter("div") if each.attrib.get("class") == "y")
        assert [each.text or "" for each in axis.iter("span")] == labels


def str_of(value: float | None) -> str:
    return f"{value or 0:.0f}"
