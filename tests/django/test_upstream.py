"""Django's own tests of task backends, from Django's source, against ours."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests import djangos
from tests.djangos import DjangoRelease
from tests.servers import RunningServer

_RUNNER: Final = Path(__file__).parent / "upstream.py"
_IN_MEMORY: Final = "changes the list of results that DummyBackend keeps in memory"
_CAN: Final = "says that the backend cannot do what ours can"
EXPECTED: Final = {
    "DummyBackendTestCase.test_refresh_result": _IN_MEMORY,
    "DummyBackendTestCase.test_refresh_result_async": _IN_MEMORY,
    "ImmediateBackendTestCase.test_cannot_get_result": _CAN,
    "ImmediateBackendTestCase.test_cannot_refresh_result": _CAN,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": _CAN,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": (
        "a KeyboardInterrupt of a task ends the program; a worker goes on, and the task has failed"
    ),
}
"""The tests that must not pass, and why."""


@pytest.mark.django6
@pytest.mark.parametrize("release", djangos.RELEASES, ids=lambda each: each.version)
def test_djangos_own_tests_pass(release: DjangoRelease, running: RunningServer) -> None:
    done = subprocess.run(
        [release.python, _RUNNER, release.source],
        env={**os.environ, "TAMPU_URL": running.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert "Exception in thread" not in done.stderr
    ended: dict[str, str] = json.loads(done.stdout)
    assert len(ended) >= 75
    assert {name for name, how in ended.items() if how != "passed"} == EXPECTED.keys(), ended
