import pytest

from benchmarks.peers.comparison import (
    Cell,
    Column,
    FlowScenario,
    Row,
    Scenario,
    failed_cells,
    join_passes,
    ratio_to_ours,
)


def row(name: str, **values: float) -> Row:
    cells: dict[Column, Cell] = {
        each: Cell((values.get(each.name.lower(), 1.0),)) for each in Scenario
    }
    return Row(name, name, "1.0", "one process", cells)


def test_the_value_of_a_cell_is_the_median_of_its_rounds() -> None:
    assert Cell((1.0, 100.0, 3.0)).value == 3.0


def test_a_cell_without_rounds_has_no_value() -> None:
    assert Cell(why="it did not start").value is None


def test_more_jobs_per_second_are_better() -> None:
    rows = [row("tampu", consume=100), row("peer", consume=20)]
    assert ratio_to_ours(rows, rows[1], Scenario.CONSUME) == 5


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario.DISPATCH,
        Scenario.LATENESS,
        Scenario.RESULT,
        Scenario.MEMORY,
        Scenario.CPU,
    ],
)
def test_less_time_memory_and_cpu_is_better(scenario: Scenario) -> None:
    name = scenario.name.lower()
    rows = [row("tampu", **{name: 2.0}), row("peer", **{name: 8.0})]
    assert ratio_to_ours(rows, rows[1], scenario) == 4


def test_the_ratio_is_below_one_if_the_peer_is_better() -> None:
    rows = [row("tampu", add=100), row("peer", add=200)]
    assert ratio_to_ours(rows, rows[1], Scenario.ADD) == 0.5


def test_our_row_may_be_anywhere() -> None:
    rows = [row("peer", add=50), row("tampu", add=100)]
    assert ratio_to_ours(rows, rows[0], Scenario.ADD) == 2


def test_there_is_no_ratio_if_a_figure_is_missing() -> None:
    broken = Row("peer", "peer", "", "", failed_cells("cannot install it"))
    ours = row("tampu")
    assert ratio_to_ours([ours, broken], broken, Scenario.ADD) is None
    assert ratio_to_ours([broken], broken, Scenario.ADD) is None


def test_every_cell_of_a_peer_that_cannot_run_says_why() -> None:
    cells = failed_cells("cannot install it")
    assert {each: cells[each].why for each in Scenario} == dict.fromkeys(
        Scenario, "cannot install it"
    )


def test_a_second_pass_adds_its_rounds() -> None:
    first, second = row("peer", add=1.0).cells, row("peer", add=3.0).cells
    assert join_passes(first, second)[Scenario.ADD].rounds == (1.0, 3.0)


def test_a_scenario_that_failed_in_one_pass_keeps_the_figures_of_the_other() -> None:
    good, bad = row("peer", add=2.0).cells, failed_cells("it did not answer")
    assert join_passes(bad, good)[Scenario.ADD].value == 2.0
    assert join_passes(good, bad)[Scenario.ADD].value == 2.0
    assert join_passes(bad, bad)[Scenario.ADD].why == "it did not answer"


def test_a_row_has_the_columns_of_its_table() -> None:
    cells = failed_cells("cannot install it", [FlowScenario.CONCURRENCY, FlowScenario.PLAIN])
    assert Row("peer", "peer", "", "", cells).columns == list(FlowScenario)
    assert row("peer").columns == list(Scenario)


def test_a_column_without_a_unit_has_only_its_title_as_head() -> None:
    assert Scenario.CONSUME.head == "consume [/s]"
    assert FlowScenario.RATE_WORST.head == FlowScenario.RATE_WORST.title
