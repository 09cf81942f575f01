"""Which job logged a line: in the handlers of a program, and in the log of `tampu worker`."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tampu import Handler, Job, Queue
from tampu.metrics import JobLogFilter
from tests.contract.telemetry import Recording, ids
from tests.contract.worker_command import run_worker
from tests.contract.workers import QUEUE, SOON, Harness
from tests.servers import RunningServer
from tests.unit.consumer.runners import child_loggers
from tests.waiting import wait_until

SHOP = """
import logging
from tampu import App

app = App()
log = logging.getLogger("shop")

@app.task
async def on_loop() -> None:
    log.warning("hello from the loop")

@app.task
def in_thread() -> None:
    log.warning("hello from a thread")

@app.task(isolation="process")
def in_child() -> None:
    log.warning("hello from a child")

TASKS = [on_loop, in_thread, in_child]
"""


class Kept(logging.Handler):
    """Keeps the records of the shop, with the filter that users add."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(JobLogFilter())

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("shop"):
            self.records.append(record)

    async def until(self, count: int) -> list[dict[str, Any]]:
        await wait_until(
            lambda: len(self.records) >= count, within=SOON, sentence=f"{count} lines are logged"
        )
        return [vars(record) for record in self.records]


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logging.root.addHandler(handler)
    yield handler
    logging.root.removeHandler(handler)


def job_of(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("job_id", "job_name", "queue", "attempt"))


def say(job: Job[Any]) -> None:
    logging.getLogger("shop.words").warning("plainly")


async def say_async(job: Job[Any]) -> None:
    logging.getLogger("shop.words").warning("softly")


@pytest.mark.parametrize(
    "handler", [say, say_async, Handler(child_loggers.facts, isolation="process")]
)
async def test_each_line_of_a_handler_has_the_fields_of_its_own_job(
    harness: Harness,
    kept: Kept,
    handler: Any,  # noqa: ANN401 - a function or a Handler
) -> None:
    await harness.start_worker(handler, concurrency=1)
    added = [await harness.queue.add("first"), await harness.queue.add("second")]
    found = await kept.until(2)
    assert [job_of(each) for each in found] == [(job.id, job.name, QUEUE, 1) for job in added]
    assert all("trace_id" not in each for each in found)


@pytest.mark.parametrize(
    "handler", [say, say_async, Handler(child_loggers.facts, isolation="process")]
)
async def test_with_telemetry_each_line_has_its_trace(
    harness: Harness,
    kept: Kept,
    handler: Any,  # noqa: ANN401 - a function or a Handler
) -> None:
    recording = Recording()
    await harness.start_worker(handler, telemetry=recording.telemetry, concurrency=1)
    await harness.queue.add("first")
    await harness.queue.add("second")
    runs = await recording.runs(2)
    found = await kept.until(2)
    assert [each["trace_id"] for each in found] == [ids(run)[0] for run in runs]


async def test_what_an_idle_child_logs_belongs_to_no_job(harness: Harness, kept: Kept) -> None:
    await harness.start_worker(Handler(child_loggers.later, isolation="process"))
    await harness.queue.add("later")
    await harness.until_settled()
    (record,) = await kept.until(1)
    assert "job_id" not in record


@pytest.mark.parametrize("log_format", ["json", "text"])
async def test_the_log_of_the_worker_command_names_the_jobs(
    running: RunningServer, tmp_path: Path, log_format: str
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with run_worker(running, tmp_path, "--log-format", log_format) as worker:
        async with Queue("default", running.url) as queue:
            jobs = [await queue.add(name, {}) for name in ("on_loop", "in_thread", "in_child")]
        worker.until_logged("hello from", 3)
        assert worker.stop() == 0
    lines = [line for line in worker.err.splitlines() if "hello from" in line]
    assert len(lines) == 3
    for job in jobs:
        (line,) = (line for line in lines if job.id in line)
        if log_format == "json":
            assert job_of(json.loads(line)) == (job.id, job.name, "default", 1)
        else:
            assert line.endswith(f" [job={job.id} {job.name} attempt=1 queue=default]")
