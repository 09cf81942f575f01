"""Each example runs as it stands, on the embedded server, and prints what it says."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from examples.web import app, web
from tampu.testing import Kit
from tests.embedded import end_server
from tests.examples.programs import (
    EXAMPLES,
    named_by_the_page,
    printed_by,
    programs,
    surroundings,
)
from tests.servers import free_port
from tests.waiting import block_until

ENDING = [program for program in programs() if printed_by(program) is not None]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty directory to start programs in; nothing runs there afterwards."""
    yield tmp_path
    end_server(tmp_path / ".tampu")


@pytest.mark.parametrize("program", ENDING, ids=lambda each: each.stem)
def test_an_example_ends_and_prints_its_documented_output(program: Path, home: Path) -> None:
    done = subprocess.run(
        [sys.executable, program],
        cwd=home,
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed_by(program)), done.stderr


def test_the_page_names_every_example() -> None:
    assert named_by_the_page() == {program.name for program in programs()}


def test_only_the_web_applications_do_not_end_by_themselves() -> None:
    lasting = ["tokens.py", "web.py", "web_flask.py", "web_litestar.py", "web_starlette.py"]
    assert [each.name for each in programs() if each not in ENDING] == lasting


def test_an_answer_is_streamed_and_a_reader_can_come_back(home: Path) -> None:
    with _web(home, "tokens.py") as port:
        status, body = _asked(port, "POST", "/answers?question=Why?")
        assert status == 202
        path = f"/answers/{json.loads(body)['id']}"
        status, whole = _asked(port, "GET", path)
        events = whole.strip().split("\n\n")
        third = events[2].splitlines()[0].removeprefix("id: ")
        _, rest = _asked(port, "GET", path, {"Last-Event-ID": third})
        _, unknown = _asked(port, "GET", "/answers/none")
    assert status == 200
    words = [json.loads(event.splitlines()[1].removeprefix("data: ")) for event in events[:-1]]
    assert "".join(words).startswith("You ask: Why? That depends")
    assert events[-1] == "event: done\ndata: null"
    assert rest.strip().split("\n\n") == events[3:]
    assert unknown.startswith("event: gone\n")


def test_the_page_of_answers_is_there(home: Path) -> None:
    with _web(home, "tokens.py") as port:
        status, body = _asked(port, "GET", "/")
    assert status == 200
    assert "new EventSource" in body


def test_the_web_application_answers_before_the_work_is_done(tampu: Kit) -> None:
    with tampu.use(app) as jobs:
        client = TestClient(web)  # without its lifespan, which would start a worker
        answer = client.post("/reports/2026")
        path = f"/jobs/{answer.json()['id']}"
        assert (answer.status_code, client.get(path).status_code) == (202, 404)
        jobs.run()
        assert client.get(path).json() == {"year": 2026, "quarters": 4}


def test_the_web_application_reports_a_failed_job(tampu: Kit) -> None:
    with tampu.use(app) as jobs:
        client = TestClient(web)
        path = f"/jobs/{client.post('/reports/1').json()['id']}"
        jobs.run(raise_errors=False)
        answer = client.get(path)
        problem = {"detail": "there are no figures for that year"}
        assert (answer.status_code, answer.json()) == (422, problem)


@contextmanager
def _web(home: Path, program: str) -> Iterator[int]:
    """The port of a web application, while it runs; it is asked to leave, and leaves."""
    port = free_port()
    command = [sys.executable, str(EXAMPLES / program)]
    log = home / "web.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=home, env=surroundings(PORT=str(port)), stdout=out, stderr=out
        )
    try:
        block_until(lambda: _answers(port), within=60, sentence="the web application is up")
        yield port
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        assert "Application shutdown complete" in log.read_text()
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        return _asked(port, "GET", "/")[0] == 200
    except ConnectionError:
        return False


def _asked(
    port: int, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode().removeprefix(":\n\n")
    finally:
        connection.close()
