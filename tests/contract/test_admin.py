"""Looking at a server's queues from outside, and clearing them away."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tampu import JobFailed, OptionError, Queue
from tampu.admin.queues import (
    Purgeable,
    PurgeCounts,
    drain,
    is_drained,
    purge_jobs,
    queue_exists,
    queue_names,
    remove_queue,
    summarise_queue,
)
from tampu.admin.rates import EVENTS_PER_SAMPLE, RateMeter, attempt_rates
from tampu.admin.workers import WorkerState, workers_of
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.contract.workers import GROUP, KEYS, QUEUE, Boom, Calls, Gate, Harness
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


@pytest.fixture
async def work(server: Server, harness: Harness) -> AsyncIterator[Lane]:
    del harness  # it looks for tasks that are left: ours ends before
    async with await Lane.open(server, KEYS.stream) as opened:
        yield opened


class TestQueues:
    async def test_are_found_by_any_of_their_keys(self, running: RunningServer) -> None:
        with running.admin() as admin:
            admin.set("other", "1")
            admin.zadd("{chasqui:only-delayed}:delayed", {"x": 1})
            admin.zadd("{chasqui:only-repeats}:repeat", {"x": 1})
            admin.xadd("{chasqui:only-dead}:dlq", {"d": "x"})
            admin.xadd("{chasqui:not ours}:stream", {"d": "x"})
            admin.xadd(b"{chasqui:\xff}:stream", {"d": "x"})
            admin.set("{chasqui:a-marker}:dlid:x", "1")
        async with Queue("b", running.url) as queue:
            await queue.add("x")
        async with await connect(running.url) as server:
            names = await queue_names(server)
        assert names == ["b", "only-dead", "only-delayed", "only-repeats"]

    async def test_exist_once_something_was_added(self, work: Lane, harness: Harness) -> None:
        assert not await queue_exists(work, KEYS)
        await harness.queue.add("x", delay=60)
        assert await queue_exists(work, KEYS)

    async def test_are_removed_with_every_key_and_no_neighbours(
        self, server: Server, running: RunningServer
    ) -> None:
        async with Queue("a", running.url) as a, Queue("a-b", running.url) as b:
            await a.add("x", job_id="1")
            await a.add("x", delay=60, job_id="2")
            await b.add("x")
        removed = await remove_queue(server, QueueKeys("a"))
        with running.admin() as admin:
            left: Any = admin.keys("*")
        assert removed == 7  # stream, delayed, bell, two markers, an index, the producer's memory
        assert all(b"{chasqui:a-b}" in key for key in left)


class TestOverview:
    async def test_tells_since_when_the_first_waits_and_who_works(
        self, work: Lane, harness: Harness
    ) -> None:
        gate = Gate()
        worker = await harness.start_worker(gate, concurrency=1)
        await harness.queue.add("runs")
        await gate.until(1)
        harness.admin.xgroup_create(KEYS.stream, "others", "$")
        await harness.queue.add("waits")
        entry = harness.admin.xrevrange(KEYS.stream, count=1)[0][0]
        await harness.queue.add("x", delay=60)
        seen = await summarise_queue(work, KEYS, "others")
        (alive,) = (await summarise_queue(work, KEYS)).workers
        gate.open.set()
        assert seen.counts.delayed == 1
        assert seen.oldest_waiting_at is not None
        assert round(seen.oldest_waiting_at.timestamp() * 1000) == int(entry.split(b"-")[0])
        assert seen.next_due_at is not None
        assert 55 < (seen.next_due_at - seen.at).total_seconds() <= 61
        assert seen.workers == []
        assert (alive.id, alive.state, alive.active) == (worker.id, WorkerState.ALIVE, 1)
        assert alive.concurrency == 1 and alive.pid and alive.host and alive.started_at

    async def test_of_nothing_is_empty(self, work: Lane) -> None:
        seen = await summarise_queue(work, KEYS)
        assert (seen.oldest_waiting_at, seen.next_due_at, seen.workers) == (None, None, [])

    async def test_knows_a_worker_that_is_gone_from_a_peer(
        self, work: Lane, harness: Harness
    ) -> None:
        for peer in ("t-gone", "c-peer"):
            harness.hold_as_peer(harness.add_entry({"d": b"x"}), deliveries=1, peer=peer)
        seen = {each.id: each for each in await workers_of(work, KEYS, GROUP.encode())}
        assert seen["t-gone"].state is WorkerState.GONE
        assert seen["c-peer"].state is WorkerState.UNKNOWN
        assert [each.active for each in seen.values()] == [1, 1]
        harness.admin.delete(KEYS.stream)


class TestPurging:
    async def test_removes_waiting_jobs_and_leaves_running_ones(
        self, work: Lane, harness: Harness
    ) -> None:
        gate = Gate()
        await harness.start_worker(gate, concurrency=1)
        runs = await harness.queue.add("runs", "kept")
        await gate.until(1)
        await harness.queue.add_each("waits", range(1500))
        purged = await purge_jobs(work, KEYS, [Purgeable.WAITING])
        assert purged.waiting + harness.pending() == 1501
        assert harness.admin.xlen(KEYS.stream) == harness.pending() >= 1
        gate.open.set()
        await harness.until_settled()
        assert gate.jobs[0].id == runs.id
        assert len(gate) + purged.waiting == 1501

    async def test_frees_the_ids_of_removed_jobs(self, work: Lane, harness: Harness) -> None:
        await harness.queue.add("x", job_id="waits")
        await harness.queue.add("x", job_id="delayed", delay=60)
        await harness.queue.add("x", delay=60)
        assert await purge_jobs(work, KEYS) == PurgeCounts(waiting=1, delayed=2, dead=0)
        for job_id in ("waits", "delayed"):
            assert not (await harness.queue.add("x", job_id=job_id, delay=60)).duplicate
        assert (await purge_jobs(work, KEYS, [Purgeable.DEAD])).delayed == 0
        assert (await harness.queue.counts()).delayed == 2

    async def test_removes_dead_jobs_including_undecodable_ones(
        self, work: Lane, harness: Harness
    ) -> None:
        await harness.start_worker(Boom(), attempts=1)
        await harness.queue.add("x")
        await harness.dead_letters()
        await harness.close()
        harness.add_entry({"nothing": "here"})
        harness.add_entry({"d": b"\xc1"})
        harness.admin.zadd(KEYS.delayed, {b"\x01": 99_999_999_999_999})
        assert await purge_jobs(work, KEYS) == PurgeCounts(waiting=2, delayed=1, dead=1)

    async def test_of_a_queue_that_is_not_there_removes_nothing(
        self, work: Lane, running: RunningServer
    ) -> None:
        assert await purge_jobs(work, KEYS) == PurgeCounts()
        with running.admin() as admin:
            assert admin.dbsize() == 0


class TestDraining:
    async def test_returns_when_nothing_waits_or_runs(self, work: Lane, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        await harness.queue.add("x")
        await harness.queue.add("x", delay=60)
        told: list[int] = []
        draining = asyncio.create_task(
            drain(work, KEYS, timeout_s=10, on_counts=lambda counts: told.append(counts.active))
        )
        await gate.until(1)
        await wait_until(lambda: 1 in told, within=60, sentence="it saw the job run")
        assert not draining.done()
        gate.open.set()
        counts = await draining
        assert is_drained(counts) and not is_drained(counts, delayed=True)

    async def test_gives_up_when_the_time_is_up(self, work: Lane, harness: Harness) -> None:
        await harness.queue.add("x", delay=60)
        assert is_drained(await drain(work, KEYS, timeout_s=0))
        counts = await drain(work, KEYS, timeout_s=0.05, delayed=True)
        assert not is_drained(counts, delayed=True)


class TestFlow:
    async def test_counts_jobs_added_done_and_failed(self, work: Lane, harness: Harness) -> None:
        flow = RateMeter(work, KEYS)
        first = await flow.sample()
        assert first.rates.added is None
        await harness.start_worker({"good": Calls(), "bad": Boom()}, attempts=1)
        await harness.queue.add_each("good", range(30))
        await harness.queue.add_each("bad", range(10))
        await harness.until_settled()
        await harness.dead_letters(10)
        await wait_until(
            lambda: len(harness.events()) >= 90, within=60, sentence="events are written"
        )
        seen = await flow.sample()
        rates = seen.rates
        assert rates.added is not None and rates.done is not None and rates.failed is not None
        assert rates.added > 0
        assert rates.done == pytest.approx(3 * rates.failed)
        assert (seen.queue, seen.counts.dead, len(seen.workers)) == (QUEUE, 10, 1)

    async def test_of_many_events_takes_the_newest_and_their_time(
        self, work: Lane, harness: Harness
    ) -> None:
        with harness.admin.pipeline(transaction=False) as writing:
            for number in range(2 * EVENTS_PER_SAMPLE):  # two a millisecond, for a second
                fields = {"e": "completed" if number % 4 else "failed", "id": "x", "ts": "1"}
                writing.xadd(KEYS.events, fields, id=f"{5_000 + number // 2}-{number % 2}")
            writing.execute()
        ends = await attempt_rates(work, KEYS, 5_000, now_ms=6_000)
        assert ends is not None
        assert ends.done == pytest.approx(1500, rel=0.01)
        assert ends.failed == pytest.approx(500, rel=0.01)
        few = await attempt_rates(work, KEYS, 5_900, now_ms=6_000)
        assert few is not None
        assert few.done == pytest.approx(1500, rel=0.01)

    async def test_without_events_jobs_that_left_the_stream_count_as_done(
        self, work: Lane, harness: Harness
    ) -> None:
        flow = RateMeter(work, KEYS)
        await harness.start_worker(Calls(), events=False)
        await flow.sample()
        await harness.queue.add_each("x", range(50))
        await harness.until_settled()
        rates = (await flow.sample()).rates
        if harness.admin.info("server")["redis_version"].startswith("6."):
            assert (rates.added, rates.done, rates.failed) == (None, None, None)
        else:
            assert rates.added == rates.done
            assert rates.added is not None and rates.added > 0
            assert rates.failed is None


async def test_a_dead_job_is_found_by_its_entry_id(harness: Harness) -> None:
    await harness.start_worker(Boom(), attempts=1, store_results=True)
    job = await harness.queue.add("x", {"to": "ada"})
    with pytest.raises(JobFailed):
        await job.result()
    (letter,) = await harness.dead_letters()
    assert await harness.queue.dead.get(letter.dead_id) == letter
    assert await harness.queue.dead.get("1-1") is None
    with pytest.raises(OptionError, match="expected the id of a dead letter"):
        await harness.queue.dead.get(job.id)
