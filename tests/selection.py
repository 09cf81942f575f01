"""Which server each test runs on. A plugin of pytest; `tests/conftest.py` names it.

A test that takes a server runs on the default one, Valkey 9. With the mark `every_server` it also
runs on the oldest Redis and on the newest one of this machine: what works on both works on those
between. With the mark `every_version` it runs on these too: it is about something that changed from
version to version. With the mark `chasquimq` it runs where the real ChasquiMQ can, with the mark
`browser` where there is one, and with the marks `postgres`, `django6`, `promtool` and `helm` where
these are installed. `--all-servers` runs every test on every server, and `--backend NAME` runs
every test on that one.

A test whose server, browser or program is missing is left out, and the run ends with one line about
it. With CI=true, what should be there and is missing fails the run before the first test.
"""

import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import browsers, djangos, peers, postgres
from tests.servers import BACKENDS, IN_CI, Backend

EVERY_SERVER = "every_server"
EVERY_VERSION = "every_version"
CHASQUIMQ = "chasquimq"
PROMTOOL = "promtool"
HELM = "helm"
_MARKS = {
    EVERY_SERVER: "the behaviour depends on the server: on Valkey, the oldest and the newest Redis",
    EVERY_VERSION: "it is about what changed from version to version: on those between as well",
    CHASQUIMQ: "the test needs the real ChasquiMQ, and so Redis 8.6 or later",
    PROMTOOL: "the test needs the program promtool, of Prometheus",
    HELM: "the test needs the program helm, which a wheel has for Linux on x86-64",
    postgres.MARK: "the test needs PostgreSQL",
    djangos.MARK: "the test needs Django 6, in environments of its own",
    browsers.MARK: "the test needs a browser; every test in tests/browser has this mark",
}
_PROGRAMS = {PROMTOOL: "install Debian's prometheus", HELM: "install helm"}


def pytest_addoption(parser: pytest.Parser) -> None:
    names = [each.name for each in BACKENDS]
    parser.addoption("--backend", choices=names, help="run every test on this server only")
    parser.addoption("--all-servers", action="store_true", help="run every test on every server")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in _MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    errors = [title for title, is_error in missing(config.getoption("--backend")) if is_error]
    if errors:
        raise pytest.UsageError(f"Missing on this machine: {', '.join(errors)}.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        chosen = servers_of(metafunc.definition)
        metafunc.parametrize("backend", chosen, ids=lambda each: each.name, scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [each for each in items if can_run(each)]


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    for title, _ in missing(terminalreporter.config.getoption("--backend")):
        terminalreporter.write_line(f"Not tested here: {title}")


def servers_of(item: pytest.Item) -> list[Backend]:
    """The servers that a test is meant for, whether they are there or not."""
    only = item.config.getoption("--backend")
    if only is not None:
        return [each for each in BACKENDS if each.name == only]
    if item.get_closest_marker(CHASQUIMQ) is not None:
        return [each for each in BACKENDS if peers.can_run_on(each)]
    if item.config.getoption("--all-servers") or item.get_closest_marker(EVERY_VERSION) is not None:
        return list(BACKENDS)
    if item.get_closest_marker(EVERY_SERVER) is not None:
        between = versions_between()
        return [each for each in BACKENDS if each not in between]
    return [default_server()]


@cache
def versions_between() -> list[Backend]:
    """The versions of Redis on this machine that are neither its oldest nor its newest."""
    there = [each for each in BACKENDS if each.is_redis and each.find() is not None]
    return sorted(there, key=lambda each: each.version)[1:-1]


@cache
def default_server() -> Backend:
    """The first server that is there: Valkey 9, unless there is no wheel of it."""
    return next((each for each in BACKENDS if each.find() is not None), BACKENDS[0])


def backend_of(item: pytest.Item) -> Backend | None:
    """The server that a collected test runs on, if it takes one."""
    callspec = getattr(item, "callspec", None)
    found = None if callspec is None else callspec.params.get("backend")
    return found if isinstance(found, Backend) else None


def can_run(item: pytest.Item) -> bool:
    """Whether this machine has what a collected test needs."""
    if not all(has_program(each.name) for each in item.iter_markers()):
        return False
    backend = backend_of(item)
    if backend is not None and backend.find() is None:
        return False
    if item.get_closest_marker(CHASQUIMQ) is None:
        return True
    return peers.is_made() and (backend is None or peers.can_run_on(backend))


@cache
def has_program(mark: str) -> bool:
    """Whether this machine has what the mark stands for, if it stands for a program."""
    match mark:
        case browsers.MARK:
            return browsers.is_there()
        case postgres.MARK:
            return postgres.is_there()
        case djangos.MARK:
            return djangos.is_there()
        case _:
            return mark not in _PROGRAMS or path_of(mark) is not None


def path_of(program: str) -> str | None:
    """Where a program is that checks files: beside our Python, or where the system has it."""
    own = Path(sys.executable).with_name(program)
    return str(own) if own.is_file() else shutil.which(program)


def missing(only: str | None) -> Iterator[tuple[str, bool]]:
    """What this machine lacks, and whether that is an error: it was asked for, or this is CI."""
    for each in BACKENDS:
        if only in {None, each.name} and each.find() is None:
            yield f"{each.title} ({each.remedy})", only is not None or each.must_be_there()
    if only is not None:
        return
    ready = {
        f"{peers.PACKAGE} (make peers)": peers.is_made,
        browsers.TITLE: browsers.is_there,
        postgres.TITLE: postgres.is_there,
        djangos.TITLE: djangos.is_there,
    }
    for title, is_there in ready.items():
        if not is_there():
            yield title, IN_CI
    for program, remedy in _PROGRAMS.items():
        if path_of(program) is None:
            yield f"{program} ({remedy})", False
