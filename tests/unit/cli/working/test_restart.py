"""What follows the end of a worker process."""

import signal

import pytest

from tampu.cli.working.restart import (
    FIRST_PAUSE_S,
    HEALTHY_S,
    LONGEST_PAUSE_S,
    Again,
    End,
    NotAgain,
    Step,
    WhenChanged,
    in_words,
    next_step,
)
from tampu.cli.working.words import Reason

CRASHED = End(code=-signal.SIGKILL, reason=None, worked_s=1.0)


@pytest.mark.parametrize(
    ("end", "reload", "step"),
    [
        (End(code=0, reason=Reason.EMPTY, worked_s=1.0), False, NotAgain()),
        (End(code=1, reason=Reason.EMPTY, worked_s=1.0), False, Again(FIRST_PAUSE_S, 1)),
        (End(code=0, reason=Reason.RECYCLED, worked_s=1.0), False, Again(0.0)),
        (End(code=0, reason=Reason.RECYCLED, worked_s=1.0), True, Again(0.0)),
        (CRASHED, False, Again(FIRST_PAUSE_S, 1)),
        (CRASHED, True, WhenChanged()),
        # Somebody else told it to end: it is still wanted.
        (End(code=0, reason=Reason.TOLD, worked_s=1.0), False, Again(FIRST_PAUSE_S, 1)),
        (End(code=2, reason=None, worked_s=0.0), False, Again(FIRST_PAUSE_S, 1)),
    ],
)
def test_each_end_has_its_step(end: End, reload: bool, step: Step) -> None:  # noqa: FBT001
    assert next_step(end, failures=0, reload=reload) == step


def test_the_pause_grows_up_to_a_limit_and_is_forgotten_after_a_while_of_health() -> None:
    pauses, failures = [], 0
    for _ in range(12):
        step = next_step(CRASHED, failures=failures, reload=False)
        assert isinstance(step, Again)
        pauses.append(step.pause_s)
        failures = step.failures
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert pauses[-1] == LONGEST_PAUSE_S
    healthy = End(code=1, reason=None, worked_s=HEALTHY_S)
    assert next_step(healthy, failures=failures, reload=False) == Again(FIRST_PAUSE_S, 1)


def test_ends_are_told_in_words() -> None:
    assert in_words(3) == "exit code 3"
    assert in_words(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert in_words(-200) == "killed by signal 200"
