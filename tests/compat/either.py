"""Programs for either package, run with the real one or with ours in its place."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.golden.chasquimq import golden
from tests.peers import PYTHON
from tests.servers import ROOT

GOLDEN: Final = {each.values[0]["case"]: each.values[0]["raised"] for each in golden("errors")}
"""What the real package raises, by the case."""

_HERE: Final = Path(__file__).parent
_LIMIT_S: Final = 60
_IN_ITS_PLACE: Final = """
import runpy, sys
import tampu.compat.chasquimq
sys.modules["chasquimq"] = tampu.compat.chasquimq
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def with_ours(program: str, *args: str) -> str:
    """What a program prints with ours in place of the real package."""
    return printed_by(sys.executable, "-c", _IN_ITS_PLACE, _HERE / program, *args)


def with_theirs(program: str, *args: str) -> str:
    """What a program prints with the real package."""
    return printed_by(PYTHON, _HERE / program, *args)


def printed_by(*command: object) -> str:
    """What a command prints. How it ends does not count: the real package may crash at its exit."""
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
