"""What Prometheus is told of a queue is what really happened."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tampu import Backoff, Every, Missed, Queue, Snooze, Unrecoverable, Worker
from tampu.admin.metrics import MetricsReader, render_metrics
from tampu.job import Job
from tampu.server.lanes import Lanes
from tests.contract.schedules import arm, now_ms, until_counted
from tests.contract.worker_command import run_worker
from tests.contract.workers import KEYS, QUEUE, SOON, Calls, Gate, Harness
from tests.metric_samples import counters, samples, value
from tests.servers import RunningServer, free_port
from tests.waiting import wait_until


@pytest.fixture
async def lanes(running: RunningServer) -> AsyncIterator[Lanes]:
    opened = Lanes(running.url)
    opened.open()
    yield opened
    await opened.close()


async def mixed(job: Job[object]) -> None:
    """Does what the name of the job says."""
    match job.name:
        case "fails":
            raise ValueError("boom")
        case "is hopeless":
            raise Unrecoverable("no")
        case "snoozes" if job.data is None and job.attempt == 1 and not SNOOZED:
            SNOOZED.append(job.id)
            raise Snooze(0.01)


SNOOZED: list[str] = []


async def run_mixed(harness: Harness) -> None:
    """Run some jobs of each kind to their end, and let the worker record all of it."""
    SNOOZED.clear()
    await harness.queue.add("works", expires=0.001)
    late_ms = now_ms() + 5
    await wait_until(lambda: now_ms() > late_ms, within=SOON, sentence="it has expired")
    worker = await harness.start_worker(mixed, attempts=2, backoff=Backoff.fixed(0.01))
    await harness.queue.add_each("works", range(7))
    await harness.queue.add_each("fails", range(3))
    await harness.queue.add("is hopeless")
    await harness.queue.add("snoozes")
    await harness.until_settled()
    await worker.stop()


async def record_all(harness: Harness, worker: Worker) -> None:
    """Stop a worker that has run a job: it then records all counts of its queue."""
    await harness.queue.add("last")
    await harness.until_settled()
    await worker.stop()


@pytest.mark.every_server
async def test_counters_on_every_server_are_exactly_what_ran(
    harness: Harness, lanes: Lanes
) -> None:
    await run_mixed(harness)
    harness.admin.zadd(KEYS.delayed, {b"no envelope": 1})
    worker = await harness.start_worker(Calls())
    await harness.dead_letters(6)
    await record_all(harness, worker)
    text = await render_metrics(lanes, [QUEUE])

    def jobs(task: str) -> dict[str, float]:
        labels = {"queue": QUEUE, "task": task}
        found = {
            outcome: value(text, "tampu_jobs_total", outcome=outcome, **labels)
            for outcome in ("done", "failed", "retried", "dead", "snoozed", "cancelled")
        }
        return {outcome: number for outcome, number in found.items() if number}

    assert jobs("works") == {"done": 7, "dead": 1}
    assert jobs("fails") == {"failed": 6, "retried": 3, "dead": 3}
    assert jobs("is hopeless") == {"failed": 1, "dead": 1}
    assert jobs("snoozes") == {"done": 1, "snoozed": 1}
    assert jobs("") == {"dead": 1}
    reasons = {
        dict(labels)["reason"]: number
        for (name, labels), number in samples(text).items()
        if name == "tampu_dead_total" and number
    }
    assert reasons == {"retries_exhausted": 3, "unrecoverable": 1, "expired": 1, "malformed": 1}
    for name in ("tampu_job_run_seconds_count", "tampu_job_wait_seconds_count"):
        assert value(text, name, queue=QUEUE, task="works") == 7
        assert value(text, name, queue=QUEUE, task="fails") == 6
    assert value(text, "tampu_queue_jobs", queue=QUEUE, state="dead") == 6
    assert value(text, "tampu_counts_unknown_total", queue=QUEUE) == 0


async def test_counters_never_go_down_when_workers_are_restarted(
    harness: Harness, lanes: Lanes
) -> None:
    before = counters("")
    for round_number in (1, 2, 3):
        await run_mixed(harness)
        text = await render_metrics(lanes, [QUEUE])
        now = counters(text)
        assert {at: number for at, number in before.items() if now[at] < number} == {}
        done = value(text, "tampu_jobs_total", queue=QUEUE, task="works", outcome="done")
        assert done == 7 * round_number
        before = now


async def test_gauges_show_the_queue_as_it_is_now(harness: Harness, lanes: Lanes) -> None:
    gate = Gate()
    await harness.start_worker(gate, concurrency=2)
    await harness.queue.add_each("x", range(2))
    await gate.until(2)
    await harness.queue.add_each("x", range(300))
    await harness.queue.add("x", delay="1h")

    async def reported() -> bool:
        text = await render_metrics(lanes, [QUEUE])
        return value(text, "tampu_slots", queue=QUEUE, state="busy") == 2

    await wait_until(reported, within=60, sentence="the worker has reported its slots")
    text = await render_metrics(lanes, [QUEUE])
    jobs = {
        state: value(text, "tampu_queue_jobs", queue=QUEUE, state=state)
        for state in ("waiting", "active", "delayed", "dead")
    }
    assert jobs["waiting"] + jobs["active"] == 302
    assert (jobs["active"] >= 2, jobs["delayed"], jobs["dead"]) == (True, 1, 0)
    assert value(text, "tampu_queue_oldest_seconds", queue=QUEUE) > 0
    assert value(text, "tampu_workers", queue=QUEUE) == 1
    assert value(text, "tampu_slots", queue=QUEUE, state="free") == 0
    gate.open.set()


async def test_instants_that_no_worker_fired_are_counted_as_missed(
    harness: Harness, lanes: Lanes
) -> None:
    late = Missed.SKIP.within(grace="1s")
    for key in ("one", "two"):
        await harness.queue.schedules.add("tick", Every(60), key=key, missed=late)
        arm(harness, key, now_ms() - 150_000)
    worker = await harness.start_worker(Calls())
    for key in ("one", "two"):
        await until_counted(harness, key, missed=3)
    await record_all(harness, worker)
    text = await render_metrics(lanes, [QUEUE])
    assert value(text, "tampu_schedule_missed_total", queue=QUEUE) == 6


async def test_a_worker_without_history_counts_nothing(harness: Harness, lanes: Lanes) -> None:
    worker = await harness.start_worker(Calls(), history=False)
    await harness.queue.add_each("x", range(5))
    harness.admin.zadd(KEYS.delayed, {b"no envelope": 1})
    await harness.dead_letters(1)
    await harness.until_settled()
    text = await render_metrics(lanes, [QUEUE])
    assert value(text, "tampu_workers", queue=QUEUE) == 1
    await worker.stop()
    assert not [number for number in counters(text).values() if number]
    assert not harness.admin.exists(KEYS.counted, KEYS.totals)


async def test_a_queue_that_does_not_exist_has_only_zeros(lanes: Lanes) -> None:
    text = await render_metrics(lanes, ["nothing", "nothing", "neither"])
    assert set(samples(text).values()) == {0}
    assert value(text, "tampu_workers", queue="neither") == 0


async def test_a_reader_reads_once_for_all_who_ask_within_seconds(harness: Harness) -> None:
    async with MetricsReader(harness.running.url, [QUEUE]) as reader:
        first = await reader.page()
        harness.reset_calls()
        pages = await asyncio.gather(*(reader.page() for _ in range(50)))
        assert set(pages) == {first}
        assert harness.calls("hgetall") == 0
    assert first.problem == ""


async def test_a_server_that_does_not_answer_is_a_problem_within_the_time_limit(
    running: RunningServer,
) -> None:
    async with MetricsReader(running.url, [QUEUE]) as reader:
        running.pause()
        try:
            page = await reader.page()
        finally:
            running.resume()
    assert page.text == ""
    assert page.problem


def get(url: str) -> tuple[int, str, str]:
    """The status, the type and the body of an answer."""
    try:
        with urlopen(url, timeout=30) as found:  # noqa: S310 - our own port
            return found.status, found.headers["Content-Type"], found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.mark.parametrize("processes", [(), ("-p", "2")])
async def test_the_health_port_of_a_worker_shows_the_metrics_of_all_queues_of_the_app(
    running: RunningServer, tmp_path: Path, processes: tuple[str, ...]
) -> None:
    port = free_port()
    options = ("--health-port", str(port), *processes)
    url = f"http://127.0.0.1:{port}/metrics"
    with run_worker(running, tmp_path, *options) as worker:
        worker.until_up()
        async with Queue("default", running.url) as queue:
            await queue.add_each("add", [{"a": 1}] * 20)
            await queue.drain(timeout=SOON)
        status, kind, text = await asyncio.to_thread(get, url)
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert value(text, "tampu_workers", queue="default") >= 1

        def recorded() -> bool:
            found = samples(get(url)[2])
            labels = {"queue": "default", "task": "add", "outcome": "done"}
            return found.get(("tampu_jobs_total", frozenset(labels.items()))) == 20

        await asyncio.to_thread(worker.until, recorded, "the jobs are counted")
        assert worker.stop() == 0


@pytest.mark.parametrize("processes", [(), ("-p", "1")])
async def test_metrics_are_unavailable_while_the_server_is_away_but_the_worker_is_live(
    running: RunningServer, tmp_path: Path, processes: tuple[str, ...]
) -> None:
    port = free_port()
    with run_worker(running, tmp_path, "--health-port", str(port), *processes) as worker:
        worker.until_up()
        running.pause()
        try:
            asked = asyncio.create_task(asyncio.to_thread(get, f"http://127.0.0.1:{port}/metrics"))
            live = await asyncio.to_thread(get, f"http://127.0.0.1:{port}/live")
            assert live[0] == 200
            assert not asked.done(), "the answer about its life did not wait"
            status, _, text = await asked
        finally:
            running.resume()
        assert status == 503
        assert text.startswith("# ")
        assert samples(text) == {}
