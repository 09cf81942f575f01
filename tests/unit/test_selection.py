"""Which test runs on which server, seen from a small test suite.

Its machine lacks Redis 7.0, unless a test says otherwise, and all other programs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ROOT

MISSING = "SERVER_THAT_IS_MISSING"
CONFTEST = f"""
import os
from dataclasses import replace
from pathlib import Path
from tests import djangos, peers, postgres, servers

missing = os.environ["{MISSING}"]
servers.BACKENDS = tuple(
    replace(each, find=lambda found=None if each.name == missing else Path("x"): found)
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

@pytest.mark.every_version
def test_version(backend): ...

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


def run(
    suite: Path, *options: str, ci: str = "", lacks: str = "redis70"
) -> tuple[int, list[str], list[str]]:
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
        env=os.environ | {"PYTHONPATH": str(ROOT), "CI": ci, MISSING: lacks},
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
        "test_version[redis62]",
        "test_version[redis8]",
        "test_version[valkey9]",
    ]
    assert said == NOTES


@pytest.mark.parametrize(
    ("lacks", "every", "version"),
    [
        ("nothing", {"valkey9", "redis62", "redis8"}, {"valkey9", "redis62", "redis70", "redis8"}),
        ("redis8", {"valkey9", "redis62", "redis70"}, {"valkey9", "redis62", "redis70"}),
        ("redis62", {"valkey9", "redis70", "redis8"}, {"valkey9", "redis70", "redis8"}),
    ],
)
def test_what_differs_from_version_to_version_runs_on_those_between_too(
    suite: Path, lacks: str, every: set[str], version: set[str]
) -> None:
    _, tests, _ = run(suite, lacks=lacks)
    assert {each for each in tests if "every" in each} == {f"test_every[{name}]" for name in every}
    assert {each for each in tests if "version" in each} == {
        f"test_version[{name}]" for name in version
    }


def test_all_servers_can_be_asked_for(suite: Path) -> None:
    _, tests, _ = run(suite, "--all-servers")
    assert {each for each in tests if "default" in each} == {
        f"test_default[{name}]" for name in ("valkey9", "redis62", "redis8")
    }


def test_one_server_can_be_asked_for(suite: Path) -> None:
    code, tests, said = run(suite, "--backend", "redis8")
    assert (code, said) == (0, [])
    assert sorted(tests) == [
        "test_default[redis8]",
        "test_every[redis8]",
        "test_plain",
        "test_version[redis8]",
    ]


def test_a_missing_server_that_is_asked_for_is_an_error(suite: Path) -> None:
    code, tests, said = run(suite, "--backend", "redis70")
    assert (code, tests) == (pytest.ExitCode.USAGE_ERROR, [])
    assert said == ["ERROR: Missing on this machine: Redis 7.0 (install Debian's redis-server)."]


def test_in_ci_whatever_is_missing_is_an_error(suite: Path) -> None:
    code, _, said = run(suite, ci="true")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert len(said) == 1
    assert "chasquimq==1.3.0 (make peers)" in said[0]
