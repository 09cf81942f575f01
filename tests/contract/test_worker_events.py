"""Events of workers: which ones a job has, and in which order."""

import asyncio
from typing import Any

import pytest

from tampu.backoff import Backoff
from tampu.events import QueueEvents
from tampu.job import Job
from tampu.outcome import Snooze, Unrecoverable
from tampu.wire.event import Event, EventKind
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Harness, envelope
from tests.waiting import wait_until

AT_ONCE = Backoff.fixed(0)


def of_kind(events: list[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def without_waiting(events: list[Event]) -> list[Event]:
    """Without `waiting`, which another worker may write."""
    return [event for event in events if event.kind is not EventKind.WAITING]


async def events_of(harness: Harness, job_id: str, last: EventKind) -> list[Event]:
    """The events of a job, up to its last one."""
    await wait_until(
        lambda: bool(of_kind(harness.events(job_id), last)),
        within=SOON,
        sentence=f"{last} is written",
    )
    return harness.events(job_id)


@pytest.mark.every_server
class TestOneJob:
    @pytest.mark.parametrize("name", ["greet", ""])
    async def test_a_job_that_succeeds_is_active_and_then_completed(
        self, harness: Harness, name: str
    ) -> None:
        await harness.start_worker(Calls())
        job = await harness.queue.add(name)
        active, completed = await events_of(harness, job.id, EventKind.COMPLETED)
        assert (active.kind, active.fields) == (EventKind.ACTIVE, {"attempt": 1})
        assert completed.kind is EventKind.COMPLETED
        assert completed.fields["attempt"] == 1
        duration_us = completed.fields["duration_us"]
        assert isinstance(duration_us, int)
        assert 0 <= duration_us < 10_000_000
        for event in (active, completed):
            assert event.name == name
            assert isinstance(event.ts, int)
        raw = [flat for _, flat in harness.admin.xrange(KEYS.events) if flat[b"id"]]
        assert [b"n" in flat for flat in raw] == [bool(name)] * 2

    async def test_a_job_that_fails_once_has_an_event_for_each_step(self, harness: Harness) -> None:
        await harness.start_worker(
            Boom(ValueError("just the message"), times=1), backoff=Backoff.fixed(0.02)
        )
        job = await harness.queue.add("greet")
        told = await events_of(harness, job.id, EventKind.COMPLETED)
        assert {event.name for event in told} == {"greet"}
        told = without_waiting(told)
        assert [event.kind for event in told] == [
            EventKind.ACTIVE,
            EventKind.FAILED,
            EventKind.RETRY_SCHEDULED,
            EventKind.ACTIVE,
            EventKind.COMPLETED,
        ]
        first, failed, retry, second, completed = told
        assert [each.fields["attempt"] for each in (first, failed, second, completed)] == [
            1,
            1,
            2,
            2,
        ]
        assert failed.fields["reason"] == "just the message"
        assert retry.fields == {"attempt": 2, "backoff_ms": 20}

    async def test_a_buried_job_has_a_dead_event(self, harness: Harness) -> None:
        await harness.start_worker(Boom(), attempts=2, backoff=AT_ONCE)
        job = await harness.queue.add("greet")
        told = await events_of(harness, job.id, EventKind.DEAD)
        assert len(of_kind(told, EventKind.FAILED)) == 2
        (dead,) = of_kind(told, EventKind.DEAD)
        assert dead.fields == {"attempt": 2, "reason": "retries_exhausted"}
        assert dead.name == "greet"

    async def test_an_unrecoverable_job_has_exactly_one_failed_event(
        self, harness: Harness
    ) -> None:
        await harness.start_worker(Boom(Unrecoverable("no")))
        job = await harness.queue.add("greet")
        told = await events_of(harness, job.id, EventKind.DEAD)
        kinds = [event.kind for event in told]
        assert kinds == [EventKind.ACTIVE, EventKind.FAILED, EventKind.DEAD]
        assert told[-1].fields["reason"] == "unrecoverable"

    async def test_a_refused_entry_has_a_dead_event(self, harness: Harness) -> None:
        await harness.start_worker(Calls())
        harness.add_entry({b"d": b"\xc1", b"n": b"greet"})
        (dead,) = await events_of(harness, "", EventKind.DEAD)
        assert dead.fields == {"attempt": 0, "reason": "decode_failed"}

    async def test_a_snoozed_job_has_no_failed_event(self, harness: Harness) -> None:
        await harness.start_worker(Boom(Snooze(0.01), times=1))
        job = await harness.queue.add("greet")
        told = await events_of(harness, job.id, EventKind.COMPLETED)
        assert [event.kind for event in without_waiting(told)] == [
            EventKind.ACTIVE,
            EventKind.ACTIVE,
            EventKind.COMPLETED,
        ]

    async def test_a_promoted_job_has_a_waiting_event_with_its_name(self, harness: Harness) -> None:
        job = await harness.queue.add("greet", delay=0.05)
        assert harness.admin.exists(KEYS.events) == 0
        await harness.start_worker(Calls())
        await events_of(harness, job.id, EventKind.COMPLETED)
        told = await events_of(harness, job.id, EventKind.WAITING)
        (waiting,) = of_kind(told, EventKind.WAITING)
        assert waiting.name == "greet"
        kinds = [event.kind for event in without_waiting(told)]
        assert kinds == [EventKind.ACTIVE, EventKind.COMPLETED]

    async def test_progress_events_come_between_active_and_completed(
        self, harness: Harness
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            for percent in (-5, 10, 50, 1000):
                job.progress(percent)

        await harness.start_worker(handler)
        job = await harness.queue.add("greet")
        told = await events_of(harness, job.id, EventKind.COMPLETED)
        percents = [event.fields["progress"] for event in of_kind(told, EventKind.PROGRESS)]
        assert percents == [0, 10, 50, 100]
        assert (told[0].kind, told[-1].kind) == (EventKind.ACTIVE, EventKind.COMPLETED)

    async def test_a_long_error_message_is_cut_in_the_event(self, harness: Harness) -> None:
        await harness.start_worker(Boom(ValueError("x" * 1_000_000)), attempts=1)
        job = await harness.queue.add("greet")
        told = await events_of(harness, job.id, EventKind.DEAD)
        (failed,) = of_kind(told, EventKind.FAILED)
        assert len(str(failed.fields["reason"])) == 8192


@pytest.mark.every_server
class TestManyJobs:
    async def test_each_job_is_active_before_it_is_completed(self, harness: Harness) -> None:
        await harness.start_worker(Calls())
        jobs = await harness.queue.add_each("job", range(1000))
        await wait_until(
            lambda: len(of_kind(harness.events(), EventKind.COMPLETED)) == 1000,
            within=SOON,
            sentence="all are completed",
        )
        kinds: dict[str, list[EventKind | str]] = {}
        for event in harness.events():
            if event.job_id:
                kinds.setdefault(event.job_id, []).append(event.kind)
        assert set(kinds) == {job.id for job in jobs}
        assert all(each == [EventKind.ACTIVE, EventKind.COMPLETED] for each in kinds.values())

    async def test_a_drained_event_is_written_once_when_the_queue_becomes_empty(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.reader.BLOCK_MS", 50)
        await harness.start_worker(Calls())
        await harness.queue.add_each("job", range(10))
        await wait_until(
            lambda: bool(of_kind(harness.events(), EventKind.DRAINED)),
            within=SOON,
            sentence="drained",
        )
        assert len(of_kind(harness.events(), EventKind.COMPLETED)) == 10
        assert len(of_kind(harness.events(), EventKind.DRAINED)) == 1

    async def test_the_events_stream_is_trimmed_to_about_its_limit(self, harness: Harness) -> None:
        worker = await harness.start_worker(Calls(), events_max_len=64)
        await harness.queue.add_each("job", range(1000))
        await harness.until_settled()
        await worker.stop()
        assert 64 <= harness.admin.xlen(KEYS.events) < 400


@pytest.mark.every_server
class TestListening:
    async def test_a_listener_gets_events_in_order_with_numbers_as_numbers(
        self, harness: Harness
    ) -> None:
        async with QueueEvents(QUEUE, harness.running.url) as events:
            await harness.start_worker(Boom(times=1), backoff=Backoff.fixed(2))
            job = await harness.queue.add("greet")
            kinds = []
            async with asyncio.timeout(SOON):
                async for event in events:
                    assert event.job_id == job.id
                    kinds.append(event.kind)
                    if event.kind is not EventKind.WAITING:  # the promoter does not know it
                        assert isinstance(event.attempt, int)
                    for field in {"duration_us", "backoff_ms"} & set(event.fields):
                        assert isinstance(event.fields[field], int)
                    if event.kind is EventKind.COMPLETED:
                        break
        assert kinds[0] is EventKind.ACTIVE
        assert EventKind.RETRY_SCHEDULED in kinds


class TestOff:
    async def test_without_events_no_events_stream_is_written(self, harness: Harness) -> None:
        async def handler(job: Job[Any]) -> None:
            job.progress(50)
            if job.data == "bad":
                raise ValueError

        await harness.start_worker(handler, events=False, attempts=1)
        await harness.queue.add("greet", "good", delay=0.01)
        await harness.queue.add("greet", "bad")
        harness.add_entry({b"d": b"\xc1"})
        await harness.dead_letters(2)
        await harness.until_settled()
        assert harness.admin.exists(KEYS.events) == 0

    async def test_a_failing_event_stream_does_not_fail_jobs(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        harness.admin.set(KEYS.events, "not a stream")
        calls = Calls()
        worker = await harness.start_worker(calls)
        await harness.queue.add_each("job", range(50))
        harness.add_entry({b"d": envelope()})
        await harness.until_settled()
        await worker.stop()
        assert len(calls) == 51
        assert caplog.text.count("writing events to ") == 1
