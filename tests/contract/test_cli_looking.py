"""`tampu inspect`, `queue ls`, `events`, `version` and help, as users run them."""

import asyncio
import json

import pytest

from tampu.queue import Queue
from tests.contract.cli import COMMAND, environment, tampu
from tests.contract.workers import QUEUE, Calls, Gate, Harness
from tests.servers import RunningServer

COUNTS = ["waiting", "active", "delayed", "dead", "schedules"]
QUEUE_KEYS = [
    *("queue", "group", "at", "paused", *COUNTS, "in_lines", "dropped"),
    *("oldest_waiting_at", "next_due_at", "workers"),
]
WORKER_KEYS = ["id", "state", "active", "idle_ms", "host", "pid", "started_at", "concurrency"]
EVENT_KEYS = ["id", "at", "kind", "job_id", "name", "fields"]


@pytest.mark.every_server
async def test_inspect_on_every_server_shows_one_queue_with_its_workers_or_all_queues(
    running: RunningServer, harness: Harness
) -> None:
    gate = Gate()
    worker = await harness.start_worker(gate, concurrency=1)
    await harness.queue.add("x", {"secret": 1})
    await gate.until(1)
    async with Queue("reports", running.url) as reports:
        await reports.add_each("row", range(3))
        await reports.add("row", delay="1h")

    one = await tampu("inspect", QUEUE, url=running.url)
    assert (one.code, one.err) == (0, "")
    assert "Queue      work" in one.lines
    assert "Active     1" in one.lines
    assert "Workers    1 alive" in one.lines
    assert any(line.startswith(f"{worker.id}  alive") for line in one.lines)
    assert "secret" not in one.out

    every = await tampu("inspect", url=running.url)
    assert every.lines[0] == f"Server: {running.url}"
    assert every.lines[1].split() == ["Queue", *map(str.title, COUNTS), "Workers", "Oldest"]
    assert every.lines[2].split()[:4] == ["reports", "3", "0", "1"]
    assert every.lines[3].split()[:3] == ["work", "0", "1"]
    assert max(map(len, every.lines)) <= 80

    told = (await tampu("inspect", QUEUE, "--json", url=running.url)).json
    assert list(told) == ["server", "queues"]
    assert list(told["queues"][0]) == QUEUE_KEYS
    assert list(told["queues"][0]["workers"][0]) == WORKER_KEYS
    assert told["queues"][0]["workers"][0]["state"] == "alive"
    assert told["queues"][0]["at"].endswith("Z")
    gate.open.set()


async def test_queue_ls_and_inspect_without_queues(running: RunningServer) -> None:
    empty = await tampu("--json", "queue", "ls", url=running.url)
    assert empty.json == {"server": running.url, "queues": []}
    shown = await tampu("inspect", url=running.url)
    assert shown.lines == [f"Server: {running.url}", "There are no queues."]
    async with Queue("a", running.url) as queue:
        await queue.add("x", delay=60)
    told = (await tampu("queue", "ls", "--url", running.url, "--json")).json
    assert told["queues"] == [
        {"queue": "a", "waiting": 0, "active": 0, "delayed": 1, "dead": 0, "schedules": 0}
    ]


async def test_a_queue_that_does_not_exist_is_an_error_that_names_similar_ones(
    running: RunningServer,
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("x")
    missed = await tampu("inspect", "emials", url=running.url)
    server = f"redis://127.0.0.1:{running.port}/0"
    assert (missed.code, missed.out) == (1, "")
    assert missed.err == f"tampu: There is no queue 'emials' on {server}. Did you mean 'emails'?\n"
    for command in (["events", "zzz"], ["job", "show", "zzz", "1"], ["watch", "zzz"]):
        far = await tampu(*command, url=running.url)
        assert (far.code, far.err) == (1, f"tampu: There is no queue 'zzz' on {server}.\n")


async def test_events_shows_the_newest_those_from_a_point_and_new_ones(
    running: RunningServer, harness: Harness
) -> None:
    worker = await harness.start_worker(Calls())
    await harness.queue.add_each("x", range(5))
    await harness.until_settled()
    await worker.stop()  # writes all its events
    url = running.url
    told = (await tampu("events", QUEUE, "--json", url=url)).json
    assert told["queue"] == QUEUE
    assert [list(event) for event in told["events"]] == [EVENT_KEYS] * len(told["events"])
    assert {event["kind"] for event in told["events"]} >= {"active", "completed"}
    newest = await tampu("events", QUEUE, "-n", "1", url=url)
    assert newest.lines == [newest.lines[0]]
    assert told["events"][-1]["id"] in newest.out
    first = told["events"][0]["id"]
    rest = (await tampu("events", QUEUE, "--from", first, "--json", url=url)).json
    assert rest["events"] == told["events"][1:]
    empty = await tampu("events", QUEUE, "--from", told["events"][-1]["id"], url=url)
    assert (empty.code, empty.out, empty.err) == (0, "", "tampu: There are no events.\n")
    ago = (await tampu("events", QUEUE, "--from", "10m", "--json", url=url)).json
    assert ago == told
    wrong = await tampu("events", QUEUE, "--from", "yesterday", url=url)
    problem = "expected the id of an event, a duration such as 10m, or 0."
    assert (wrong.code, wrong.err) == (2, f"tampu: Invalid --from 'yesterday': {problem}\n")
    followed = await tampu("events", QUEUE, "-f", "--from", "0", "-n", "3", "--json", url=url)
    assert [json.loads(line) for line in followed.lines] == told["events"][:3]


async def test_events_follows_until_it_is_interrupted(
    running: RunningServer, harness: Harness
) -> None:
    await harness.queue.add("x")
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("events", QUEUE, "-f", "--from", "0"),
        env=environment(running.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    await harness.start_worker(Calls())
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    assert b" active id=" in line
    process.send_signal(2)
    assert await asyncio.wait_for(process.wait(), 30) == 130
    assert await process.stderr.read() == b""


async def test_a_reader_that_stops_early_is_no_error(
    running: RunningServer, harness: Harness
) -> None:
    await harness.start_worker(Calls())
    await harness.queue.add_each("x", range(2000))
    await harness.until_settled()
    events = f"{' '.join(COMMAND)} events {QUEUE} --from 0 -n 4000"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-o", "pipefail", "-c", f"{events} | head -1"),
        env=environment(running.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 20)
    assert (len(out.splitlines()), err, process.returncode) == (1, b"", 0)


async def test_version_and_help_need_no_server() -> None:
    nowhere = "redis://127.0.0.1:1/0"
    told = (await tampu("version", "--json", url=nowhere)).json
    assert list(told) == ["tampu", "python", "redis", "hiredis", "msgspec"]
    top = await tampu("--help", url=nowhere)
    alone = await tampu(url=nowhere)
    assert (top.code, alone.code) == (0, 0)
    assert top.out == alone.out
    assert max(map(len, top.lines)) <= 80
    assert "..." not in top.out.partition("Commands:")[2]
    group = await tampu("dead", url=nowhere)
    assert "replay" in group.out
