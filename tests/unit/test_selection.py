"""Which test runs on which server, seen from a small test suite on a machine without Redis 7.0."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ROOT

CONFTEST = """
from dataclasses import replace
from pathlib import Path
from tests import djangos, peers, postgres, servers

missing = {"redis70"}
servers.BACKENDS = tuple(
    replace(each, find=lambda found=None if each.name in missing else Path("x"): found)
    for each in servers.BACKENDS
)
peers.is_made = lambda: False
postgres.is_there = lambda: False
djangos.is_there = lambda: False
from tests import selection  # takes the servers as they are now

selection.path_of = lambda program: None
pytest_plugins = ["tests.selection"]
"""
SUITE = """
import pytest

def test_plain(): ...

def test_default(backend): ...

@pytest.mark.every_server
def test_every(backend): ...

@pytest.mark.chasquimq
def test_real(backend): ...

@pytest.mark.promtool
def test_metrics(): ...

@pytest.mark.helm
def test_chart(): ...

@pytest.mark.postgres
def test_rows(): ...

@pytest.mark.django6
def test_tasks(): ...
"""
NOTES = [
    "Not tested here: Redis 7.0 (install Debian's redis-server)",
    "Not tested here: chasquimq==1.3.0 (make peers)",
    "Not tested here: PostgreSQL (run make setup-postgres)",
    "Not tested here: Django 6 (run make djangos; needs Python 3.12 or newer)",
    "Not tested here: promtool (install Debian's prometheus)",
    "Not tested here: helm (install helm)",
]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(SUITE)
    return tmp_path


def run(suite: Path, *options: str, ci: str = "") -> tuple[int, list[str], list[str]]:
    """Collect the suite: the exit code, the tests that would run, and what is said beside them."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            *options,
        ],
        cwd=suite,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stdout + done.stderr).splitlines()
    tests = [each.partition("::")[2] for each in lines if "::" in each]
    said = [each for each in lines if each.startswith(("Not tested", "ERROR"))]
    return done.returncode, tests, said


def test_a_test_runs_on_the_default_server_and_with_the_mark_on_every_one(suite: Path) -> None:
    code, tests, said = run(suite)
    assert code == 0
    assert sorted(tests) == [
        "test_default[valkey9]",
        "test_every[redis62]",
        "test_every[redis8]",
        "test_every[valkey9]",
        "test_plain",
    ]
    assert said == NOTES


def test_all_servers_can_be_asked_for(suite: Path) -> None:
    _, tests, _ = run(suite, "--all-servers")
    assert {each for each in tests if "default" in each} == {
        f"test_default[{name}]" for name in ("valkey9", "redis62", "redis8")
    }


def test_one_server_can_be_asked_for(suite: Path) -> None:
    code, tests, said = run(suite, "--backend", "redis8")
    assert (code, said) == (0, [])
    assert sorted(tests) == ["test_default[redis8]", "test_every[redis8]", "test_plain"]


def test_a_missing_server_that_is_asked_for_is_an_error(suite: Path) -> None:
    code, tests, said = run(suite, "--backend", "redis70")
    assert (code, tests) == (pytest.ExitCode.USAGE_ERROR, [])
    assert said == ["ERROR: Missing on this machine: Redis 7.0 (install Debian's redis-server)."]


def test_in_ci_whatever_is_missing_is_an_error(suite: Path) -> None:
    code, _, said = run(suite, ci="true")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert len(said) == 1
    assert "chasquimq==1.3.0 (make peers)" in said[0]
