"""The types that users see, held by both type checkers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ROOT

HERE = Path(__file__).parent
LIMIT_S = 180  # of a first run, beside others
FILES = [str(each) for each in sorted(HERE.glob("*.py")) if not each.name.startswith("test_")]

pytestmark = pytest.mark.timeout(LIMIT_S + 10)


def _run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return f"{done.stdout}{done.stderr}".strip()


def test_mypy_infers_the_documented_types() -> None:
    printed = _run("mypy", "--no-error-summary", *FILES)
    assert printed == ""


def test_pyright_infers_the_documented_types(tmp_path: Path) -> None:
    settings = {
        "include": FILES,
        "typeCheckingMode": "standard",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "enableTypeIgnoreComments": False,
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "src")],
    }
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings), "utf-8")
    printed = _run("basedpyright", "--project", str(project), "--pythonpath", sys.executable)
    assert printed.splitlines()[-1] == "0 errors, 0 warnings, 0 notes", printed
