import pytest

from benchmarks.peers.score import Cell, Row, Scenario, failed, joined, ratio_to_ours


def row(name: str, **values: float) -> Row:
    cells = {each: Cell((values.get(each.name.lower(), 1.0),)) for each in Scenario}
    return Row(name, name, "1.0", "one process", cells)


def test_a_cell_is_worth_the_median_of_its_rounds() -> None:
    assert Cell((1.0, 100.0, 3.0)).value == 3.0


def test_a_cell_without_rounds_has_no_value() -> None:
    assert Cell(why="it did not start").value is None


def test_of_jobs_a_second_the_one_with_more_is_better() -> None:
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
def test_of_time_memory_and_cpu_the_one_with_less_is_better(scenario: Scenario) -> None:
    name = scenario.name.lower()
    rows = [row("tampu", **{name: 2.0}), row("peer", **{name: 8.0})]
    assert ratio_to_ours(rows, rows[1], scenario) == 4


def test_a_peer_that_does_better_has_a_ratio_below_one() -> None:
    rows = [row("tampu", add=100), row("peer", add=200)]
    assert ratio_to_ours(rows, rows[1], Scenario.ADD) == 0.5


def test_ours_is_found_by_its_name_wherever_it_stands() -> None:
    rows = [row("peer", add=50), row("tampu", add=100)]
    assert ratio_to_ours(rows, rows[0], Scenario.ADD) == 2


def test_there_is_no_ratio_where_a_side_has_no_figure() -> None:
    broken = Row("peer", "peer", "", "", failed("it cannot be installed"))
    ours = row("tampu")
    assert ratio_to_ours([ours, broken], broken, Scenario.ADD) is None
    assert ratio_to_ours([broken], broken, Scenario.ADD) is None


def test_a_peer_that_cannot_run_says_why_in_every_cell() -> None:
    cells = failed("it cannot be installed")
    assert {each: cells[each].why for each in Scenario} == dict.fromkeys(
        Scenario, "it cannot be installed"
    )


def test_a_second_pass_adds_its_rounds() -> None:
    first, again = row("peer", add=1.0).cells, row("peer", add=3.0).cells
    assert joined(first, again)[Scenario.ADD].rounds == (1.0, 3.0)


def test_what_failed_in_one_pass_has_the_figures_of_the_other() -> None:
    good, bad = row("peer", add=2.0).cells, failed("it gave no answer")
    assert joined(bad, good)[Scenario.ADD].value == 2.0
    assert joined(good, bad)[Scenario.ADD].value == 2.0
    assert joined(bad, bad)[Scenario.ADD].why == "it gave no answer"
