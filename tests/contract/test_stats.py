"""`tampu stats`, `tampu mark` and `queue.history()`: what workers have recorded."""

import pytest

from tampu import Concurrency, NewJob, OptionError, Queue, SyncQueue
from tampu.admin.history import measure_gauges
from tampu.metrics import FailureGroup, Figures, History, Span
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tests.contract.cli import tampu
from tests.contract.workers import KEYS as WORK_KEYS
from tests.contract.workers import QUEUE, SOON, Boom, Calls, Gate, Harness
from tests.dashboards import Visit
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = ["queue", "step_s", "total", "tasks", "steps", "now", "failures", "processes", "marks"]
COUNTS = ["done", "failed", "retried", "dead", "snoozed", "cancelled"]


async def run_some(harness: Harness) -> None:
    """Let 20 jobs work and 3 fail, and the worker record that."""
    worker = await harness.start_worker({"works": Calls(), "fails": Boom()}, attempts=1)
    await harness.queue.add_each("works", range(20))
    await harness.queue.add_each("fails", range(3))
    await harness.until_settled()
    await worker.stop()


@pytest.mark.every_server
async def test_the_history_of_a_queue_on_every_server_is_what_happened(harness: Harness) -> None:
    await run_some(harness)
    history = await harness.queue.history()
    assert isinstance(history, History)
    assert (history.queue, history.step_s, len(history.buckets)) == (QUEUE, 60, 60)
    works, fails = history.tasks["works"], history.tasks["fails"]
    assert isinstance(works, Figures)
    assert (works.done, works.failed, works.failure_rate) == (20, 0, 0.0)
    assert (fails.done, fails.failed, fails.dead, fails.failure_rate) == (0, 3, 3, 1.0)
    assert works.run.count == 20
    for span in (Span.DAY, "24h", "30d"):
        assert (await harness.queue.history(span)).total == history.total
    (group,) = await harness.queue.failures()
    assert isinstance(group, FailureGroup)
    assert (group.count, group.task, group.error_type) == (3, "fails", "ValueError")


async def test_another_span_is_refused_with_those_that_exist(harness: Harness) -> None:
    with pytest.raises(OptionError, match="Invalid span '2h': expected one of 1h, 24h, 30d"):
        await harness.queue.history("2h")


async def test_history_and_failures_are_there_without_an_event_loop(harness: Harness) -> None:
    await run_some(harness)
    with SyncQueue(QUEUE, harness.running.url) as queue:
        assert queue.history("1h").total == (await harness.queue.history()).total
        assert [each.count for each in queue.failures()] == [3]


async def test_stats_shows_queues_tasks_failures_and_processes(
    running: RunningServer, harness: Harness
) -> None:
    await run_some(harness)
    every = await tampu("stats", url=running.url)
    assert (every.code, every.err) == (0, "")
    row = next(line for line in every.lines if line.startswith(QUEUE)).split()
    assert row[2:5] == ["20", "3", "13.0"]

    page = await tampu("stats", QUEUE, url=running.url)
    rows = [line.split() for line in page.lines]
    assert any(row[:1] == ["works"] and row[2:6] == ["20", "0", "0", "0"] for row in rows)
    assert any(row[:1] == ["fails"] and row[2:6] == ["0", "3", "0", "3"] for row in rows)
    assert any(row[:1] == ["3"] and row[-2:] == ["ValueError:", "boom"] for row in rows)
    assert max(map(len, page.lines)) <= 80

    one = await tampu("stats", "--task", "works", "--span", "24h", url=running.url)
    assert "the last 24 hours" in one.lines[0]
    assert "fails" not in one.out

    told = (await tampu("stats", QUEUE, "--json", url=running.url)).json
    assert list(told) == ["server", "span", "queues"]
    (found,) = told["queues"]
    assert list(found) == [*KEYS, "unknown"]
    assert [found["tasks"]["fails"][name] for name in COUNTS] == [0, 3, 0, 3, 0, 0]
    assert sum(step["done"] for step in found["steps"]) == 20
    assert found["unknown"] == 0


async def test_jobs_that_may_be_missing_in_the_counts_are_shown(
    running: RunningServer, harness: Harness, visit: Visit
) -> None:
    await run_some(harness)
    sentence = "Since recording began, 12 jobs may be missing in the counts"
    pages, client = ("/", f"/queue?name={QUEUE}"), visit()
    for path in pages:
        assert "may be missing" not in (await client.get(path)).text
    harness.admin.hset(WORK_KEYS.totals, "unknown", 12)
    shown = await tampu("stats", url=running.url)
    assert sentence in " ".join(shown.out.split())
    (found,) = (await tampu("stats", "--json", url=running.url)).json["queues"]
    assert found["unknown"] == 12
    client = visit()
    for path in pages:
        assert sentence in (await client.get(path)).text


async def test_jobs_that_flow_control_holds_are_a_gauge_wherever_gauges_are_shown(
    harness: Harness, server: Server, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.consumer.history.EVERY_S", 1.0)
    gate = Gate()
    worker = await harness.start_worker(gate, concurrency=5)
    await harness.queue.add_many([NewJob("x", 1, limits=[Concurrency(1)])] * 5)
    await gate.until(1)

    async def are_recorded() -> bool:
        last = (await harness.queue.history()).buckets[-1].last
        return last is not None and (last.waiting, last.active, last.in_lines) == (4, 1, 4)

    await wait_until(are_recorded, within=SOON, sentence="the gauges are in the history")
    shown = await tampu("stats", QUEUE, url=harness.running.url)
    assert "4 waiting (4 in lines), the oldest for" in shown.out
    client = visit()
    assert 'tampu_queue_in_lines{queue="work"} 4' in (await client.get("/metrics")).text
    page = (await client.get(f"/queue?name={QUEUE}")).text
    assert "In lines" in page
    gate.open.set()
    await harness.until_settled()
    async with await Lane.open(server, WORK_KEYS.stream) as lane:
        assert (await measure_gauges(lane, WORK_KEYS, b"default")).in_lines == 0
    await worker.stop()


async def test_stats_of_what_does_not_exist_is_an_error_that_helps(
    running: RunningServer, harness: Harness
) -> None:
    await run_some(harness)
    server = f"redis://127.0.0.1:{running.port}/0"
    wrong = await tampu("stats", "wrok", url=running.url)
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err == f"tampu: There is no queue 'wrok' on {server}. Did you mean 'work'?\n"
    task = await tampu("stats", QUEUE, "--task", "wroks", url=running.url)
    known = "No job named 'wroks' was recorded in the last hour. Did you mean 'works'?"
    assert (task.code, task.err) == (1, f"tampu: {known}\n")
    span = await tampu("stats", "--span", "2h", url=running.url)
    assert span.code == 2
    assert "'1h', '24h', '30d'" in span.err


async def test_stats_without_anything_to_show(running: RunningServer) -> None:
    empty = await tampu("stats", url=running.url)
    assert (empty.code, empty.lines) == (0, ["There are no queues."])
    async with Queue("idle", running.url) as queue:
        await queue.add("x")
    page = await tampu("stats", "idle", url=running.url)
    assert page.lines[0] == "idle: no job ended in the last hour."
    assert "Workers  0, with 0 of 0 slots busy" in page.lines
    task = await tampu("stats", "--task", "x", url=running.url)
    assert (task.code, task.out) == (1, "")


async def test_a_mark_is_shown_with_the_history_of_every_queue(
    running: RunningServer, harness: Harness
) -> None:
    await run_some(harness)
    marked = await tampu("mark", "v1.4 of the shop", url=running.url)
    assert (marked.code, marked.lines) == (0, ["Marked: v1.4 of the shop"])
    page = await tampu("stats", QUEUE, url=running.url)
    assert any(line.startswith("Marks    v1.4 of the shop (") for line in page.lines)
    told = (await tampu("mark", "v1.5", "--json", url=running.url)).json
    assert told["text"] == "v1.5"
    assert told["at"].endswith("Z")
    (found,) = (await tampu("stats", QUEUE, "--json", url=running.url)).json["queues"]
    assert [each["text"] for each in found["marks"]] == ["v1.4 of the shop", "v1.5"]


@pytest.mark.parametrize("text", ["  ", "a\nb"])
async def test_a_mark_without_printable_text_is_refused(running: RunningServer, text: str) -> None:
    wrong = await tampu("mark", text, url=running.url)
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("tampu: Invalid TEXT ")
    assert wrong.err.endswith(": expected 1 to 200 printable characters.\n")
    with running.admin() as admin:
        assert not admin.exists("{chasqui:}:tampu:marks")
