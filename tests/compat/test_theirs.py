"""What the tests of ours rest on holds for the real package."""

import json

import pytest

from tests.compat.either import GOLDEN, with_theirs
from tests.compat.surface import pinned
from tests.servers import RunningServer

pytestmark = pytest.mark.chasquimq


def test_the_program_runs_with_it(running: RunningServer) -> None:
    assert with_theirs("program.py", running.url) == "all is well\n"


def test_the_errors_that_are_pinned_are_its_errors(running: RunningServer) -> None:
    assert json.loads(with_theirs("mistakes.py", running.url)) == GOLDEN


def test_the_signatures_that_are_pinned_are_its_signatures() -> None:
    # Of one default its binary says no more than that there is one.
    told = with_theirs("surface.py", "chasquimq").replace("Ellipsis", "'default'")
    assert json.loads(told) == pinned()
