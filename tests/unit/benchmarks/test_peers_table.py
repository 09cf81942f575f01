import pytest

from benchmarks.peers.score import Cell, Row, Scenario, failed
from benchmarks.peers.table import as_markdown, as_text, cell_text, grid, reasons, shown


def row(name: str, value: float, **others: Cell) -> Row:
    cells = {each: others.get(each.name.lower(), Cell((value,))) for each in Scenario}
    return Row(name, name.title(), "1.0", "one process", cells)


OURS = row("tampu", 100.0)
PEER = row("peer", 20.0, result=Cell(why="it gave no answer"))
GONE = Row("gone", "Gone", "", "one process", failed("npm is not on this machine"))


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
    assert shown(value) == text


def test_a_peers_cell_has_its_figure_and_the_ratio_to_ours() -> None:
    assert cell_text([OURS, PEER], PEER, Scenario.CONSUME) == "20.0 (5.00 x)"


def test_what_came_too_early_is_told_so_and_has_no_ratio() -> None:
    early = row("early", 20.0, lateness=Cell((-105.0,)))
    assert cell_text([OURS, early], early, Scenario.LATENESS) == "105 too early"


def test_our_own_cell_has_no_ratio() -> None:
    assert cell_text([OURS, PEER], OURS, Scenario.CONSUME) == "100"


def test_without_ours_there_is_no_ratio() -> None:
    assert cell_text([PEER], PEER, Scenario.CONSUME) == "20.0"


def test_an_empty_cell_refers_to_its_reason() -> None:
    rows = [OURS, PEER, GONE]
    assert reasons(rows) == ["it gave no answer", "npm is not on this machine"]
    assert cell_text(rows, PEER, Scenario.RESULT) == "none [1]"
    assert cell_text(rows, GONE, Scenario.RESULT) == "none [2]"


def test_every_peer_has_a_row_and_every_scenario_a_column() -> None:
    lines = grid([OURS, PEER, GONE])
    assert [line[0] for line in lines] == ["", "Tampu 1.0", "Peer 1.0", "Gone"]
    assert {len(line) for line in lines} == {1 + len(Scenario)}
    assert lines[0][3] == "consume [/s]"


def test_the_text_is_aligned_and_tells_the_reasons() -> None:
    text = as_text([OURS, PEER, GONE])
    table, _, told = text.partition("\n\n")
    assert len({len(line) for line in table.splitlines()}) == 1
    assert "[1] it gave no answer" in told
    assert "[2] npm is not on this machine" in told
    assert "Peer: one process" in told


def test_the_markdown_has_a_line_a_row_and_says_what_it_was_measured_on() -> None:
    text = as_markdown([OURS, PEER], about="2026-11-15, Redis 8.10.")
    lines = text.splitlines()
    assert lines[1] == "| --- | --: | --: | --: | --: | --: | --: | --: | --: |"
    assert lines[3].startswith("| Peer 1.0 | 20.0 (5.00 x) | ")
    assert "2026-11-15, Redis 8.10." in lines
    assert "- [1] it gave no answer" in lines
