"""`tampu enqueue`, with and without an app."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tampu import Queue
from tests.contract.cli import tampu
from tests.contract.worker_command import SHOP, run_worker
from tests.servers import RunningServer

MORE = """
from datetime import datetime

@app.task(queue="mail")
async def send(to: str, at: datetime | None = None, tags: list[str] = []) -> str:
    return f"{to} {at} {tags}"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop.py").write_text(SHOP + MORE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_task_is_called_with_its_arguments_and_the_id_is_printed(
    running: RunningServer,
) -> None:
    typed = ("shop:app", "send", "--arg", "to=ada", "-a", "at=2026-01-31T09:00:00Z")
    done = await tampu("enqueue", *typed, "--json-args", '{"tags": ["x"]}', url=running.url)
    assert (done.code, done.err, len(done.lines)) == (0, "", 1)
    async with Queue("mail", running.url) as queue:
        assert (await queue.counts()).waiting == 1
        found = await tampu("job", "show", "mail", done.lines[0], "--json", url=running.url)
        assert found.json["name"] == "send"
        assert found.json["data"] == {"to": "ada", "at": "2026-01-31T09:00:00Z", "tags": ["x"]}


async def test_ids_delays_and_another_queue(running: RunningServer) -> None:
    options = ("--id", "one", "--delay", "1h", "--queue", "other", "--json")
    typed = ("enqueue", "shop", "add", "-a", "a=1", *options)
    first = await tampu(*typed, url=running.url)
    assert first.json == {"queue": "other", "job_id": "one", "duplicate": False}
    again = await tampu(*typed, url=running.url)
    assert (again.code, again.json["duplicate"]) == (0, True)
    assert again.err == "tampu: Job 'one' was not added: there already is one with this id.\n"
    async with Queue("other", running.url) as queue:
        assert (await queue.counts()).delayed == 1


async def test_a_time_attempts_headers_and_text(running: RunningServer) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=5)
    local = due.astimezone(timezone(timedelta(hours=1))).isoformat()
    options = ("--at", local, "--attempts", "3", "--header", "trace=7=x")
    typed = ("shop:app", "send", "-a", "to=12", "--id", "later", *options)
    done = await tampu("enqueue", *typed, url=running.url)
    assert (done.code, done.err) == (0, "")
    found = await tampu("job", "show", "mail", "later", "--json", url=running.url)
    assert found.json["data"] == {"to": "12"}
    assert found.json["due_at"] == f"{due:%Y-%m-%dT%H:%M:%S}.000Z"
    for wrong, sentence in {
        ("--at", "tomorrow"): "Invalid --at 'tomorrow': expected a date and time",
        ("--at", "2040-01-31T09:00"): "Invalid --at '2040-01-31T09:00': expected ",
        ("--at", "2040-01-31T09:00Z", "--delay", "1h"): "delay",
        ("--attempts", "0"): "--attempts",
        ("--header", "trace"): "Invalid --header 'trace': expected NAME=VALUE",
    }.items():
        refused = await tampu("enqueue", "shop:app", "send", "-a", "to=a", *wrong, url=running.url)
        assert (refused.code, refused.out) == (2, "")
        assert sentence in refused.err


async def test_the_options_of_a_job_reach_the_worker(running: RunningServer, home: Path) -> None:
    seen = "from tampu import Job\n@app.task\nasync def look(job: Job) -> dict:\n"
    seen += "    return {**job.headers, 'attempt': job.attempt}\n"
    (home / "shop.py").write_text(SHOP + seen)
    with run_worker(running, home) as worker:
        worker.until_up()
        typed = ("shop:app", "look", "--header", "trace=7", "--header", "b=", "--wait", "--json")
        done = await tampu("enqueue", *typed, url=running.url)
        assert done.json["result"] == {"trace": "7", "b": "", "attempt": 1}


async def test_a_job_by_its_name_needs_no_app(running: RunningServer) -> None:
    typed = ("enqueue", "--queue", "default", "add", "--data", '{"a": 20, "b": 3}')
    done = await tampu(*typed, url=running.url)
    assert (done.code, done.err) == (0, "")
    found = await tampu("job", "show", "default", done.lines[0], "--json", url=running.url)
    assert (found.json["name"], found.json["data"]) == ("add", {"a": 20, "b": 3})


async def test_it_waits_for_the_result_or_the_failure(running: RunningServer, home: Path) -> None:
    with run_worker(running, home):
        done = await tampu("enqueue", "shop", "add", "-a", "a=1", "--wait", url=running.url)
        assert (done.code, done.lines[1:]) == (0, ["2"])
        told = await tampu("enqueue", "shop", "who", "--wait", "--json", url=running.url)
        assert list(told.json) == ["queue", "job_id", "duplicate", "result"]
        failed = await tampu("enqueue", "shop", "fail", "--wait", url=running.url)
        assert failed.code == 1
        assert failed.err.endswith(" failed (retries_exhausted): ValueError: boom\n")
        told = await tampu("enqueue", "shop", "fail", "--wait", "--json", url=running.url)
        assert list(told.json) == ["queue", "job_id", "duplicate", "failed"]
        assert list(told.json["failed"]) == ["reason", "type", "message", "traceback"]
    late = await tampu(
        *("enqueue", "-q", "x", "y", "--wait", "--timeout", "10ms", "--json"), url=running.url
    )
    assert (late.code, list(late.json)) == (1, ["queue", "job_id", "duplicate"])
    assert late.err.startswith("tampu: No result of job ")


WRONG = {
    ("shop:app", "snd"): "shop:app has no task 'snd'. Did you mean 'send'?",
    ("shop:app", "send"): "Task 'send', argument 'to': ",
    ("shop:app", "add", "-a", "a=x"): "Task 'add', argument 'a': ",
    ("shop:app", "send", "-a", "to=a", "-a", "x=1"): "Task 'send', argument 'x': ",
    ("shop:app", "send", "-a", "to"): "Invalid --arg 'to': expected NAME=VALUE",
    ("shop:app", "send", "-a", "to=a", "-a", "to=b"): "Invalid --arg 'to': must be "
    "given only once.",
    ("shop:app", "send", "-a", "to=a", "--json-args", '{"to": 1}'): "Invalid --arg 'to': must be "
    "given only once.",
    ("shop:app", "send", "--json-args", "[1]"): "Invalid --json-args: expected an object",
    ("shop:app", "send", "--json-args", "{secret"): "Invalid --json-args: expected JSON",
    ("shop:app", "send", "--data", "1"): "--data is for a job without an app",
    ("-q", "mail", "x", "-a", "to=a"): "--arg and --json-args are for a task.",
    ("-q", "mail", "x", "--data", "{secret"): "Invalid --data: expected JSON",
    ("shop:app",): "Write MODULE:APP TASK, or --queue NAME and the name of the job.",
    ("shop:app", "send", "ada"): "Too many words.",
    ("shop:app", "send", "-a", "to=a", "--delay", "10"): "Invalid --delay '10': expected ",
    ("shop:app", "send", "-a", "to=a", "--id", ""): "Invalid --id '': must be 1 to 512 bytes",
    ("nothing:app", "send"): "There is no module 'nothing'",
    ("-q", "mail", "x", "--wait", "--timeout", "soon"): "Invalid --timeout 'soon': expected ",
    (): "Missing argument",
}


@pytest.mark.parametrize("typed", WRONG, ids=" ".join)
async def test_wrong_usage_is_one_sentence_and_exit_code_2(typed: tuple[str, ...]) -> None:
    done = await tampu("enqueue", *typed, url="redis://127.0.0.1:1/0")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert WRONG[typed] in done.err
    assert "secret" not in done.err
