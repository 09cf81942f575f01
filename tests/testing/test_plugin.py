"""The plugin in other people's test suites, each run by a pytest of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

APP = """
from tampu import App

app = App("redis://192.0.2.1")
log = []

@app.task
async def note(text: str) -> str:
    log.append(text)
    return text.upper()
"""
PLAIN = """
from tampu.testing import Kit
from shop import app, log, note

def test_plain(tampu: Kit):
    with tampu.use(app) as jobs:
        note.options(delay="3d").enqueue_sync("plain")
        jobs.assert_enqueued(note, "plain", delay="3d")
        jobs.travel("3d")
    assert log.pop() == "plain"
"""
ASYNC = """
import pytest
from shop import app, log, note

async def check(tampu):
    async with tampu.use(app) as jobs:
        job = await note.enqueue("async")
        await jobs.run()
        assert await job.result() == "ASYNC"
    assert log.pop() == "async"
"""
STRICT = """
@pytest.mark.asyncio
async def test_asyncio(tampu):
    await check(tampu)

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_anyio(tampu):
    await check(tampu)
"""
AUTO = """
@pytest.fixture
async def jobs(tampu):
    async with tampu.use(app) as jobs:
        yield jobs

@pytest.mark.parametrize("number", range(4))
async def test_auto(jobs, number):
    assert jobs.enqueued() == []
    await note.enqueue("auto")
    assert [each.value for each in await jobs.run()] == ["AUTO"]
"""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a suite with some options; what it printed. Nothing may be left of its server."""

    def run_suite(*options: str, **files: str) -> str:
        (tmp_path / "home").mkdir()
        (tmp_path / "shop.py").write_text(APP)
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        scope = "asyncio_default_fixture_loop_scope=function"
        command = [sys.executable, "-W", "error", "-m", "pytest", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "-p", "no:valkey", "-W", "error", "-o", scope, *options],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path / "home"), "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert list((tmp_path / "home").glob("tampu-testing-*")) == []
        return done.stdout + done.stderr

    return run_suite


def test_plain_asyncio_and_anyio_tests_can_use_it(run: Run) -> None:
    printed = run("-o", "asyncio_mode=strict", test_plain=PLAIN, test_async=ASYNC + STRICT)
    assert "3 passed" in printed, printed


def test_auto_mode_fixtures_and_several_processes(run: Run) -> None:
    printed = run("-o", "asyncio_mode=auto", "-n", "2", test_plain=PLAIN, test_auto=ASYNC + AUTO)
    assert "5 passed" in printed, printed


def test_it_can_be_left_out(run: Run) -> None:
    text = "def test_fixture(tampu): ...\ndef test_other(): ..."
    printed = run("-p", "no:tampu", test_without=text)
    assert "1 passed, 1 error" in printed, printed
    assert "fixture 'tampu' not found" in printed


def test_another_server_can_be_used(run: Run) -> None:
    conftest = (
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def tampu_url():\n"
        "    return 'redis://127.0.0.1:1/5'\n"
    )
    printed = run(conftest=conftest, test_plain=PLAIN)
    assert "ServerUnreachable: Cannot connect to redis://127.0.0.1:1/5" in printed, printed


def test_a_failed_assertion_shows_the_line_of_the_test(run: Run) -> None:
    text = PLAIN.replace('delay="3d")\n        jobs.travel', 'delay="4d")\n        jobs.travel')
    printed = run(test_plain=text)
    shown = [line.split() for line in printed.splitlines()]
    assert [">", "jobs.assert_enqueued(note,", '"plain",', 'delay="4d")'] in shown, printed
    assert "AssertionError: note(text='plain'), due in 4d is not enqueued." in printed
    assert "SyncJobs" not in printed, "frames of the kit are hidden"


def test_the_plugin_imports_little() -> None:
    look = (
        "import sys, tampu.testing.plugin, tampu.testing;"
        "print(sorted({'redis', 'msgspec', 'asyncio', 'tampu.app'} & set(sys.modules)))"
    )
    without = "import sys, pytest; print(sorted({'asyncio'} & set(sys.modules)))"
    loaded, usual = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for code in (look, without)
    )
    assert loaded.stdout == usual.stdout


def test_the_server_of_a_program_ends_with_it(tmp_path: Path) -> None:
    program = (
        "import asyncio\n"
        "from tampu import App\n"
        "from tampu.testing import use\n"
        "async def main():\n"
        "    async with use(App()) as jobs:\n"
        "        print(await jobs.run())\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert list(tmp_path.glob("tampu-testing-*")) == []
