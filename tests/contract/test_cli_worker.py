"""`tampu worker` in one process: its output, its end, its health."""

import asyncio
import json
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tampu import CancelState, Queue
from tests.contract.cli import tampu
from tests.contract.worker_command import SHOP, SOON, run_worker
from tests.servers import RunningServer, free_port
from tests.waiting import wait_until


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's app is, and where commands are typed."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def get_json(url: str) -> tuple[int, Any]:
    """The status and the body of a response."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - ours
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z (INFO|WARNING|ERROR) \d+ tampu[\w.]*: \S")


@pytest.mark.every_server
async def test_it_prints_its_tasks_and_stops_on_a_signal(
    running: RunningServer, home: Path
) -> None:
    with run_worker(running, home, "-q", "default=7", "--queue", "mail") as worker:
        worker.until_up()
        lines = {line[:11].strip(): line[11:] for line in worker.out.splitlines()}
        assert list(lines) == ["Version", "Server", "Features", "Tasks", "Queues", "Processes"]
        assert lines["Server"].endswith(f" at {running.url}")
        assert lines["Tasks"] == "add, block, fail, grow, nap, who"
        assert (lines["Queues"], lines["Processes"]) == ("default=7, mail=100", "1")
        done = await tampu("enqueue", "shop:app", "add", "-a", "a=2", "--wait", url=running.url)
        assert (done.code, done.lines[1]) == (0, "3")
        assert worker.stop() == 0
        assert "stopping (told to stop); running jobs get 25 s to finish" in worker.err
        assert "no task of shop:app uses queue 'mail'; its tasks use default" in worker.err


async def test_the_start_is_a_line_of_json_or_nothing_and_never_shows_a_password(
    running: RunningServer, home: Path
) -> None:
    url = running.url.replace("//", "//somebody:sesame@")
    with running.admin() as admin:
        admin.execute_command("ACL SETUSER somebody on >sesame ~* &* +@all")
    with run_worker(running, home, "--json", "--burst", "--url", url) as worker:
        assert worker.wait() == 0
        shape = json.loads(worker.out)
        assert list(shape) == [
            *("tampu", "server", "version", "can", "tasks", "queues", "processes", "grace_s")
        ]
        assert (shape["queues"], shape["processes"]) == ({"default": 100}, 1)
        assert "sesame" not in worker.out + worker.err
    with run_worker(running, home, "--quiet", "--burst") as worker:
        assert (worker.wait(), worker.out) == (0, "")


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_returns_running_jobs_at_once(
    running: RunningServer, home: Path, told: signal.Signals
) -> None:
    runs = home / "runs"
    with run_worker(running, home, "--grace", "10m") as worker:
        async with Queue("default", running.url) as queue:
            await queue.add("nap", {"path": str(runs)})
            await queue.add("block", {"path": str(home / "blocking")})
            await wait_until(
                lambda: runs.exists() and (home / "blocking").exists(),
                within=SOON,
                sentence="both run",
            )
            worker.signal(told)
            worker.until_logged("stopping (told to stop)")
            assert (await queue.counts()).active == 2
            worker.signal(told)
            assert worker.wait() == 0
            counts = await queue.counts()
            assert (counts.waiting, counts.active) == (2, 0)
    assert "second signal: returning running jobs to their queues" in worker.err
    assert "functions still run in 1 threads" in worker.err
    with run_worker(running, home) as worker:
        await wait_until(
            lambda: runs.read_text().splitlines() == ["begun 1"] * 2,
            within=SOON,
            sentence="it is run again, as if for the first time",
        )


async def test_a_signal_while_it_starts_ends_it(running: RunningServer, home: Path) -> None:
    (home / "slow.py").write_text(
        SHOP.replace("App(", "App(lifespan=lifespan, ").replace(
            "app = ",
            "from contextlib import asynccontextmanager\n"
            "@asynccontextmanager\n"
            "async def lifespan(app):\n"
            "    Path('begun').touch()\n"
            "    await asyncio.sleep(60)\n"
            "    yield\n\n"
            "app = ",
        )
    )
    with run_worker(running, home, target="slow:app") as worker:
        worker.until((home / "begun").exists, "the lifespan has begun")
        assert worker.stop() == 0
        assert worker.out == ""


async def test_burst_stops_when_no_job_waits_runs_or_is_due(
    running: RunningServer, home: Path
) -> None:
    async with Queue("default", running.url) as queue:
        await queue.add_each("add", [{"a": n} for n in range(50)])
        await queue.add("add", {"a": 1}, delay=0.2)
        later = await queue.add("add", {"a": 1}, delay="1h")
        last = await queue.add("who")
        with run_worker(running, home, "--burst") as worker:
            assert worker.wait() == 0
            assert "stopping (nothing left to do)" in worker.err
        assert await queue.job(last.id).result(1)
        counts = await queue.counts()
        assert (counts.waiting, counts.active) == (0, 0)
        assert await queue.job(later.id).cancel() is CancelState.CANCELLED


@pytest.mark.parametrize(
    ("option", "job"), [(("--max-jobs", "5"), "add"), (("--max-rss", "160MB"), "grow")]
)
async def test_a_process_stops_at_its_limit_of_jobs_or_memory(
    running: RunningServer, home: Path, option: tuple[str, str], job: str
) -> None:
    with run_worker(running, home, *option) as worker:
        worker.until_up()
        async with Queue("default", running.url) as queue:
            data: list[dict[str, int]] = [{"a": 1}] * 5 if job == "add" else [{"mib": 200}]
            await queue.add_each(job, data)
            assert worker.wait() == 0
            assert "stopping (recycled)" in worker.err
            counts = await queue.counts()
            assert (counts.waiting, counts.active) == (0, 0)


async def test_health_is_shown_by_a_file_and_a_port(running: RunningServer, home: Path) -> None:
    port, file = free_port(), home / "healthy"
    base = f"http://127.0.0.1:{port}"
    options = ("--health-port", str(port), "--health-file", str(file))
    with run_worker(running, home, *options, "--grace", "10m") as worker:
        worker.until(file.exists, "the file is there")
        status, body = get_json(f"{base}/ready")
        assert (status, body["live"], body["ready"], body["running"]) == (200, True, True, 0)
        assert 0 <= body["server_seen_s_ago"] < 10
        assert get_json(f"{base}/live")[0] == 200
        assert get_json(f"{base}/other")[0] == 404
        first = file.stat().st_mtime_ns
        worker.until(lambda: file.stat().st_mtime_ns > first, "it is touched again")
        async with Queue("default", running.url) as queue:
            await queue.add("nap", {"path": str(home / "runs")})
        worker.until(lambda: get_json(f"{base}/ready")[1]["running"] == 1, "a job runs")
        worker.signal(signal.SIGTERM)
        worker.until(lambda: get_json(f"{base}/ready")[0] == 503, "it takes no more")
        status, body = get_json(f"{base}/live")
        assert (status, body["stopping"]) == (200, True)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert not file.exists()
        assert not listens(port)


async def test_it_is_not_ready_during_an_outage_of_the_server(
    running: RunningServer, home: Path
) -> None:
    port = free_port()
    with run_worker(running, home, "--health-port", str(port)) as worker:
        worker.until_up()
        running.pause()
        try:
            ready = f"http://127.0.0.1:{port}/ready"
            await asyncio.to_thread(
                worker.until, lambda: get_json(ready)[0] == 503, "it is not ready"
            )
            assert get_json(f"http://127.0.0.1:{port}/live")[0] == 200
        finally:
            running.resume()
        await asyncio.to_thread(worker.until, lambda: get_json(ready)[0] == 200, "it is back")


async def test_the_log_has_a_line_for_each_record_and_no_payload(
    running: RunningServer, home: Path
) -> None:
    with run_worker(running, home, "--log-level", "info") as worker:
        async with Queue("default", running.url) as queue:
            await queue.add("fail", {"note": "secret"})
        worker.until_logged(" WARNING ")
        assert worker.stop() == 0
    assert "secret" not in worker.err
    for line in worker.err.splitlines():
        assert line.startswith("    ") or LOG_LINE.match(line), line


WRONG = {
    ("nothing:app",): "There is no module 'nothing' in this directory or on the Python path.",
    ("shop.deep:app",): "There is no module 'shop.deep' in this directory or on the Python path.",
    ("shop:ap",): "Module 'shop' has no attribute 'ap'. Did you mean 'app'?",
    ("shop:app.xyzzy",): "Module 'shop' has no attribute 'app.xyzzy'.",
    ("shop:add",): "shop:add is not an App but of type AsyncTask.",
    ("./shop.py:app",): "'./shop.py' is not the name of a module. Did you mean shop:app?",
    ("in/shop",): "'in/shop' is not the name of a module. Did you mean in.shop:app?",
    ("made:make",): "made:make is not an App but of type function. Call it in the module: "
    "app = make()",
    ("shop.py",): "There is no module 'shop.py' in this directory or on the Python path. "
    "Did you mean shop:app?",
    ("shop.app",): "There is no module 'shop.app' in this directory or on the Python path. "
    "Did you mean shop:app?",
    (":app",): "':app' names no app. Write MODULE:APP, such as shop:app.",
    ("shop:",): "'shop:' names no app. Write MODULE:APP, such as shop:app.",
    ("none",): "Module 'none' contains no App. Write MODULE:APP.",
    ("two",): "Module 'two' contains several apps. Write two:app or two:other.",
    ("empty",): "empty has no tasks. Declare them with @app.task in its module, or name the "
    'modules that do: --import empty.tasks, or App(imports=["empty.tasks"]).',
    ("shop", "--import", "nowhere"): "There is no module 'nowhere' in this directory or on the",
    ("shop", "--log-format", "xml"): "--log-format",
    ("shop", "-q", "a=0"): "Invalid --queue 'a=0': expected NAME or NAME=CONCURRENCY, such as "
    "emails=50, up to 100000.",
    ("shop", "-q", "a", "-q", "a=1"): "Invalid --queue 'a=1': must be given only once.",
    ("shop", "-q", "a b=1"): "Invalid --queue 'a b': ",
    ("shop", "--max-rss", "much"): "Invalid --max-rss 'much': expected a size such as 512MB, "
    "1.5GiB or 1000000.",
    ("shop", "--grace", "soon"): "Invalid --grace 'soon': expected ",
    ("shop", "--burst", "--reload"): "--reload cannot be combined with --burst.",
    ("shop", "--processes", "0"): "--processes",
    ("shop", "--health-file", "no/such/file"): "Invalid --health-file 'no/such/file': expected "
    "a file in a directory that can be written to.",
    ("shop", "--health-file", "."): "Invalid --health-file '.': expected a file",
    ("shop", "--log-level", "loud"): "--log-level",
}


LIFESPAN = """\
from contextlib import asynccontextmanager

from tampu import App


@asynccontextmanager
async def lifespan(app):
    raise RuntimeError("no database")
    yield


app = App(lifespan=lifespan)


@app.task
async def rest(): ...
"""


@pytest.mark.parametrize("typed", WRONG, ids=" ".join)
async def test_wrong_usage_is_one_sentence_and_exit_code_2(
    typed: tuple[str, ...], home: Path
) -> None:
    (home / "none.py").write_text("app = 1\n")
    (home / "made.py").write_text("def make() -> None: ...\n")
    (home / "two.py").write_text("from tampu import App\napp, other = App(), App()\n")
    (home / "empty.py").write_text("from tampu import App\napp = again = App()\n")
    done = await tampu("worker", *typed, url="redis://127.0.0.1:1/0")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("tampu: ")
    assert WRONG[typed] in done.err


async def test_a_port_that_is_taken_is_exit_code_2(running: RunningServer, home: Path) -> None:
    done = await tampu("worker", "shop", "--health-port", str(running.port), url=running.url)
    assert (done.code, done.out) == (2, "")
    why = "cannot listen on 127.0.0.1 (Address already in use)"
    assert done.err == f"tampu: Invalid --health-port {running.port}: {why}.\n"


@pytest.mark.parametrize(
    ("source", "raised"),
    [
        ("import no_such_package\n", "ModuleNotFoundError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def oops(:\n", "SyntaxError"),
    ],
)
async def test_an_error_in_the_users_module_is_shown_with_its_traceback(
    home: Path, source: str, raised: str
) -> None:
    (home / "broken.py").write_text(source)
    done = await tampu("worker", "broken:app", url="redis://127.0.0.1:1/0")
    assert (done.code, done.out) == (2, "")
    assert f"{home}/broken.py" in done.err
    assert "importlib" not in done.err
    last = done.err.splitlines()[-1]
    assert last == f"tampu: Cannot import module 'broken': it raised {raised}."


async def test_an_error_in_the_lifespan_is_shown_from_the_users_code_on(
    running: RunningServer, home: Path
) -> None:
    (home / "broken.py").write_text(LIFESPAN)
    for options in ((), ("--processes", "2")):
        done = await tampu("worker", "broken:app", *options, url=running.url)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f'Traceback (most recent call last):\n  File "{home}/broken.py"')
        assert done.err.splitlines()[-2:] == [
            "RuntimeError: no database",
            "tampu: Cannot run the app: it raised RuntimeError.",
        ]


async def test_the_supervisor_reports_a_first_process_that_dies_silently(home: Path) -> None:
    (home / "broken.py").write_text("import os\nos._exit(9)\n")
    done = await tampu("worker", "broken:app", "--processes", "2")
    sentence = "tampu: The first worker process did not start: exit code 9.\n"
    assert (done.code, done.out, done.err) == (1, "", sentence)


async def test_an_unreachable_server_is_exit_code_3(home: Path) -> None:
    for options in ((), ("--processes", "2")):
        done = await tampu("worker", "shop:app", *options, url="redis://127.0.0.1:1/0")
        assert (done.code, done.out) == (3, "")
        assert done.err.count("tampu: Cannot connect to redis://127.0.0.1:1/0") == 1


async def test_an_idle_worker_does_not_wait_for_its_grace_period(
    running: RunningServer, home: Path
) -> None:
    with run_worker(running, home, "--grace", "10m") as worker:
        worker.until_up()
        assert worker.stop() == 0
