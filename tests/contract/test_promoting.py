"""Delayed jobs on real servers: promoted when they are due, once each, whoever does it."""

import asyncio
from datetime import UTC, datetime, timedelta
from time import monotonic, time
from typing import Any

import pytest

from tampu import NewJob, OptionError, Promoter, ServerUnreachable, WrongContext
from tampu.job import Job
from tampu.metrics import MemorySink
from tampu.metrics.facts import LeadChanged, Promotion
from tampu.util.clock import now_ms
from tampu.wire.event import EventKind
from tampu.wire.holders import HolderKind, LockHolder
from tests.contract.promoting import standing_alone, until_led_by
from tests.contract.workers import KEYS, QUEUE, SOON, Calls, Crew, envelope, own_tasks
from tests.servers import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


class Timed(Calls):
    """A handler that notes when each job began."""

    def __init__(self) -> None:
        super().__init__()
        self.at_ms: dict[str, float] = {}

    async def __call__(self, job: Job[Any]) -> object:
        self.at_ms[job.id] = time() * 1000
        return await super().__call__(job)


def due_ms(crew: Crew) -> dict[bytes, float]:
    """When each delayed job is due, by its member."""
    return dict(crew.admin.zrange(KEYS.delayed, 0, -1, withscores=True))


async def until_no_index_is_left(crew: Crew) -> None:
    await wait_until(
        lambda: crew.admin.keys("*:didx:*") == [], within=SOON, sentence="indexes are deleted"
    )


async def until_moved(sink: MemorySink, count: int) -> None:
    """Return when the sink was told of so many promotions; the server knows of them before."""
    await wait_until(
        lambda: sum(fact.moved for fact in sink.of(Promotion)) == count,
        within=SOON,
        sentence=f"{count} are told of",
    )


class TestWhen:
    async def test_a_job_comes_when_it_is_due_and_never_before(self, crew: Crew) -> None:
        timed = Timed()
        await crew.hire(timed)
        delays = [0.3, 0.02, 0.15, 0.001]
        jobs = await crew.queue.add_many([NewJob("a", each, delay=each) for each in delays])
        added = time() * 1000
        await timed.until(4)
        for job, delay in zip(jobs, delays, strict=True):
            late_ms = timed.at_ms[job.id] - job.created_at_ms - delay * 1000
            assert late_ms >= 0
            assert late_ms < added - job.created_at_ms + 1000

    async def test_a_thousand_at_once_all_come_and_leave_nothing(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.add_each("a", range(1000), delay=0.1)
        await crew.settled()
        assert sorted(calls.data) == list(range(1000))
        await until_no_index_is_left(crew)

    async def test_more_than_one_batch_that_is_due_already(self, crew: Crew) -> None:
        calls = Calls()
        jobs = await crew.queue.add_each("a", range(3000), delay="1h")
        assert len(jobs) == crew.admin.zcard(KEYS.delayed)
        crew.admin.zadd(KEYS.delayed, dict.fromkeys(due_ms(crew), 1))
        sink = MemorySink()
        await crew.hire(calls, metrics=sink)
        await crew.settled()
        assert sorted(calls.data) == list(range(3000))
        await until_moved(sink, 3000)

    async def test_a_job_survives_its_worker(self, crew: Crew) -> None:
        early, late = Calls(), Calls()
        first = await crew.hire(early)
        job = await crew.queue.add("a", 1, delay="1h")
        await first.stop()
        await crew.hire(late)
        assert await crew.queue.reschedule(job.id, delay=0.02)
        await late.until(1)
        assert (early.data, late.data) == ([], [1])

    async def test_names_travel_with_relative_and_absolute_times(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        soon = datetime.now(UTC) + timedelta(milliseconds=100)
        await crew.queue.add_many(
            [NewJob("in", delay=0.05), NewJob("at", at=soon), NewJob("", delay=0.05)]
        )
        await calls.until(3)
        assert sorted(job.name for job in calls.jobs) == ["", "at", "in"]

    async def test_an_index_goes_and_a_marker_stays(self, crew: Crew) -> None:
        calls = Calls()
        await crew.queue.add("a", job_id="x", delay=0.05)
        job = await crew.queue.add("a", delay=0.05)
        assert crew.admin.exists(KEYS.index("x"), KEYS.index(job.id)) == 2
        await crew.hire(calls)
        await calls.until(2)
        await until_no_index_is_left(crew)
        assert crew.admin.exists(KEYS.marker("x")) == 1
        assert crew.admin.exists(KEYS.marker(job.id)) == 0

    async def test_a_retry_does_not_take_away_the_index_of_a_new_job_of_its_id(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        member = b"\0\0\0\0" + envelope(job_id="x", attempt=1)
        crew.admin.zadd(KEYS.delayed, {member: 1})
        await crew.queue.add("a", job_id="x", delay="1h")
        await crew.hire(calls)
        await calls.until(1)
        async with standing_alone(crew):  # what a worker has sent is carried out when it has left
            await crew.workers[0].stop()
        assert crew.admin.exists(KEYS.index("x")) == 1


class TestCancelled:
    async def test_what_was_promoted_is_not_cancelled_and_runs_once(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        job = await crew.queue.add("a", 1, delay=0.02)
        await calls.until(1)
        assert await crew.queue.cancel(job.id) is False
        await crew.settled()
        assert calls.data == [1]

    async def test_what_was_cancelled_never_runs_and_the_others_do(self, crew: Crew) -> None:
        calls = Calls()
        jobs = await crew.queue.add_each("a", range(10), delay=0.3)
        gone = await crew.queue.cancel_many([job.id for job in jobs[::2]])
        assert gone == [True] * 5
        await crew.hire(calls)
        await crew.settled()
        assert sorted(calls.data) == [1, 3, 5, 7, 9]

    async def test_a_job_is_cancelled_or_run_while_twenty_thousand_fall_due(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        jobs = await crew.queue.add_each("a", range(20_000), delay="1h")
        await crew.hire(calls, events=False)
        crew.admin.zadd(KEYS.delayed, dict.fromkeys(due_ms(crew), now_ms() + 30))
        asked = [job.id for job in jobs[::10]]
        answers: list[bool] = []
        for start in range(0, len(asked), 20):
            answers += await crew.queue.cancel_many(asked[start : start + 20])
        await crew.settled()
        cancelled = {job_id for job_id, done in zip(asked, answers, strict=True) if done}
        ran = [job.id for job in calls.jobs]
        assert len(ran) == len(set(ran))
        assert cancelled.isdisjoint(ran)
        assert cancelled | set(ran) == {job.id for job in jobs}
        assert len(cancelled) > 0
        await until_no_index_is_left(crew)


class TestPoison:
    async def test_what_no_job_can_be_made_of_is_set_aside_and_stops_nobody(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        poison = [b"", b"xy", b"\xff\0\0\0abc", b"\x03\0\0\0abc"]
        crew.admin.zadd(KEYS.delayed, {**dict.fromkeys(poison, 1), b"\xff\xff\xff\xffx": 1e18})
        await crew.queue.add("a", 1, delay=0.02)
        await crew.hire(calls)
        await calls.until(1)
        letters = await crew.dead(len(poison))
        assert sorted(letter.raw for letter in letters) == sorted(poison)
        assert {letter.reason.value for letter in letters} == {"malformed"}
        assert crew.admin.zcard(KEYS.delayed) == 1

    async def test_an_envelope_that_cannot_be_decoded_is_buried_with_its_bytes(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        crew.admin.zadd(KEYS.delayed, {b"\0\0\0\0\xc1\xa5garbage": 1, b"\0\0\0\0\x94": 1})
        await crew.queue.add("a", 1, delay=0.02)
        await crew.hire(calls)
        await calls.until(1)
        letters = await crew.dead(2)
        assert {letter.raw for letter in letters} == {b"\xc1\xa5garbage", b"\x94"}
        assert await crew.queue.counts() is not None


class TestStandingAlone:
    async def test_it_works_for_a_worker_that_does_not_promote(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls, promote=False)
        async with standing_alone(crew) as promoter:
            for _ in range(3):
                await crew.queue.add("a", 1, job_id="x", delay=0.05)
            await calls.until(1)
            await crew.settled()
            assert crew.admin.get(KEYS.promoter_lock) == promoter.id.encode()
        assert calls.data == [1]
        assert LockHolder(promoter.id).kind is HolderKind.PROMOTER
        assert crew.admin.exists(KEYS.promoter_lock) == 0
        assert QUEUE in repr(promoter)

    @pytest.mark.parametrize("events", [True, False])
    async def test_it_tells_who_waits_if_it_is_to(self, crew: Crew, *, events: bool) -> None:
        sink = MemorySink()
        async with standing_alone(crew, events=events, metrics=sink):
            job = await crew.queue.add("greet", delay=0.02)
            await until_moved(sink, 1)
        assert crew.admin.xlen(KEYS.stream) == 1
        told = [(event.kind, event.name) for event in crew.events(job.id)]
        assert told == ([(EventKind.WAITING, "greet")] if events else [])
        assert sink.of(LeadChanged) == [
            LeadChanged("promoter", leads=each) for each in (True, False)
        ]

    async def test_three_promote_each_job_once_and_one_of_them_listens(self, crew: Crew) -> None:
        before = sorted(own_tasks())
        promoters = [standing_alone(crew) for _ in range(3)]
        async with promoters[0], promoters[1], promoters[2]:
            jobs = await crew.queue.add_each("a", range(2000), delay=0.05)
            await wait_until(
                lambda: crew.admin.zcard(KEYS.delayed) == 0, within=SOON, sentence="all are due"
            )
            assert crew.admin.xlen(KEYS.stream) == len(jobs)
            await wait_until(
                lambda: crew.admin.info("clients")["blocked_clients"] == 1,
                within=SOON,
                sentence="one of them listens",
            )
        assert sorted(own_tasks()) == before

    async def test_the_lead_passes_on_when_the_leader_stops(self, crew: Crew) -> None:
        first, second = standing_alone(crew), standing_alone(crew)
        async with second:
            async with first:
                await wait_until(
                    lambda: crew.admin.exists(KEYS.promoter_lock), within=SOON, sentence="one leads"
                )
                leader = crew.admin.get(KEYS.promoter_lock).decode()
                leaves = first if leader == first.id else second
                stays = second if leaves is first else first
                await leaves.stop()
                await until_led_by(crew, stays.id)
                await crew.queue.add("a", delay=0.02)
                await wait_until(
                    lambda: crew.admin.xlen(KEYS.stream) == 1, within=SOON, sentence="promoted"
                )

    async def test_a_lock_of_somebody_else_is_not_deleted(self, crew: Crew) -> None:
        crew.admin.set(KEYS.promoter_lock, "p-other")
        async with standing_alone(crew):
            await crew.queue.add("a", delay=0.02)
        assert crew.admin.get(KEYS.promoter_lock) == b"p-other"
        assert crew.admin.exists(KEYS.stream) == 0

    async def test_scripts_that_the_server_forgets_are_loaded_again(self, crew: Crew) -> None:
        async with standing_alone(crew):
            for number in range(1, 4):
                crew.admin.script_flush()
                await crew.queue.add("a", delay=0.02)
                await wait_until(
                    lambda wanted=number: crew.admin.xlen(KEYS.stream) == wanted,  # type: ignore[misc]
                    within=SOON,
                    sentence="it is promoted",
                )

    async def test_a_server_that_is_not_there_is_told_at_once(self) -> None:
        promoter = Promoter(QUEUE, f"redis://127.0.0.1:{free_port()}")
        began = monotonic()
        with pytest.raises(ServerUnreachable):
            await promoter.run()
        assert monotonic() - began < SOON
        assert own_tasks() == []

    async def test_run_ends_when_another_task_stops_it_and_it_is_used_once(
        self, crew: Crew
    ) -> None:
        promoter = standing_alone(crew)
        running = asyncio.create_task(promoter.run())
        await until_led_by(crew, promoter.id)
        await promoter.stop()
        await asyncio.wait_for(running, SOON)
        await promoter.stop()
        for again in (promoter.start, promoter.run, promoter.__aenter__):
            with pytest.raises(WrongContext, match="each is used once"):
                await again()

    async def test_a_start_that_is_cancelled_leaves_nothing_behind(self, crew: Crew) -> None:
        before = sorted(own_tasks())
        starting = asyncio.create_task(standing_alone(crew).start())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert sorted(own_tasks()) == before

    async def test_a_start_that_is_cancelled_when_it_is_through_is_stopped(
        self, crew: Crew
    ) -> None:
        before = sorted(own_tasks())
        starting = asyncio.create_task(standing_alone(crew).start())
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
    def test_what_cannot_be_is_named(self, option: str, given: object) -> None:
        options: dict[str, Any] = {"queue": QUEUE, option: given}
        with pytest.raises(OptionError) as refused:
            Promoter(**options)
        assert refused.value.option == option
