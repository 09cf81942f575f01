"""Runs programs written for chasquimq, with the real package or with the drop-in."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.golden.chasquimq import golden
from tests.peers import PYTHON
from tests.servers import ROOT

EXPECTED_ERRORS: Final = {
    each.values[0]["case"]: each.values[0]["raised"] for each in golden("errors")
}
"""The errors of the real package, by case."""

_HERE: Final = Path(__file__).parent
_LIMIT_S: Final = 60
_RUN_WITH_DROP_IN: Final = """
import runpy, sys
import tampu.compat.chasquimq
sys.modules["chasquimq"] = tampu.compat.chasquimq
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_with_drop_in(program: str, *args: str) -> str:
    """Run a program with the drop-in in place of the real package; returns its output."""
    return run_command(sys.executable, "-c", _RUN_WITH_DROP_IN, _HERE / program, *args)


def run_with_real_package(program: str, *args: str) -> str:
    """Run a program with the real package; returns its output."""
    return run_command(PYTHON, _HERE / program, *args)


def run_command(*command: object) -> str:
    """Run a command and return its output.

    The exit code is ignored, because the real package may crash when its process exits.
    """
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        cwd=ROOT,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout
