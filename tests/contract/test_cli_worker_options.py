"""Options of `tampu worker`: imports, log format, results; and the server that it names."""

import json
from pathlib import Path

import pytest

from tests.contract.cli import tampu
from tests.contract.worker_command import SHOP, run_worker
from tests.embedded import end_server
from tests.servers import RunningServer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's app is, and where commands are typed."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_tasks_in_other_modules_are_imported(running: RunningServer, home: Path) -> None:
    package = home / "store"
    package.mkdir()
    (package / "__init__.py").write_text("from tampu import App\napp = App()\n")
    task = "from store import app\n@app.task\nasync def {0}() -> str:\n    return '{0}'\n"
    for module in ("tasks", "more", "named"):
        (package / f"{module}.py").write_text(task.format(f"from_{module}"))
    named = "from tampu import App\nimport store\nstore.app.imports = ['store.named']\n"
    (home / "own.py").write_text(f"{named}app = store.app\n")
    for typed, tasks in {
        ("store:app",): "from_tasks",
        ("store:app", "--import", "store.more"): "from_more",
        ("own:app", "--import", "store.more"): "from_more, from_named",
    }.items():
        with run_worker(running, home, *typed[1:], target=typed[0]) as worker:
            worker.until_up()
            assert f"Tasks      {tasks}\n" in worker.out


async def test_the_log_can_be_json(running: RunningServer, home: Path) -> None:
    with run_worker(running, home, "--log-format", "json") as worker:
        worker.until_up()
        failed = await tampu("enqueue", "shop:app", "fail", "--wait", url=running.url)
        assert failed.code == 1
        worker.until_logged("buried")
    lines = [json.loads(line) for line in worker.err.splitlines()]
    (first,) = [each for each in lines if "failed on attempt" in each["message"]]
    assert (first["level"], first["queue"], first["job_name"]) == ("warning", "default", "fail")
    assert first["traceback"].endswith("ValueError: boom")


@pytest.mark.parametrize(
    ("typed", "kept"), [((), True), (("--no-store-results",), False), (("--store-results",), True)]
)
async def test_results_are_stored_or_not(
    running: RunningServer, home: Path, typed: tuple[str, ...], *, kept: bool
) -> None:
    (home / "shop.py").write_text(SHOP.replace('App(worker={"store_results": True})', "App()"))
    with run_worker(running, home, *typed) as worker:
        worker.until_up()
        wait = ("--wait", "--timeout", "30s" if kept else "1s")
        done = await tampu("enqueue", "shop:app", "add", "-a", "a=1", *wait, url=running.url)
        assert done.code == (0 if kept else 1)


async def test_the_server_is_named_with_how_to_choose_another(home: Path) -> None:
    hint = "(to use another one, set TAMPU_URL=redis://HOST:PORT/DB)"
    looked = await tampu("inspect", columns=200)
    assert looked.lines == [f"Server: embedded:{home}/.tampu {hint}", "There are no queues."]
    chosen = await tampu("inspect", "--url", f"embedded:{home}/.tampu", columns=200)
    assert chosen.lines[0] == f"Server: embedded:{home}/.tampu"
    added = await tampu("enqueue", "shop:app", "add", "-a", "a=1")
    assert added.code == 0
    worked = await tampu("worker", "shop:app", "--burst", columns=200)
    assert f"at embedded:{home}/.tampu {hint}\n" in worked.out
    one = await tampu("inspect", "default", columns=200)
    assert one.lines[0] == f"Server     embedded:{home}/.tampu {hint}"
    end_server(home / ".tampu")
