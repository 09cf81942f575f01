"""What runs where: nothing but some commands needs more than Python on Windows has."""

import re
import subprocess
import sys
import tomllib

import pytest

from tampu.cli.main import COMMANDS, main
from tests.guide.pages import GUIDE
from tests.servers import ROOT

# Modules of the standard library choose by the platform too, so they are imported before.
AS_ON_WINDOWS = """
import asyncio, concurrent.futures, http.client, multiprocessing.connection, signal, sqlite3
import ssl, subprocess, sys, sysconfig, tempfile
import jinja2, redis.asyncio, rich.console, rich.table, starlette.applications, typer, uvicorn

sysconfig.get_config_vars()
MISSING = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "uvloop"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for name in MISSING:
    sys.modules.pop(name, None)
sys.platform = "win32"
import tampu
for name in tampu.__all__:
    getattr(tampu, name)
import tampu.dashboard, tampu.testing, tampu.scheduler, tampu.standalone
import tampu.cli.enqueue, tampu.cli.inspect, tampu.cli.jobs, tampu.cli.dead
"""


def test_programs_can_import_everything_on_windows() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["worker", "serve-time", "watch", "dashboard", "server", "demo"])
def test_a_command_that_cannot_run_on_windows_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name in COMMANDS
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "argv", ["tampu", name])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"`tampu {name}` needs Linux or macOS" in capsys.readouterr().err


def test_the_page_names_the_pythons_of_the_package() -> None:
    page = (GUIDE / "platforms.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r":: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    for version in named:
        assert version in page
    assert project["requires-python"] == f">={named[0]}"
