"""The commands of a fresh clone."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ROOT

OLD_PYTHON = f"""#!{sys.executable}
import sys
sys.version_info, sys.version = (3, 10, 4), "3.10.4 (main)"
assert sys.argv[1] == "-c", "it makes an environment"
exec(sys.argv[2])
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize("command", ["demo", "setup"])
def test_an_old_python_is_refused_before_an_environment_is_made(
    tmp_path: Path, command: str
) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python3.10"
    old.write_text(OLD_PYTHON)
    old.chmod(0o755)
    made = subprocess.run(
        ["make", command, f"PYTHON={old}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode != 0
    assert f"tampu needs Python 3.11 or newer, and {old} is 3.10.4." in made.stderr
    assert not (tmp_path / ".venv").exists()
