"""Delayed jobs are promoted when they are due, once each."""

import asyncio
from datetime import UTC, datetime, timedelta
from time import monotonic, time
from typing import Any

import pytest

from tampu import (
    CancelState,
    JobState,
    NewJob,
    OptionError,
    Promoter,
    ServerUnreachable,
    WrongContext,
)
from tampu.job import Job
from tampu.metrics import MemorySink
from tampu.metrics.facts import LeadChanged, Promotion
from tampu.util.clock import now_ms
from tampu.wire.event import EventKind
from tampu.wire.holders import HolderKind, LockHolder
from tests.contract.promoting import make_promoter, until_leader_is
from tests.contract.workers import KEYS, QUEUE, SOON, Calls, Harness, envelope, own_tasks
from tests.servers import free_port
from tests.waiting import wait_until


class Timed(Calls):
    """A handler that records when each job started."""

    def __init__(self) -> None:
        super().__init__()
        self.at_ms: dict[str, float] = {}

    async def __call__(self, job: Job[Any]) -> object:
        self.at_ms[job.id] = time() * 1000
        return await super().__call__(job)


def due_ms(harness: Harness) -> dict[bytes, float]:
    """When each delayed job is due, by its member."""
    return dict(harness.admin.zrange(KEYS.delayed, 0, -1, withscores=True))


async def until_no_index_is_left(harness: Harness) -> None:
    await wait_until(
        lambda: harness.admin.keys("*:didx:*") == [], within=SOON, sentence="indexes are deleted"
    )


async def until_moved(sink: MemorySink, count: int) -> None:
    """Return when so many promotions are recorded; the server knows of them earlier."""
    await wait_until(
        lambda: sum(fact.moved for fact in sink.of(Promotion)) == count,
        within=SOON,
        sentence=f"{count} promotions are recorded",
    )


@pytest.mark.every_server
class TestDueTime:
    async def test_a_job_runs_when_it_is_due_and_never_before(self, harness: Harness) -> None:
        timed = Timed()
        await harness.start_worker(timed)
        delays = [0.3, 0.02, 0.15, 0.001]
        jobs = await harness.queue.add_many([NewJob("a", each, delay=each) for each in delays])
        added = time() * 1000
        await timed.until(4)
        for job, delay in zip(jobs, delays, strict=True):
            late_ms = timed.at_ms[job.id] - job.created_at_ms - delay * 1000
            assert late_ms >= 0
            assert late_ms < added - job.created_at_ms + 1000

    async def test_a_thousand_due_at_once_all_run_and_nothing_is_left(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.add_each("a", range(1000), delay=0.1)
        await harness.until_settled()
        assert sorted(calls.data) == list(range(1000))
        await until_no_index_is_left(harness)

    async def test_more_than_one_batch_can_be_due(self, harness: Harness) -> None:
        calls = Calls()
        jobs = await harness.queue.add_each("a", range(3000), delay="1h")
        assert len(jobs) == harness.admin.zcard(KEYS.delayed)
        harness.admin.zadd(KEYS.delayed, dict.fromkeys(due_ms(harness), 1))
        sink = MemorySink()
        await harness.start_worker(calls, metrics=sink)
        await harness.until_settled()
        assert sorted(calls.data) == list(range(3000))
        await until_moved(sink, 3000)

    async def test_a_delayed_job_survives_its_worker(self, harness: Harness) -> None:
        early, late = Calls(), Calls()
        first = await harness.start_worker(early)
        job = await harness.queue.add("a", 1, delay="1h")
        await first.stop()
        await harness.start_worker(late)
        assert await harness.queue.job(job.id).reschedule(delay=0.02)
        await late.until(1)
        assert (early.data, late.data) == ([], [1])

    async def test_names_are_kept_with_relative_and_absolute_times(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        soon = datetime.now(UTC) + timedelta(milliseconds=100)
        await harness.queue.add_many(
            [NewJob("in", delay=0.05), NewJob("at", at=soon), NewJob("", delay=0.05)]
        )
        await calls.until(3)
        assert sorted(job.name for job in calls.jobs) == ["", "at", "in"]

    async def test_promoting_deletes_the_index_and_keeps_the_marker(self, harness: Harness) -> None:
        calls = Calls()
        await harness.queue.add("a", job_id="x", delay=0.05)
        job = await harness.queue.add("a", delay=0.05)
        assert harness.admin.exists(KEYS.index("x"), KEYS.index(job.id)) == 2
        await harness.start_worker(calls)
        await calls.until(2)
        await until_no_index_is_left(harness)
        assert harness.admin.exists(KEYS.marker("x")) == 1
        assert harness.admin.exists(KEYS.marker(job.id)) == 0

    async def test_a_new_job_with_the_id_of_an_old_retry_is_still_found(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        member = b"\0\0\0\0" + envelope(job_id="x", attempt=1)
        harness.admin.zadd(KEYS.delayed, {member: 1})
        await harness.queue.add("a", job_id="x", delay="1h")
        await harness.start_worker(calls)
        await calls.until(1)
        async with make_promoter(harness):  # all calls of a worker are done when it has stopped
            await harness.workers[0].stop()
        assert (await harness.queue.job("x").info()).state is JobState.DELAYED
        assert await harness.queue.job("x").cancel() is CancelState.CANCELLED


class TestCancelled:
    async def test_a_job_that_has_run_cannot_be_cancelled(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        job = await harness.queue.add("a", 1, delay=0.02)
        await calls.until(1)
        await harness.until_settled()
        assert await harness.queue.job(job.id).cancel() is CancelState.TOO_LATE
        assert calls.data == [1]

    @pytest.mark.every_server
    async def test_a_cancelled_job_never_runs_and_the_others_do(self, harness: Harness) -> None:
        calls = Calls()
        jobs = await harness.queue.add_each("a", range(10), delay=0.3)
        gone = await harness.queue.cancel_many([job.id for job in jobs[::2]])
        assert gone == [CancelState.CANCELLED] * 5
        await harness.start_worker(calls)
        await harness.until_settled()
        assert sorted(calls.data) == [1, 3, 5, 7, 9]

    async def test_a_job_is_cancelled_or_run_while_twenty_thousand_fall_due(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        jobs = await harness.queue.add_each("a", range(20_000), delay="1h")
        await harness.start_worker(calls, events=False)
        asked = [job.id for job in jobs[::10]]
        answers = await harness.queue.cancel_many(asked[:20])  # a busy machine may run the others
        harness.admin.zadd(KEYS.delayed, dict.fromkeys(due_ms(harness), now_ms() + 30))
        for start in range(20, len(asked), 20):
            answers += await harness.queue.cancel_many(asked[start : start + 20])
        await harness.until_settled()
        told = dict(zip(asked, answers, strict=True))
        cancelled = {each for each, state in told.items() if state is CancelState.CANCELLED}
        stopped = {each for each, state in told.items() if state is CancelState.CANCELLING}
        ran = [job.id for job in calls.jobs]
        assert len(ran) == len(set(ran))
        assert cancelled.isdisjoint(ran)
        assert cancelled | stopped | set(ran) == {job.id for job in jobs}
        assert len(cancelled) > 0
        await until_no_index_is_left(harness)


@pytest.mark.every_server
class TestPoison:
    async def test_malformed_members_are_buried_and_do_not_stop_the_others(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        poison = [b"", b"xy", b"\xff\0\0\0abc", b"\x03\0\0\0abc"]
        harness.admin.zadd(KEYS.delayed, {**dict.fromkeys(poison, 1), b"\xff\xff\xff\xffx": 1e18})
        await harness.queue.add("a", 1, delay=0.02)
        await harness.start_worker(calls)
        await calls.until(1)
        letters = await harness.dead_letters(len(poison))
        assert sorted(letter.raw for letter in letters) == sorted(poison)
        assert {letter.reason.value for letter in letters} == {"malformed"}
        assert harness.admin.zcard(KEYS.delayed) == 1

    async def test_an_envelope_that_cannot_be_decoded_is_buried_with_its_bytes(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        harness.admin.zadd(KEYS.delayed, {b"\0\0\0\0\xc1\xa5garbage": 1, b"\0\0\0\0\x94": 1})
        await harness.queue.add("a", 1, delay=0.02)
        await harness.start_worker(calls)
        await calls.until(1)
        letters = await harness.dead_letters(2)
        assert {letter.raw for letter in letters} == {b"\xc1\xa5garbage", b"\x94"}
        assert await harness.queue.counts() is not None


class TestStandalone:
    async def test_it_promotes_for_a_worker_that_does_not(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls, promote=False)
        async with make_promoter(harness) as promoter:
            for _ in range(3):
                await harness.queue.add("a", 1, job_id="x", delay=0.05)
            await calls.until(1)
            await harness.until_settled()
            assert harness.admin.get(KEYS.promoter_lock) == promoter.id.encode()
        assert calls.data == [1]
        assert LockHolder(promoter.id).kind is HolderKind.PROMOTER
        assert harness.admin.exists(KEYS.promoter_lock) == 0
        assert QUEUE in repr(promoter)

    @pytest.mark.parametrize("events", [True, False])
    @pytest.mark.every_server
    async def test_it_writes_events_if_asked_to(self, harness: Harness, *, events: bool) -> None:
        sink = MemorySink()
        async with make_promoter(harness, events=events, metrics=sink):
            job = await harness.queue.add("greet", delay=0.02)
            await until_moved(sink, 1)
        assert harness.admin.xlen(KEYS.stream) == 1
        told = [(event.kind, event.name) for event in harness.events(job.id)]
        assert told == ([(EventKind.WAITING, "greet")] if events else [])
        assert sink.of(LeadChanged) == [
            LeadChanged("promoter", leads=each) for each in (True, False)
        ]

    async def test_three_promote_each_job_once_and_one_of_them_listens(
        self, harness: Harness
    ) -> None:
        before = sorted(own_tasks())
        promoters = [make_promoter(harness) for _ in range(3)]
        async with promoters[0], promoters[1], promoters[2]:
            jobs = await harness.queue.add_each("a", range(2000), delay=0.05)
            await wait_until(
                lambda: harness.admin.zcard(KEYS.delayed) == 0, within=SOON, sentence="all are due"
            )
            assert harness.admin.xlen(KEYS.stream) == len(jobs)
            await wait_until(
                lambda: harness.admin.info("clients")["blocked_clients"] == 1,
                within=SOON,
                sentence="one of them listens",
            )
        assert sorted(own_tasks()) == before

    @pytest.mark.every_server
    async def test_another_one_leads_when_the_leader_stops(self, harness: Harness) -> None:
        first, second = make_promoter(harness), make_promoter(harness)
        async with second:
            async with first:
                await wait_until(
                    lambda: harness.admin.exists(KEYS.promoter_lock),
                    within=SOON,
                    sentence="one leads",
                )
                leader = harness.admin.get(KEYS.promoter_lock).decode()
                leaves = first if leader == first.id else second
                stays = second if leaves is first else first
                await leaves.stop()
                await until_leader_is(harness, stays.id)
                await harness.queue.add("a", delay=0.02)
                await wait_until(
                    lambda: harness.admin.xlen(KEYS.stream) == 1, within=SOON, sentence="promoted"
                )

    async def test_a_lock_that_another_process_holds_is_not_deleted(self, harness: Harness) -> None:
        harness.admin.set(KEYS.promoter_lock, "p-other")
        async with make_promoter(harness):
            await harness.queue.add("a", delay=0.02)
        assert harness.admin.get(KEYS.promoter_lock) == b"p-other"
        assert harness.admin.exists(KEYS.stream) == 0

    @pytest.mark.every_server
    async def test_scripts_that_the_server_forgets_are_loaded_again(self, harness: Harness) -> None:
        async with make_promoter(harness):
            for number in range(1, 4):
                harness.admin.script_flush()
                await harness.queue.add("a", delay=0.02)
                await wait_until(
                    lambda wanted=number: harness.admin.xlen(KEYS.stream) == wanted,  # type: ignore[misc]
                    within=SOON,
                    sentence="it is promoted",
                )

    async def test_an_unreachable_server_is_an_error_at_once(self) -> None:
        promoter = Promoter(QUEUE, f"redis://127.0.0.1:{free_port()}")
        began = monotonic()
        with pytest.raises(ServerUnreachable):
            await promoter.run()
        assert monotonic() - began < SOON
        assert own_tasks() == []

    async def test_run_ends_when_another_task_stops_it_and_it_starts_only_once(
        self, harness: Harness
    ) -> None:
        promoter = make_promoter(harness)
        running = asyncio.create_task(promoter.run())
        await until_leader_is(harness, promoter.id)
        await promoter.stop()
        await asyncio.wait_for(running, SOON)
        await promoter.stop()
        for again in (promoter.start, promoter.run, promoter.__aenter__):
            with pytest.raises(WrongContext, match="it can be started only once"):
                await again()

    async def test_a_start_that_is_cancelled_leaves_nothing(self, harness: Harness) -> None:
        before = sorted(own_tasks())
        starting = asyncio.create_task(make_promoter(harness).start())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert sorted(own_tasks()) == before

    async def test_a_start_that_is_cancelled_when_it_is_done_is_stopped(
        self, harness: Harness
    ) -> None:
        before = sorted(own_tasks())
        starting = asyncio.create_task(make_promoter(harness).start())
        opening: asyncio.Task[Any] | None = None
        async with asyncio.timeout(SOON):
            while opening is None or not opening.done():
                await asyncio.sleep(0)
                named = {task.get_name(): task for task in asyncio.all_tasks()}
                opening = opening or named.get("tampu-promoter-start")
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        assert sorted(own_tasks()) == before

    @pytest.mark.parametrize(
        ("option", "given"), [("events", "yes"), ("metrics", print), ("queue", "a b")]
    )
    def test_an_invalid_option_is_named(self, option: str, given: object) -> None:
        options: dict[str, Any] = {"queue": QUEUE, option: given}
        with pytest.raises(OptionError) as refused:
            Promoter(**options)
        assert refused.value.option == option
