"""The expectations of the other tests hold for the real package."""

import json

import pytest

from tests.compat.programs import EXPECTED_ERRORS, run_with_real_package
from tests.compat.surface import expected_surface
from tests.servers import RunningServer

pytestmark = pytest.mark.chasquimq


def test_the_program_runs(running: RunningServer) -> None:
    assert run_with_real_package("program.py", running.url) == "ok\n"


def test_the_expected_errors_are_its_errors(running: RunningServer) -> None:
    output = run_with_real_package("invalid_calls.py", running.url)
    assert json.loads(output) == EXPECTED_ERRORS


def test_the_expected_signatures_are_its_signatures() -> None:
    # The compiled classes do not reveal the value of one default.
    output = run_with_real_package("surface.py", "chasquimq").replace("Ellipsis", "'default'")
    assert json.loads(output) == expected_surface()
