"""The judge is judged: each kind of wrong is told apart, and what is right is not called wrong."""

from pathlib import Path

from tests.faults.ledger import Kind, Ledger, Line, check

SENT = Line(Kind.SENT, "1", "-", "-", 0.0)
ADDED = Line(Kind.ADDED, "1", "-", "-", 0.1)


def run(kind: Kind, at: float, *, worker: str = "a", job_id: str = "j1") -> Line:
    return Line(kind, "1", job_id, worker, at)


def fault(at: float, worker: str = "a") -> Line:
    return Line(Kind.FAULT, "-", "-", worker, at)


def test_a_job_added_and_done_once_is_sound() -> None:
    report = check([SENT, ADDED, run(Kind.STARTED, 1), run(Kind.DONE, 2)])
    report.assert_sound()
    assert (report.runs, report.repeated) == ({"1": 1}, set())


def test_a_job_added_and_never_done_is_lost() -> None:
    assert check([SENT, ADDED]).lost == {"1"}
    assert check([SENT, ADDED, run(Kind.STARTED, 1)]).lost == {"1"}
    assert check([SENT, ADDED], dead=[1]).lost == set()
    assert check([SENT]).lost == set()  # nobody was promised anything


def test_a_run_of_a_job_that_was_not_added_is_a_ghost() -> None:
    assert check([run(Kind.STARTED, 1), run(Kind.DONE, 2)]).ghosts == {"1"}
    assert check([], dead=[1]).ghosts == {"1"}


def test_two_ids_of_one_add_were_added_twice() -> None:
    lines = [SENT, ADDED, run(Kind.DONE, 1), run(Kind.DONE, 2, job_id="j2")]
    assert check(lines).added_twice == {"1"}


def test_two_dead_letters_of_one_job_are_one_too_many() -> None:
    assert check([SENT, ADDED], dead=[1, 1]).buried_twice == {"1"}


def test_a_second_run_is_explained_by_a_fault_of_the_first_ones_worker_in_between() -> None:
    first, second = run(Kind.STARTED, 1), run(Kind.STARTED, 3, worker="b")
    assert check([SENT, first, fault(2), second]).unexplained == set()
    assert check([SENT, first, fault(2), second]).repeated == {"1"}
    assert check([SENT, first, fault(2, "b"), second]).unexplained == {"1"}
    assert check([SENT, fault(0.5), first, second]).unexplained == {"1"}
    assert check([SENT, first, second, fault(4)]).unexplained == {"1"}


def test_a_run_after_a_failed_one_is_a_retry() -> None:
    lines = [SENT, run(Kind.STARTED, 1), run(Kind.FAILED, 2), run(Kind.STARTED, 3)]
    assert check(lines).unexplained == set()
    assert check([*lines, run(Kind.STARTED, 4)]).unexplained == {"1"}


def test_a_line_that_is_being_written_is_not_read_yet(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.sent(1)
    with ledger.path.open("ab") as half:
        half.write(b"se")
    assert (ledger.count(Kind.SENT), len(ledger.lines())) == (1, 1)
    with ledger.path.open("ab") as rest:
        rest.write(b"nt 2 - - 0.5\n")
    assert (ledger.count(Kind.SENT), len(ledger.lines())) == (2, 2)
    ledger.close()
