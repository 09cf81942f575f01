"""Unique jobs: at most one with the same key at a time, whatever becomes of it."""

import asyncio
from typing import Any

import pytest

from tampu import (
    App,
    AppWorker,
    Backoff,
    Bury,
    CancelState,
    JobExists,
    JobState,
    NewJob,
    Queue,
    Snooze,
    SyncQueue,
    Unique,
)
from tampu.admin.conflicts import Conflicts
from tampu.admin.queues import PurgeCounts, purge_jobs
from tampu.job import Job
from tampu.producer.request import Request
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Gate, Harness
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

DONE = Unique(until="done")
STARTED = Unique(until="started")
RAISE = Unique(on_conflict="raise")
REPLACE = Unique(on_conflict="replace")
AT_ONCE = Backoff.fixed(0)


def unique_keys(harness: Harness) -> list[bytes]:
    found: list[bytes] = harness.admin.keys(KEYS.tag + b":tampu:unique:*")
    return found


async def until_free(harness: Harness) -> None:
    await wait_until(lambda: not unique_keys(harness), within=SOON, sentence="the key is free")


class TestConflicts:
    async def test_the_job_that_is_there_is_returned_with_its_data(self, harness: Harness) -> None:
        unique = Unique(key="ada")
        first = await harness.queue.add("mail", {"n": 1}, unique=unique)
        second = await harness.queue.add("mail", {"n": 2}, unique=unique)
        assert not first.duplicate
        assert second.duplicate
        assert (second.id, second.name, second.data) == (first.id, "mail", {"n": 1})
        assert harness.admin.xlen(KEYS.stream) == 1

    async def test_without_a_key_the_same_data_is_the_same_key(self, harness: Harness) -> None:
        one = await harness.queue.add("mail", {"a": 1, "b": [2]}, unique=DONE)
        same = await harness.queue.add("mail", {"b": [2], "a": 1}, unique=DONE)
        other = await harness.queue.add("mail", {"a": 2, "b": [2]}, unique=DONE)
        name = await harness.queue.add("bill", {"a": 1, "b": [2]}, unique=DONE)
        assert same.id == one.id
        assert not other.duplicate
        assert not name.duplicate

    async def test_raise(self, harness: Harness) -> None:
        first = await harness.queue.add("mail", 1, unique=RAISE)
        with pytest.raises(JobExists, match=f"job {first.id} has the unique key 'mail:") as raised:
            await harness.queue.add("mail", 1, unique=RAISE)
        assert raised.value.job_id == first.id
        assert harness.admin.xlen(KEYS.stream) == 1

    async def test_a_waiting_job_is_replaced(self, harness: Harness) -> None:
        unique = Unique(key="ada", on_conflict="replace")
        first = await harness.queue.add("mail", 1, unique=unique)
        second = await harness.queue.add("mail", 2, unique=unique)
        assert not second.duplicate
        assert second.id != first.id
        calls = Calls()
        await harness.start_worker(calls)
        await harness.until_settled()
        assert calls.data == [2]

    async def test_a_delayed_job_is_replaced_by_one_that_runs_now(self, harness: Harness) -> None:
        unique = Unique(key="ada", on_conflict="replace")
        await harness.queue.add("mail", 1, unique=unique, delay="1h")
        await harness.queue.add("mail", 2, unique=unique)
        assert harness.admin.zcard(KEYS.delayed) == 0
        assert harness.admin.xlen(KEYS.stream) == 1

    async def test_a_running_job_is_not_replaced(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        first = await harness.queue.add("mail", 1, unique=REPLACE)
        await gate.until(1)
        second = await harness.queue.add("mail", 1, unique=REPLACE)
        assert second.duplicate
        assert second.id == first.id
        gate.open.set()
        await harness.until_settled()
        assert gate.ended == 1

    async def test_many_at_once_are_resolved_one_by_one(self, harness: Harness) -> None:
        wanted = [NewJob("mail", n % 3, unique=DONE) for n in range(9)]
        jobs = await harness.queue.add_many(wanted)
        assert [job.duplicate for job in jobs] == [False] * 3 + [True] * 6
        assert [job.id for job in jobs] == [job.id for job in jobs[:3]] * 3

    async def test_of_many_producers_one_wins(self, harness: Harness) -> None:
        queues = [Queue(QUEUE, harness.running.url) for _ in range(4)]
        try:
            adds = [queue.add("mail", 1, unique=DONE) for queue in queues for _ in range(10)]
            jobs = await asyncio.gather(*adds)
        finally:
            for queue in queues:
                await queue.close()
        assert len({job.id for job in jobs}) == 1
        assert sum(not job.duplicate for job in jobs) == 1

    async def test_a_key_that_is_freed_meanwhile_is_taken_by_the_job_with_its_own_id(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resolve = Conflicts.resolve

        async def resolve_late(self: Conflicts, request: Request, refused: Job[Any]) -> Job[Any]:
            await first.cancel()
            return await resolve(self, request, refused)

        first = await harness.queue.add("mail", 1, unique=DONE)
        monkeypatch.setattr(Conflicts, "resolve", resolve_late)
        second = await harness.queue.add("mail", 1, job_id="mine", unique=DONE)
        assert (second.id, second.duplicate) == ("mine", False)
        assert (await second.info()).state is JobState.WAITING
        again = await harness.queue.add("mail", 2, job_id="mine", unique=DONE)
        assert (again.id, again.data, again.duplicate) == ("mine", 1, True)

    async def test_code_without_an_event_loop_gets_the_same(self, harness: Harness) -> None:
        def add_twice() -> tuple[str, str]:
            with SyncQueue(QUEUE, harness.running.url) as queue:
                return tuple(queue.add("mail", 1, unique=DONE).id for _ in range(2))  # type: ignore[return-value]

        first, second = await asyncio.to_thread(add_twice)
        assert first == second


class TestUntilDone:
    async def test_the_key_is_taken_until_the_job_is_done(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        await harness.queue.add("mail", 1, unique=DONE)
        await gate.until(1)
        assert (await harness.queue.add("mail", 1, unique=DONE)).duplicate
        gate.open.set()
        await until_free(harness)
        assert not (await harness.queue.add("mail", 1, unique=DONE)).duplicate

    @pytest.mark.parametrize("store_results", [False, True])
    async def test_results_are_stored_as_usual(
        self, harness: Harness, *, store_results: bool
    ) -> None:
        await harness.start_worker(Calls(), store_results=store_results)
        job = await harness.queue.add("mail", 7, unique=DONE)
        await until_free(harness)
        stored = {job.id: 7} if store_results else {}
        assert await harness.queue.results([job.id]) == stored

    async def test_a_failed_attempt_keeps_the_key(self, harness: Harness) -> None:
        boom = Boom(times=1)
        await harness.start_worker(boom, backoff=Backoff.fixed(3600))
        job = await harness.queue.add("mail", 1, unique=DONE)
        await wait_until(
            lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it waits"
        )
        assert (await harness.queue.add("mail", 1, unique=DONE)).id == job.id
        assert await job.run_now()
        await until_free(harness)
        assert boom.attempts == [1, 2]

    async def test_a_snoozed_job_keeps_the_key(self, harness: Harness) -> None:
        await harness.start_worker(Boom(Snooze(3600)))
        job = await harness.queue.add("mail", 1, unique=DONE)
        await wait_until(
            lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it waits"
        )
        assert (await harness.queue.add("mail", 1, unique=DONE)).id == job.id

    @pytest.mark.parametrize("error", [Bury("no"), ValueError("no")])
    async def test_burying_frees_the_key(self, harness: Harness, error: Exception) -> None:
        await harness.start_worker(Boom(error), attempts=2, backoff=AT_ONCE)
        await harness.queue.add("mail", 1, unique=DONE)
        await until_free(harness)
        assert (await harness.queue.counts()).dead == 1

    async def test_cancelling_frees_the_key(self, harness: Harness) -> None:
        for delay in (None, "1h"):
            job = await harness.queue.add("mail", 1, unique=DONE, delay=delay)
            assert await job.cancel() is CancelState.CANCELLED
            assert not unique_keys(harness)

    async def test_cancelling_a_running_job_frees_the_key(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        job = await harness.queue.add("mail", 1, unique=DONE)
        await gate.until(1)
        assert await job.cancel() is CancelState.CANCELLING
        await until_free(harness)

    async def test_a_key_whose_job_a_peer_has_ended_is_taken_over(self, harness: Harness) -> None:
        first = await harness.queue.add("mail", 1, unique=DONE)
        harness.admin.xtrim(KEYS.stream, maxlen=0, approximate=False)
        second = await harness.queue.add("mail", 1, unique=DONE)
        assert not second.duplicate
        assert second.id != first.id


class TestUntilStarted:
    async def test_the_key_is_free_when_the_handler_runs(self, harness: Harness) -> None:
        seen: list[bool] = []

        async def add_again(job: Job[Any]) -> None:
            if not seen:
                seen.append((await harness.queue.add("mail", 1, unique=STARTED)).duplicate)

        await harness.queue.add("mail", 1, unique=STARTED)
        assert (await harness.queue.add("mail", 1, unique=STARTED)).duplicate
        await harness.start_worker(add_again)
        await harness.until_settled()
        assert seen == [False]

    async def test_all_of_many_run(self, harness: Harness) -> None:
        calls = Calls()
        await harness.queue.add_many([NewJob("mail", n, unique=STARTED) for n in range(1000)])
        await harness.start_worker(calls)
        await harness.until_settled()
        assert sorted(calls.data) == list(range(1000))
        assert not unique_keys(harness)


class TestForATime:
    async def test_the_key_stays_taken_after_the_job_is_done(self, harness: Harness) -> None:
        unique = Unique(until="1h")
        await harness.start_worker(Calls())
        job = await harness.queue.add("mail", 1, unique=unique)
        await harness.until_settled()
        again = await harness.queue.add("mail", 1, unique=unique)
        assert again.duplicate
        assert again.id == job.id
        (key,) = unique_keys(harness)
        assert 3_590_000 < harness.admin.pttl(key) <= 3_600_000


class TestTasks:
    async def test_a_task_is_unique_by_its_arguments(self, harness: Harness) -> None:
        app = App(harness.running.url)
        runs: list[int] = []

        @app.task(queue=QUEUE, unique=Unique(until="done"))
        async def sync_account(account: int) -> None:
            runs.append(account)

        async with app:
            first = await sync_account.enqueue(1)
            second = await sync_account.enqueue(account=1)
            other = await sync_account.enqueue(2)
            assert second.id == first.id
            assert not other.duplicate
            async with AppWorker(app):
                await harness.until_settled()
        assert sorted(runs) == [1, 2]


class TestPurging:
    async def test_purging_frees_ids_and_keys_in_every_state(self, harness: Harness) -> None:
        add = harness.queue.add
        worker = await harness.start_worker(Boom(Bury("no")))
        await add("dead", 1, job_id="dead", unique=Unique(key="dead"))
        await wait_until(
            lambda: harness.admin.xlen(KEYS.dead) == 1, within=SOON, sentence="it is dead"
        )
        await worker.stop()
        await add("waits", 1, job_id="waits", unique=Unique(key="waits"))
        await add("later", 1, job_id="later", unique=Unique(key="later"), delay="1h")
        await harness.queue.dead.purge(everything=True)
        lane = (await harness.queue._connect()).lane
        assert await purge_jobs(lane, KEYS) == PurgeCounts(waiting=1, delayed=1)
        for job_id in ("dead", "waits", "later"):
            assert not (await add(job_id, 2, job_id=job_id, unique=Unique(key=job_id))).duplicate

    async def test_a_buried_id_can_be_added_again(self, harness: Harness) -> None:
        worker = await harness.start_worker(Boom(Bury("no")), store_results=True)
        first = await harness.queue.add("mail", 1, job_id="mine")
        await wait_until(
            lambda: harness.admin.xlen(KEYS.dead) == 1, within=SOON, sentence="it is dead"
        )
        await worker.stop()
        again = await harness.queue.add("mail", 2, job_id="mine")
        assert not again.duplicate
        await harness.start_worker(Calls(), store_results=True)
        assert await first.result() == 2

    async def test_a_taken_id_gives_the_job_that_is_there(self, harness: Harness) -> None:
        await harness.queue.add("mail", {"n": 1}, job_id="mine")
        again = await harness.queue.add("other", {"n": 2}, job_id="mine")
        assert again.duplicate
        assert (again.name, again.data) == ("mail", {"n": 1})
