"""`tampu worker` in one process: what it says, how it ends, how it is seen."""

import asyncio
import json
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tampu import Queue
from tests.contract.cli import tampu
from tests.contract.commanded import SHOP, SOON, commanded
from tests.servers import RunningServer, free_port
from tests.waiting import wait_until


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's app is, and where commands are typed."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(url: str) -> tuple[int, Any]:
    """The status and the body of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - ours
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.every_server
async def test_on_every_server_it_shows_what_it_runs_and_ends_when_told(
    running: RunningServer, home: Path
) -> None:
    with commanded(running, home, "-q", "default=7", "--queue", "mail") as worker:
        worker.until_up()
        lines = {line[:13].strip(): line[13:] for line in worker.out.splitlines()}
        assert list(lines) == ["tampu", "server", "it also has", "tasks", "queues", "runs in"]
        assert lines["server"].endswith(f" at {running.url}")
        assert lines["tasks"] == "add, block, fail, grow, nap, who"
        assert (lines["queues"], lines["runs in"]) == ("default=7, mail=100", "this process")
        done = await tampu("enqueue", "shop:app", "add", "-a", "a=2", "--wait", url=running.url)
        assert (done.code, done.lines[1]) == (0, "3")
        assert worker.stop() == 0
        assert "reason=told grace_s=25.0" in worker.err


async def test_the_banner_is_a_line_of_json_or_nothing_and_never_has_a_password(
    running: RunningServer, home: Path
) -> None:
    url = running.url.replace("127", "somebody:sesame@127")
    with running.admin() as admin:
        admin.execute_command("ACL SETUSER somebody on >sesame ~* &* +@all")
    with commanded(running, home, "--json", "--burst", "--url", url) as worker:
        assert worker.ended() == 0
        shape = json.loads(worker.out)
        assert list(shape) == [
            *("tampu", "server", "version", "can", "tasks", "queues", "processes", "grace_s")
        ]
        assert (shape["queues"], shape["processes"]) == ({"default": 100}, 1)
        assert "sesame" not in worker.out + worker.err
    with commanded(running, home, "--quiet", "--burst") as worker:
        assert (worker.ended(), worker.out) == (0, "")


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_hands_running_jobs_back_at_once(
    running: RunningServer, home: Path, told: signal.Signals
) -> None:
    runs = home / "runs"
    with commanded(running, home, "--grace", "10m") as worker:
        async with Queue("default", running.url) as queue:
            await queue.add("nap", {"path": str(runs)})
            await queue.add("block", {"path": str(home / "blocking")})
            await wait_until(
                lambda: runs.exists() and (home / "blocking").exists(),
                within=SOON,
                sentence="both run",
            )
            worker.signal(told)
            worker.until_said("ending reason=told")
            assert (await queue.counts()).active == 2
            worker.signal(told)
            assert worker.ended() == 0
            counts = await queue.counts()
            assert (counts.waiting, counts.active) == (2, 0)
    assert "running jobs go back to their queues" in worker.err
    assert "functions that still run in threads threads=1" in worker.err
    with commanded(running, home) as worker:
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
    with commanded(running, home, target="slow:app") as worker:
        worker.until((home / "begun").exists, "the lifespan has begun")
        assert worker.stop() == 0
        assert worker.out == ""


async def test_burst_ends_when_nothing_waits_runs_or_is_due(
    running: RunningServer, home: Path
) -> None:
    async with Queue("default", running.url) as queue:
        await queue.add_each("add", [{"a": n} for n in range(50)])
        await queue.add("add", {"a": 1}, delay=0.2)
        later = await queue.add("add", {"a": 1}, delay="1h")
        last = await queue.add("who")
        with commanded(running, home, "--burst") as worker:
            assert worker.ended() == 0
            assert "ending reason=empty" in worker.err
        assert await queue.result(last.id, 1)
        counts = await queue.counts()
        assert (counts.waiting, counts.active) == (0, 0)
        assert await queue.cancel(later.id)


@pytest.mark.parametrize(
    ("option", "job"), [(("--max-jobs", "5"), "add"), (("--max-rss", "160MB"), "grow")]
)
async def test_a_process_ends_after_so_many_jobs_or_so_much_memory(
    running: RunningServer, home: Path, option: tuple[str, str], job: str
) -> None:
    with commanded(running, home, *option) as worker:
        worker.until_up()
        async with Queue("default", running.url) as queue:
            data: list[dict[str, int]] = [{"a": 1}] * 5 if job == "add" else [{"mib": 200}]
            await queue.add_each(job, data)
            assert worker.ended() == 0
            assert "ending reason=recycled" in worker.err
            counts = await queue.counts()
            assert (counts.waiting, counts.active) == (0, 0)


async def test_health_is_shown_by_a_file_and_a_port(running: RunningServer, home: Path) -> None:
    port, file = free_port(), home / "healthy"
    base = f"http://127.0.0.1:{port}"
    options = ("--health-port", str(port), "--health-file", str(file))
    with commanded(running, home, *options, "--grace", "10m") as worker:
        worker.until(file.exists, "the file is there")
        status, body = asked(f"{base}/ready")
        assert (status, body["live"], body["ready"], body["running"]) == (200, True, True, 0)
        assert 0 <= body["server_seen_s_ago"] < 10
        assert asked(f"{base}/live")[0] == 200
        assert asked(f"{base}/other")[0] == 404
        first = file.stat().st_mtime_ns
        worker.until(lambda: file.stat().st_mtime_ns > first, "it is touched again")
        async with Queue("default", running.url) as queue:
            await queue.add("nap", {"path": str(home / "runs")})
        worker.until(lambda: asked(f"{base}/ready")[1]["running"] == 1, "a job runs")
        worker.signal(signal.SIGTERM)
        worker.until(lambda: asked(f"{base}/ready")[0] == 503, "it takes no more")
        status, body = asked(f"{base}/live")
        assert (status, body["stopping"]) == (200, True)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
        assert not file.exists()
        assert not listens(port)


async def test_a_server_that_is_away_makes_it_not_ready(running: RunningServer, home: Path) -> None:
    port = free_port()
    with commanded(running, home, "--health-port", str(port)) as worker:
        worker.until_up()
        running.pause()
        try:
            ready = f"http://127.0.0.1:{port}/ready"
            await asyncio.to_thread(
                worker.until, lambda: asked(ready)[0] == 503, "it knows that it is cut off"
            )
            assert asked(f"http://127.0.0.1:{port}/live")[0] == 200
        finally:
            running.resume()
        await asyncio.to_thread(worker.until, lambda: asked(ready)[0] == 200, "it is back")


async def test_the_log_has_a_line_a_record_and_no_payload(
    running: RunningServer, home: Path
) -> None:
    with commanded(running, home, "--log-level", "info") as worker:
        async with Queue("default", running.url) as queue:
            await queue.add("fail")
        worker.until_said("a job was buried")
        assert worker.stop() == 0
    assert "an attempt failed job_id=" in worker.err
    assert "error_type=ValueError" in worker.err
    assert "secret" not in worker.err
    assert all(line.startswith("20") and "Z " in line for line in worker.err.splitlines())


WRONG = {
    ("nothing:app",): "there is no module 'nothing' in this directory or on the path (PYTHONPATH).",
    ("shop.deep:app",): "there is no module 'shop.deep' in this directory or on the path "
    "(PYTHONPATH).",
    ("shop:ap",): "module 'shop' has no 'ap'; did you mean 'app'?",
    ("shop:app.xyzzy",): "module 'shop' has no 'app.xyzzy'.",
    ("shop:add",): "shop:add is no App, but of type AsyncTask.",
    ("./shop.py:app",): "'./shop.py' is no module; one goes by its name alone, such as shop:app.",
    ("in/shop",): "'in/shop' is no module; one goes by its name alone, such as in.shop:app.",
    ("made:make",): "made:make is no App, but of type function; call it in the module: "
    "app = make().",
    ("shop.py",): "there is no module 'shop.py' in this directory or on the path (PYTHONPATH); "
    "a module goes by its name alone, such as shop:app.",
    ("shop.app",): "there is no module 'shop.app' in this directory or on the path (PYTHONPATH); "
    "did you mean shop:app?",
    (":app",): "':app' names no app; it is MODULE:APP, such as shop:app.",
    ("shop:",): "'shop:' names no app; it is MODULE:APP, such as shop:app.",
    ("none",): "module 'none' has no App at its top; say MODULE:APP.",
    ("two",): "module 'two' has several apps; say two:app or two:other.",
    ("empty",): "app=<App with 0 tasks> cannot be: it has no task to run.",
    ("shop", "-q", "a=0"): "--queue 'a=0' cannot be: it takes NAME or NAME=CONCURRENCY, such as "
    "emails=50, up to 100000.",
    ("shop", "-q", "a", "-q", "a=1"): "--queue 'a=1' cannot be: it is given twice.",
    ("shop", "-q", "a b=1"): "--queue 'a b' cannot be",
    ("shop", "--max-rss", "much"): "--max-rss 'much' cannot be: it takes a size such as 512MB, "
    "1.5GiB or 1000000.",
    ("shop", "--grace", "soon"): "--grace 'soon' cannot be",
    ("shop", "--burst", "--reload"): "--reload cannot be given along with --burst.",
    ("shop", "--processes", "0"): "--processes",
    ("shop", "--health-file", "no/such/file"): "--health-file 'no/such/file' cannot be: it takes "
    "a file, in a directory that we may write to.",
    ("shop", "--health-file", "."): "--health-file '.' cannot be: it takes a file",
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
async def test_what_cannot_be_is_one_sentence_and_exit_code_2(
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
    why = "it cannot be opened on 127.0.0.1 (Address already in use)"
    assert done.err == f"tampu: --health-port {running.port} cannot be: {why}.\n"


@pytest.mark.parametrize(
    ("source", "raised"),
    [
        ("import no_such_package\n", "ModuleNotFoundError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def oops(:\n", "SyntaxError"),
    ],
)
async def test_what_the_module_itself_raises_is_shown_with_its_traceback(
    home: Path, source: str, raised: str
) -> None:
    (home / "broken.py").write_text(source)
    done = await tampu("worker", "broken:app", url="redis://127.0.0.1:1/0")
    assert (done.code, done.out) == (2, "")
    assert f"{home}/broken.py" in done.err
    assert "importlib" not in done.err
    last = done.err.splitlines()[-1]
    assert last == f"tampu: module 'broken' cannot be imported; it raised {raised}."


async def test_what_the_lifespan_raises_is_shown_from_where_it_begins(
    running: RunningServer, home: Path
) -> None:
    (home / "broken.py").write_text(LIFESPAN)
    for options in ((), ("--processes", "2")):
        done = await tampu("worker", "broken:app", *options, url=running.url)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f'Traceback (most recent call last):\n  File "{home}/broken.py"')
        assert done.err.splitlines()[-2:] == [
            "RuntimeError: no database",
            "tampu: the app cannot be run; it raised RuntimeError.",
        ]


async def test_a_first_process_that_says_nothing_is_spoken_for(home: Path) -> None:
    (home / "broken.py").write_text("import os\nos._exit(9)\n")
    done = await tampu("worker", "broken:app", "--processes", "2")
    sentence = "tampu: the first process ended before it worked: exit code 9.\n"
    assert (done.code, done.out, done.err) == (1, "", sentence)


async def test_a_server_that_is_not_there_is_exit_code_3(home: Path) -> None:
    for options in ((), ("--processes", "2")):
        done = await tampu("worker", "shop:app", *options, url="redis://127.0.0.1:1/0")
        assert (done.code, done.out) == (3, "")
        assert done.err.count("tampu: no server answers at redis://127.0.0.1:1/0") == 1


async def test_an_idle_worker_ends_soon(running: RunningServer, home: Path) -> None:
    with commanded(running, home) as worker:
        worker.until_up()
        began = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - began < 10  # mostly 0.11 s; the grace is 25
