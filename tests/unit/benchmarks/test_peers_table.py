import pytest

from benchmarks.peers.comparison import Cell, Column, FlowScenario, Row, Scenario, failed_cells
from benchmarks.peers.table import as_markdown, as_text, cell_text, format_figure, grid, reasons


def row(name: str, value: float, **others: Cell) -> Row:
    cells: dict[Column, Cell] = {
        each: others.get(each.name.lower(), Cell((value,))) for each in Scenario
    }
    return Row(name, name.title(), "1.0", "one process", cells)


OURS = row("tampu", 100.0)
PEER = row("peer", 20.0, result=Cell(why="it did not answer"))
MISSING = Row("missing", "Missing", "", "one process", failed_cells("npm is not installed"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.50"),
        (9.876, "9.88"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.0, "1.23 k"),
        (98_765.0, "98.8 k"),
        (293_254.0, "293 k"),
    ],
)
def test_a_figure_shows_three_digits_and_thousands_as_k(value: float, text: str) -> None:
    assert format_figure(value) == text


def test_a_cell_of_a_peer_shows_its_figure_and_the_ratio_to_ours() -> None:
    assert cell_text([OURS, PEER], PEER, Scenario.CONSUME) == "20.0 (5.00 x)"


def test_jobs_that_ran_too_early_have_no_ratio() -> None:
    early = row("early", 20.0, lateness=Cell((-105.0,)))
    assert cell_text([OURS, early], early, Scenario.LATENESS) == "105 too early"


def test_our_own_cell_has_no_ratio() -> None:
    assert cell_text([OURS, PEER], OURS, Scenario.CONSUME) == "100"


def test_without_ours_there_is_no_ratio() -> None:
    assert cell_text([PEER], PEER, Scenario.CONSUME) == "20.0"


def test_an_empty_cell_refers_to_its_reason() -> None:
    rows = [OURS, PEER, MISSING]
    assert reasons(rows) == ["it did not answer", "npm is not installed"]
    assert cell_text(rows, PEER, Scenario.RESULT) == "none [1]"
    assert cell_text(rows, MISSING, Scenario.RESULT) == "none [2]"


def test_every_peer_has_a_row_and_every_scenario_a_column() -> None:
    lines = grid([OURS, PEER, MISSING])
    assert [line[0] for line in lines] == ["", "Tampu 1.0", "Peer 1.0", "Missing"]
    assert {len(line) for line in lines} == {1 + len(Scenario)}
    assert lines[0][3] == "consume [/s]"


def test_the_text_is_aligned_and_lists_the_reasons() -> None:
    text = as_text([OURS, PEER, MISSING])
    table, _, notes = text.partition("\n\n")
    assert len({len(line) for line in table.splitlines()}) == 1
    assert "[1] it did not answer" in notes
    assert "[2] npm is not installed" in notes
    assert "Peer: one process" in notes


def test_the_markdown_has_a_line_per_row_and_the_conditions() -> None:
    text = as_markdown([OURS, PEER], about="2026-11-15, Redis 8.10.")
    lines = text.splitlines()
    assert lines[1] == "| --- | --: | --: | --: | --: | --: | --: | --: | --: |"
    assert lines[3].startswith("| Peer 1.0 | 20.0 (5.00 x) | ")
    assert "2026-11-15, Redis 8.10." in lines
    assert "- [1] it did not answer" in lines


def test_how_well_a_rate_is_kept_has_no_ratio() -> None:
    cells: dict[Column, Cell] = {each: Cell((100.0,)) for each in FlowScenario}
    ours = Row("tampu", "tampu", "", "", cells)
    peer = Row("peer", "Peer", "", "", cells)
    assert cell_text([ours, peer], peer, FlowScenario.RATE_USED) == "100"
    assert cell_text([ours, peer], peer, FlowScenario.OPEN_RATE) == "100 (1.00 x)"
