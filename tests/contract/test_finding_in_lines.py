"""Jobs that wait in lines are found however deep they are, and however many lines there are."""

import asyncio

import pytest

from tampu import CancelState, Concurrency, JobState, NewJob, WaitsFor
from tampu.admin.found import JobFinder
from tampu.admin.queues import purge_jobs
from tampu.server.lane import Lane
from tampu.server.scripts.gate import list_lines
from tampu.util.ids import new_ids
from tampu.wire.entry import encode_member
from tests.contract.workers import envelope
from tests.gates import ManualGate

LONG = 120_000
YEAR_MS = 31_536_000_000


def lengthen(gate: ManualGate, line: bytes, *, before: int, count: int) -> None:
    """Let jobs wait in a line that were added so long before now, in order."""
    ids = new_ids(count, gate.admin.time()[0] * 1000 - before)
    members = [encode_member("x", envelope(job_id=job_id)) for job_id in ids]
    for at in range(0, count, 10_000):
        gate.admin.rpush(gate.keys.gate + b":line:" + line, *members[at : at + 10_000])
    gate.admin.hincrby(gate.keys.gate, "waiting", count)


@pytest.mark.parametrize("job_id", [None, "order:17"])
async def test_a_job_behind_a_hundred_thousand_of_its_line(
    gate: ManualGate, job_id: str | None
) -> None:
    await gate.queue.add("first", key="a")
    lengthen(gate, b"5/a", before=YEAR_MS, count=LONG)
    wanted = await gate.queue.add("wanted", 5, key="a", job_id=job_id)
    lengthen(gate, b"5/a", before=-YEAR_MS, count=5000)
    info = await wanted.info()
    assert (info.state, info.data, info.key) == (JobState.WAITING, 5, "a")
    assert (await gate.queue.job("nope").info()).searched_all
    assert (await wanted.why()).waits_for is WaitsFor.WORKER
    assert await wanted.cancel() is CancelState.CANCELLED
    assert (await wanted.info()).state is JobState.CANCELLED
    gate.admin.flushdb()


@pytest.mark.every_server
async def test_a_job_that_is_where_its_id_belongs_is_found_without_a_search(
    gate: ManualGate, lane: Lane
) -> None:
    await gate.queue.add("first", key="a")
    lengthen(gate, b"5/a", before=YEAR_MS, count=20_000)
    wanted = await gate.queue.add("wanted", key="a")
    lengthen(gate, b"5/a", before=-YEAR_MS, count=20_000)
    gate.admin.config_resetstat()
    assert (await JobFinder(lane, gate.keys).find([wanted.id])).keys() == {wanted.id}
    read = gate.admin.info("commandstats")["cmdstat_lrange"]["calls"]
    assert read < 20, "it reads a few pages, not 80"
    gate.admin.flushdb()


@pytest.mark.every_server
async def test_a_search_stops_at_its_limit_and_reports_it(gate: ManualGate, lane: Lane) -> None:
    await gate.queue.add("first", key="a")
    lengthen(gate, b"5/a", before=YEAR_MS, count=10_000)
    await gate.queue.add("wanted", key="a", job_id="order:17")
    finder = JobFinder(lane, gate.keys, most=100)
    assert await finder.find(["order:17"]) == {}
    assert not finder.searched_all
    finder = JobFinder(lane, gate.keys, most=1000)
    assert (await finder.find(["order:17"])).keys() == {"order:17"}
    gate.admin.flushdb()


async def test_all_of_many_lines_are_listed_and_searched(gate: ManualGate, lane: Lane) -> None:
    held, free = 6000, 3000
    one = [Concurrency(1)]
    await gate.queue.add_many(
        [NewJob("held", key=f"h{n}", limits=one, job_id=f"h{n}") for n in range(held)]
    )
    await gate.want(2)  # one runs, and the lines of all others wait for it
    await gate.queue.add_many([NewJob("x", key=f"f{n}", priority=n % 10) for n in range(free)])
    lines = await list_lines(lane, gate.keys, most=100_000)
    assert len({each.line for each in lines}) == len(lines)
    waiting = [each.line for each in lines if each.resource == b"held()"]
    assert (len(waiting), len(lines)) == (held - 1, held - 1 + free - 1), "one of each has passed"
    assert len(await list_lines(lane, gate.keys, most=7000)) == 7000
    found = await JobFinder(lane, gate.keys).find([f"h{n}" for n in range(held - 30, held)])
    assert len(found) == 30
    assert sum([1 async for _ in gate.queue.jobs(state="waiting", most=None)]) == held + free
    assert (await purge_jobs(lane, gate.keys)).waiting == held + free
    assert await list_lines(lane, gate.keys, most=10) == []


@pytest.mark.every_server
async def test_jobs_in_lines_are_purged_and_counted_in_one_step(
    gate: ManualGate, lane: Lane
) -> None:
    await gate.queue.add_many([NewJob("x", key=f"k{n % 20}") for n in range(20_000)])
    purging = asyncio.create_task(purge_jobs(lane, gate.keys))
    looks = 0
    while not purging.done():
        gate.sound()
        looks += 1
        await asyncio.sleep(0)
    assert (await purging).waiting == 20_000
    assert looks > 2
    assert gate.sound().lined == 0
