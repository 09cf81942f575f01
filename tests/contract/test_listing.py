"""The jobs of a queue, listed by state; the events of one job; both without a loop too."""

import asyncio
from typing import Any

import pytest

from tampu import (
    Backoff,
    CancelState,
    EventKind,
    Job,
    JobEvent,
    JobState,
    NewJob,
    OptionError,
    Queue,
    SyncQueue,
)
from tampu.util.clock import now_ms
from tampu.wire.event import encode_event
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Gate, Harness, envelope
from tests.servers import RunningServer
from tests.waiting import wait_until


async def listed(queue: Queue, **options: Any) -> list[Any]:  # noqa: ANN401 - as given
    return [info.data async for info in queue.jobs(**options)]


async def fill(harness: Harness) -> Gate:
    """A queue with jobs in every state: their data is named after it."""
    gate = Gate()

    async def handle(job: Job[Any]) -> object:
        if job.name == "bad":
            raise ValueError("boom")
        return await gate(job)

    await harness.start_worker(
        handle, attempts=2, backoff=Backoff.fixed(3600), concurrency=3, promote=False
    )
    await harness.queue.add("bad", "dead", attempts=1)
    await harness.dead_letters()
    await harness.queue.add("bad", "retrying")
    await wait_until(
        lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it has failed"
    )
    for data in ("active", "active", "is cancelled"):
        await harness.queue.add("good", data)
    await gate.until(3)
    await harness.pause(gate)  # so that nothing of what follows is read
    await harness.queue.add_each("good", ["waiting", "waiting", "waiting"])
    await harness.queue.add("good", "delayed", delay="1h")
    return gate


class TestStates:
    @pytest.mark.every_server
    async def test_each_state_has_its_jobs_and_without_one_all_are_listed(
        self, harness: Harness
    ) -> None:
        gate = await fill(harness)
        expected = {"active": 2, "waiting": 3, "retrying": 1, "delayed": 1, "dead": 1}
        for state, count in expected.items():
            assert await listed(harness.queue, state=state) == [state] * count
            assert await listed(harness.queue, state=JobState(state)) == [state] * count
        every = [state for state, count in expected.items() for _ in range(count)]
        assert await listed(harness.queue) == every
        told = [info.state.value async for info in harness.queue.jobs()]
        assert told == every
        assert await listed(harness.queue, name="bad") == ["retrying", "dead"]
        assert await listed(harness.queue, name="good", state="dead") == []
        gate.open.set()
        harness.admin.delete(KEYS.delayed)

    @pytest.mark.every_server
    async def test_a_listed_job_tells_what_it_would_tell_itself(self, harness: Harness) -> None:
        gate = await fill(harness)
        async for info in harness.queue.jobs():
            asked = await harness.queue.job(info.id).info()
            assert (asked.state, asked.attempt) == (info.state, info.attempt)
            assert (asked.failure, asked.failed_at) == (info.failure, info.failed_at)
            assert (asked.worker, asked.due_at) == (info.worker, info.due_at)
        gate.open.set()
        harness.admin.delete(KEYS.delayed)

    @pytest.mark.parametrize("state", ["done", "unknown", "cancelled", "x", 5])
    async def test_other_states_cannot_be_listed(self, harness: Harness, state: Any) -> None:  # noqa: ANN401 - wrong on purpose
        with pytest.raises(OptionError, match="active, waiting, retrying, delayed, dead"):
            harness.queue.jobs(state=state)

    @pytest.mark.parametrize("most", [0, -1, 1.5])
    async def test_a_bound_is_a_positive_number(self, harness: Harness, most: Any) -> None:  # noqa: ANN401 - wrong on purpose
        with pytest.raises(OptionError, match="most"):
            harness.queue.jobs(most=most)


@pytest.mark.every_server
class TestPages:
    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_more_than_a_page_comes_in_order(
        self, harness: Harness, *, newest_first: bool
    ) -> None:
        await harness.queue.add_each("x", range(1100))
        found = await listed(harness.queue, state="waiting", newest_first=newest_first)
        assert found == sorted(range(1100), reverse=newest_first)
        harness.admin.delete(KEYS.stream)

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_delayed_jobs_are_in_the_order_in_which_they_are_due(
        self, harness: Harness, *, newest_first: bool
    ) -> None:
        jobs = [NewJob("x", n, delay=3600 + n % 7 * 60) for n in range(1100)]
        await harness.queue.add_many(jobs)
        found = await listed(harness.queue, state="delayed", newest_first=newest_first)
        due = [n % 7 for n in found]
        assert due == sorted(due, reverse=newest_first)
        assert sorted(found) == list(range(1100))

    async def test_only_waiting_jobs_are_waiting(self, harness: Harness) -> None:
        """Jobs that a worker has are before the waiting ones, in both directions."""
        gate = Gate()
        await harness.start_worker(gate, concurrency=600)
        await harness.queue.add_each("x", range(600))
        await gate.until(600)
        await harness.queue.pause()
        await harness.queue.add_each("x", range(600, 610))
        for newest_first in (False, True):
            found = await listed(harness.queue, state="waiting", newest_first=newest_first)
            assert sorted(found) == list(range(600, 610))
        assert sorted(await listed(harness.queue, state="active")) == list(range(600))
        gate.open.set()

    async def test_no_more_than_the_bound_is_looked_at_and_that_is_said(
        self, harness: Harness
    ) -> None:
        await harness.queue.add_each("x", range(30))
        await harness.queue.add_each("y", range(30))
        listing = harness.queue.jobs(name="y", most=40)
        assert [info.data async for info in listing] == list(range(10))
        assert (listing.searched, listing.searched_all) == (40, False)
        all_of_it = harness.queue.jobs(name="y", most=None)
        assert len([info async for info in all_of_it]) == 30
        assert (all_of_it.searched, all_of_it.searched_all) == (60, True)
        assert len([info async for info in all_of_it]) == 30, "it can be listed again"
        assert repr(harness.queue.jobs(state="dead")) == "<JobListing of 'work': dead>"

    async def test_entries_that_hold_no_job_are_left_out_but_a_dead_one_is_shown(
        self, harness: Harness
    ) -> None:
        harness.add_entry({"d": b"\xc1"})
        harness.add_entry({"d": envelope(job_id="good"), "n": "x"})
        harness.admin.zadd(KEYS.delayed, {b"\xff\xff\xff\xffx": 1e15})
        assert [info.id async for info in harness.queue.jobs()] == ["good"]
        harness.admin.delete(KEYS.delayed)
        await harness.start_worker(Calls())
        await harness.dead_letters()
        (dead,) = [info async for info in harness.queue.jobs(state="dead")]
        assert (dead.id, dead.state, dead.data) == ("", JobState.DEAD, None)
        assert dead.reason is not None


class TestEvents:
    @pytest.mark.every_server
    async def test_a_job_is_followed_to_its_end(self, harness: Harness) -> None:
        gate = Gate()

        async def handle(job: Job[Any]) -> object:
            job.progress(50)
            return await gate(job)

        await harness.start_worker(handle)
        others = await harness.queue.add_each("x", range(3))
        job = await harness.queue.add("x")
        seen: list[JobEvent] = []

        async def follow() -> None:
            async for event in job.events():
                seen.append(event)  # noqa: PERF401 - as they come

        following = asyncio.create_task(follow())
        await wait_until(
            lambda: EventKind.PROGRESS in [each.kind for each in seen],
            within=SOON,
            sentence="its progress is reported",
        )
        gate.open.set()
        await asyncio.wait_for(following, SOON)
        assert {each.job_id for each in seen} == {job.id}
        assert len(others) == 3
        kinds = [each.kind for each in seen]
        assert kinds[-3:] == [EventKind.ACTIVE, EventKind.PROGRESS, EventKind.COMPLETED]

    @pytest.mark.parametrize("end", ["done", "dead", "cancelled", "nowhere to be seen"])
    async def test_of_a_job_that_is_over_what_is_still_there_is_told(
        self, harness: Harness, end: str
    ) -> None:
        handler = Boom() if end == "dead" else Calls()
        if end == "cancelled":
            async with Queue(QUEUE, harness.running.url, events=True) as queue:
                job = await queue.add("x", delay=60)
                assert await job.cancel() is CancelState.CANCELLED
        else:
            worker = await harness.start_worker(handler, attempts=1, store_results=True)
            job = await harness.queue.add("x")
            await handler.until(1)
            await harness.until_settled()
            await worker.stop()
        if end == "nowhere to be seen":
            harness.admin.delete(KEYS.events)
        kinds = [event.kind async for event in harness.queue.job(job.id).events()]
        last = {"done": EventKind.COMPLETED, "dead": EventKind.DEAD}.get(end, EventKind.CANCELLED)
        assert kinds[-1:] == ([] if end == "nowhere to be seen" else [last])

    async def test_the_end_of_an_earlier_job_with_its_id_does_not_end_it(
        self, harness: Harness
    ) -> None:
        boom = Boom(times=1)
        worker = await harness.start_worker(boom, attempts=1)
        await harness.queue.add("x", job_id="order:17")
        await harness.dead_letters()
        await worker.stop()
        job = await harness.queue.add("x", job_id="order:17")
        seen: list[JobEvent] = []

        async def follow() -> None:
            async for event in job.events():
                seen.append(event)  # noqa: PERF401 - as they come

        following = asyncio.create_task(follow())
        await harness.start_worker(boom)
        await asyncio.wait_for(following, SOON)
        assert [each.kind for each in seen] == [EventKind.ACTIVE, EventKind.COMPLETED]

    async def test_an_end_that_was_written_before_the_job_was_settled_is_its_end(
        self, harness: Harness
    ) -> None:
        job = await take(harness, EventKind.ACTIVE, EventKind.COMPLETED)
        harness.reset_calls()
        following = asyncio.create_task(kinds_of(job))
        await wait_until(
            lambda: harness.calls("xpending") > 0, within=SOON, sentence="it was seen as active"
        )
        harness.admin.xtrim(KEYS.stream, maxlen=0)
        assert await asyncio.wait_for(following, SOON) == [EventKind.ACTIVE, EventKind.COMPLETED]

    async def test_a_job_whose_last_event_is_lost_is_followed_to_its_end(
        self, harness: Harness
    ) -> None:
        job = await take(harness, EventKind.ACTIVE)
        coming = aiter(job.events())
        assert (await anext(coming)).kind is EventKind.ACTIVE
        harness.admin.xtrim(KEYS.stream, maxlen=0)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(coming), SOON)


async def take(harness: Harness, *kinds: EventKind) -> Job[Any]:
    """A job that a peer has taken, with events that were written by hand."""
    job = await harness.queue.add("x")
    (entry,) = harness.admin.xrange(KEYS.stream)
    harness.hold_as_peer(entry[0], deliveries=1)
    for kind in kinds:
        fields = encode_event(kind, job_id=job.id, ts_ms=now_ms(), name="x")
        harness.admin.xadd(KEYS.events, dict(zip(fields[::2], fields[1::2], strict=True)))
    return job


async def kinds_of(job: Job[Any]) -> list[EventKind | str]:
    return [event.kind async for event in job.events()]


def test_plain_code_asks_in_the_same_way(running: RunningServer) -> None:
    with SyncQueue(QUEUE, running.url, events=True) as queue:
        queue.add("x", 1, job_id="a")
        queue.add("y", 2, job_id="b", delay=60)
        assert queue.job("a").info().state is JobState.WAITING
        listing = queue.jobs()
        assert [info.id for info in listing] == ["a", "b"]
        assert (listing.searched, listing.searched_all) == (3, True)
        assert repr(queue.jobs(state="dead")) == "<SyncJobListing of 'work': dead>"
        assert [info.id for info in queue.jobs(name="y", state="delayed")] == ["b"]
        assert queue.job("b").reschedule(delay="2h") is True
        assert queue.job("b").run_now() is True
        assert queue.job("b").info().state is JobState.WAITING
        assert queue.job("b").cancel() is CancelState.CANCELLED
        assert queue.cancel_many(["a", "b", "a"]) == [
            CancelState.CANCELLED,
            CancelState.TOO_LATE,
            CancelState.CANCELLED,
        ]
        assert [event.kind for event in queue.job("a").events()][-1] is EventKind.CANCELLED
        assert (queue.pause(), queue.pause(), queue.is_paused()) == (True, False, True)
        assert (queue.resume(), queue.resume(), queue.is_paused()) == (True, False, False)
        assert queue.drain(timeout=5).waiting == 0
