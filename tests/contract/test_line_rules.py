"""What becomes of other jobs that wait: debounce, keep="latest", full lines, halted keys."""

import asyncio

import pytest

from tampu import Debounce, JobCancelled, JobState, NewJob, OptionError, QueueFull, Unique
from tests.contract.workers import KEYS, SOON, Calls, Harness, until_empty
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


def dropped(harness: Harness) -> int:
    return int(harness.admin.hget(KEYS.gate, "dropped") or 0)


class TestDebounce:
    async def test_only_the_latest_of_each_value_runs(self, harness: Harness) -> None:
        rule, calls = Debounce("1h", by="doc"), Calls()
        jobs = [
            await harness.queue.add("index", {"doc": n % 2, "n": n}, debounce=rule)
            for n in range(6)
        ]
        assert (await harness.queue.counts()).delayed == 2
        states = [(await job.info()).state for job in jobs]
        assert states == [JobState.CANCELLED] * 4 + [JobState.DELAYED] * 2
        assert dropped(harness) == 4
        for job in jobs[4:]:
            assert await job.run_now()
        await harness.start_worker(calls)
        await until_empty(harness)
        assert sorted(data["n"] for data in calls.data) == [4, 5]

    async def test_it_runs_once_it_has_been_quiet(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        for n in range(5):
            await harness.queue.add("index", n, debounce=Debounce("2s"))
        await until_empty(harness)
        assert calls.data == [4]
        await harness.queue.add("index", 5, debounce=Debounce("0.1s"))
        await until_empty(harness)
        assert calls.data == [4, 5], "what came after it is a new job"

    async def test_it_runs_at_the_latest_after_its_longest_time(self, harness: Harness) -> None:
        rule = Debounce("50s", max="60s")
        first = await harness.queue.add("index", 1, debounce=rule)
        ((_, due),) = harness.admin.zrange(KEYS.delayed, 0, -1, withscores=True)
        harness.admin.set(  # as if the first had been added 30 s ago
            KEYS.gate + b":debounce:index",
            b"%d " % (due - 80_000) + harness.admin.zrange(KEYS.delayed, 0, 0)[0],
        )
        await harness.queue.add("index", 2, debounce=rule)
        ((_, later),) = harness.admin.zrange(KEYS.delayed, 0, -1, withscores=True)
        assert due - 20_000 <= later < due, "60 s after the first one"
        assert (await first.info()).state is JobState.CANCELLED

    async def test_without_a_worker_a_job_that_is_due_is_still_replaced(
        self, harness: Harness
    ) -> None:
        rule, calls = Debounce("0.01s"), Calls()
        kept = KEYS.gate + b":debounce:index"
        await harness.queue.add("index", 1, debounce=rule)
        assert harness.admin.pttl(kept) > 20 * 86_400_000, "it outlives a worker that is away"
        ((member, due),) = harness.admin.zrange(KEYS.delayed, 0, -1, withscores=True)
        harness.admin.zadd(KEYS.delayed, {member: due - 86_400_000})
        await harness.queue.add("index", 2, debounce=rule)
        assert harness.admin.zcard(KEYS.delayed) == 1
        await harness.start_worker(calls)
        await until_empty(harness)
        assert calls.data == [2]
        assert not harness.admin.exists(kept), "nothing is left of it"
        last = await harness.queue.add("index", 3, debounce=Debounce("1h"))
        assert harness.admin.exists(kept)
        assert await last.run_now()
        assert not harness.admin.exists(kept)
        await (await harness.queue.add("index", 4, debounce=Debounce("1h"))).cancel()
        assert not harness.admin.exists(kept)
        await until_empty(harness)

    async def test_producers_that_add_at_once_leave_one_job(self, harness: Harness) -> None:
        rule = Debounce("1h")
        await asyncio.gather(
            *(harness.queue.add("index", n, debounce=rule) for n in range(100)),
        )
        assert (await harness.queue.counts()).delayed == 1
        assert dropped(harness) == 99


class TestLatest:
    async def test_a_newer_job_replaces_those_of_its_key_that_wait(self, harness: Harness) -> None:
        calls = Calls()
        for key in "ab":
            for n in range(3):
                await harness.queue.add("sync", f"{key}{n}", key=key, keep="latest")
        await harness.queue.add_many(
            [NewJob("sync", f"c{n}", key="c", keep="latest") for n in range(3)]
        )
        assert (await harness.queue.counts()).waiting == 3
        assert dropped(harness) == 6
        await harness.start_worker(calls)
        await until_empty(harness)
        assert sorted(calls.data) == ["a2", "b2", "c2"]

    async def test_whoever_waits_for_a_replaced_job_learns_of_it(self, harness: Harness) -> None:
        old = await harness.queue.add("sync", 1, key="a", keep="latest")
        waiting = asyncio.create_task(old.result(SOON))
        await harness.queue.add("sync", 2, key="a", keep="latest")
        with pytest.raises(JobCancelled):
            await waiting
        events = [each.kind for each in harness.events(old.id)]
        assert [str(kind) for kind in events] == ["dropped"]

    async def test_what_a_replaced_job_held_is_free_again(self, harness: Harness) -> None:
        for n in range(2):
            added = await harness.queue.add(
                "sync", n, key="a", keep="latest", job_id=f"sync-{n}", unique=Unique(key=f"k{n}")
            )
            assert not added.duplicate
        again = await harness.queue.add("sync", 3, job_id="sync-0", unique=Unique(key="k0"))
        assert not again.duplicate


class TestFullLines:
    async def test_a_full_line_refuses_all_jobs_of_a_call(self, harness: Harness) -> None:
        await harness.queue.add_many([NewJob("x", n, max_waiting=3) for n in range(3)])
        with pytest.raises(QueueFull, match="max_waiting"):
            await harness.queue.add("x", 4, max_waiting=3)
        with pytest.raises(QueueFull):
            await harness.queue.add_many(
                [NewJob("y", n, max_waiting=2) for n in range(3)],
            )
        assert (await harness.queue.counts()).waiting == 3
        await harness.queue.add("x", 5, max_waiting=3, key="another line")

    async def test_new_jobs_can_be_dropped(self, harness: Harness) -> None:
        jobs = [
            await harness.queue.add("x", n, max_waiting=2, on_full="drop_new") for n in range(4)
        ]
        assert [job.dropped for job in jobs] == [False, False, True, True]
        for job in jobs[2:]:
            with pytest.raises(JobCancelled):
                await job.result(SOON)
            assert (await job.info()).state is JobState.CANCELLED
        assert (await harness.queue.counts()).waiting == 2
        assert dropped(harness) == 2
        assert [each.job_id for each in harness.events()] == [job.id for job in jobs[2:]]

    async def test_old_jobs_can_be_dropped(self, harness: Harness) -> None:
        jobs = [
            await harness.queue.add("x", n, max_waiting=2, on_full="drop_old") for n in range(4)
        ]
        assert not any(job.dropped for job in jobs)
        states = [(await job.info()).state for job in jobs]
        assert states == [JobState.CANCELLED] * 2 + [JobState.WAITING] * 2

    async def test_a_producer_can_wait_for_room(self, harness: Harness) -> None:
        calls = Calls()
        await harness.queue.add("x", 0, max_waiting=1)
        adding = asyncio.create_task(
            harness.queue.add_many(
                [NewJob("x", n, max_waiting=1, on_full="wait") for n in range(1, 4)]
            )
        )
        harness.reset_calls()
        await wait_until(lambda: harness.calls() >= 3, within=SOON, sentence="it tries again")
        assert not adding.done()
        await harness.start_worker(calls)
        await adding
        await until_empty(harness)
        assert sorted(calls.data) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "options",
    [
        {"debounce": "5s"},
        {"debounce": Debounce("5s"), "delay": 5},
        {"debounce": Debounce("5s", by="doc")},
        {"keep": "oldest"},
        {"keep": "latest", "max_waiting": 3},
        {"max_waiting": 0},
        {"on_full": "drop_old"},
        {"max_waiting": 3, "on_full": "drop"},
        {"on_dead": "halt"},
    ],
)
async def test_impossible_rules_are_refused(harness: Harness, options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        await harness.queue.add("x", 1, **options)  # type: ignore[arg-type] # that is tested
    assert not harness.admin.exists(KEYS.gate)


async def test_an_ordered_key_that_halts_stops_at_a_dead_letter_until_it_is_resumed(
    harness: Harness,
) -> None:
    calls = Calls()

    async def handler(job: object) -> None:
        await calls(job)  # type: ignore[arg-type] # a job
        if len(calls.jobs) == 1:
            raise ValueError("once")

    await harness.start_worker(handler, attempts=1)
    for n in range(3):
        await harness.queue.add("x", n, key="a", ordered=True, on_dead="halt")
    await harness.queue.add("x", "b", key="b", ordered=True)
    (letter,) = await harness.dead_letters()
    await wait_until(lambda: "b" in calls.data, within=SOON, sentence="other keys go on")
    last = (await harness.queue.counts()).waiting
    assert last == 2
    assert await harness.queue.dead.replay(ids=[letter.dead_id]) == 1
    assert await harness.queue.resume(key="a") is True
    await until_empty(harness)
    assert [data for data in calls.data if data != "b"] == [0, 0, 1, 2], "the replayed one first"
