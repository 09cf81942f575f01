"""The web applications among the examples, in real servers, asked by real clients."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tampu import SyncQueue
from tests.examples.programs import EXAMPLES
from tests.servers import RunningServer, free_port
from tests.waiting import block_until

VISITORS = 8
STEPS = [("progress", percent) for percent in (25, 50, 75, 100)]
FIGURES: dict[str, object] = {"year": 2026, "quarters": 4}


@dataclass(frozen=True)
class Program:
    """An example, and the programs that serve it."""

    name: str
    commands: Callable[[int], list[list[str]]]
    """Given a port: the web server, then what runs beside it."""
    result: dict[str, object]
    failure: bool = False  # it shows what a failed job raised
    dashboard: str | None = None
    web_processes: int = 1


def _python(example: str) -> Callable[[int], list[list[str]]]:
    return lambda _: [[sys.executable, str(EXAMPLES / example)]]


def _gunicorn(app: str, *options: str) -> Callable[[int], list[list[str]]]:
    start = [sys.executable, "-m", "gunicorn", "--graceful-timeout", "20", *options]
    return lambda port: [[*start, "--bind", f"127.0.0.1:{port}", "--chdir", str(EXAMPLES), app]]


def _flask(port: int) -> list[list[str]]:
    (server,) = _gunicorn("web_flask:create_app()", "--threads", "10")(port)
    app = str(EXAMPLES / "web_flask.py")
    worker = ["tampu", "worker", "--processes", "2", "--grace", "5s"]
    return [server, [sys.executable, "-m", "flask", "--app", app, *worker]]


ASGI = ("--worker-class", "uvicorn_worker.UvicornWorker", "--workers", "2")
PROGRAMS = [
    Program("fastapi", _python("web.py"), FIGURES, failure=True),
    Program("fastapi-gunicorn", _gunicorn("web:web", *ASGI), FIGURES, web_processes=2),
    Program("starlette", _python("web_starlette.py"), FIGURES),
    Program("litestar", _python("web_litestar.py"), FIGURES, dashboard="/admin/jobs/"),
    Program("flask-gunicorn", _flask, FIGURES | {"shop": "Corner shop"}),
]


@dataclass(frozen=True)
class Served:
    """An example that is served, and a client of it."""

    program: Program
    client: httpx.Client

    def start(self, year: int = 2026) -> str:
        """Ask for a report; the id of its job."""
        answer = self.client.post(f"/reports/{year}")
        assert answer.status_code == 202
        return str(answer.json()["id"])

    def follow(self, job_id: str, last_event_id: str | None = None) -> list[dict[str, str]]:
        """What an `EventSource` gets, up to the end."""
        headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
        answer = self.client.get(f"/jobs/{job_id}/events", headers=headers)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        blocks = [each for each in answer.text.split("\n\n") if each and not each.startswith(":")]
        return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]

    def health(self) -> Any:  # noqa: ANN401 - JSON
        return self.client.get("/health").json()


@pytest.fixture(params=PROGRAMS, ids=lambda each: each.name)
def served(
    request: pytest.FixtureRequest, running: RunningServer, tmp_path: Path
) -> Iterator[Served]:
    port = free_port()
    environment = os.environ | {"TAMPU_URL": running.url, "PORT": str(port)}
    with ExitStack() as stack:
        for number, command in enumerate(request.param.commands(port)):
            log = tmp_path / f"{number}.log"
            stack.enter_context(_run(command, log, environment))
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        site = Served(request.param, stack.enter_context(client))
        block_until(lambda: _is_up(site), within=100, sentence="it serves, and a worker runs")
        yield site


def _is_up(site: Served) -> bool:
    try:
        health = site.health()
    except httpx.TransportError:
        return False
    return bool(health["ok"] and health["queues"][0]["workers"])


@contextmanager
def _run(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    """A program, while the block runs; it is asked to stop, and stops."""
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield
        process.terminate()
        assert process.wait(60) in {0, -15}, log.read_text()
        problems = ("Exception in ASGI application", "Error handling request", "never retrieved")
        assert not [each for each in problems if each in log.read_text()]
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(240)
def test_a_web_application_adds_jobs_and_follows_them(
    served: Served, running: RunningServer
) -> None:
    job_id = served.start()
    events = served.follow(job_id)
    told = [(each["event"], json.loads(each["data"])) for each in events]
    assert told == [*STEPS, ("done", served.program.result)]
    assert served.client.get(f"/jobs/{job_id}").json() == served.program.result
    assert served.follow(job_id, last_event_id=events[1]["id"]) == events[2:]
    (gone,) = served.follow("nobody")
    assert gone["event"] == "gone"
    assert served.client.get("/jobs/nobody").status_code == 404
    _check_health(served)
    if served.program.failure:
        (failed,) = served.follow(served.start(year=1))
        assert json.loads(failed["data"])["message"] == "there are no figures for that year"
    if served.program.dashboard is not None:
        assert "reports" in served.client.get(served.program.dashboard).text
    if served.program.web_processes == 1:
        _check_leaving(served, running)


def _check_health(served: Served) -> None:
    health = served.health()
    (queue,) = health["queues"]
    assert (health["ok"], health["problem"], queue["name"]) == (True, None, "reports")
    assert (queue["waiting"], queue["active"], queue["oldest_waiting_s"]) == (0, 0, None)


def _check_leaving(served: Served, running: RunningServer) -> None:
    """Clients that leave in the middle leave nothing open behind them."""
    with SyncQueue("reports", running.url) as queue, running.admin() as admin:
        queue.pause()
        path = f"/jobs/{served.start()}/events"
        with ExitStack() as visitors:
            answers = [
                visitors.enter_context(served.client.stream("GET", path)) for _ in range(VISITORS)
            ]
            bodies = [answer.iter_bytes() for answer in answers]  # kept, or they would be closed
            assert [next(body) for body in bodies] == [b":\n\n"] * VISITORS
            block_until(lambda: _readers(admin) >= VISITORS, within=60, sentence="all follow")
        # What waits for results may stay, for those who come next.
        block_until(lambda: _readers(admin) <= 2, within=90, sentence="all have left")
        queue.resume()


def _readers(admin: Any) -> int:  # noqa: ANN401 - a redis client
    """How many connections wait for entries of a stream that no group shares."""
    return sum(each["cmd"] == "xread" for each in admin.client_list())
