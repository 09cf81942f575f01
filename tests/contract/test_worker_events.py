"""Events of workers on real servers: what is told of each job, and in which order."""

import asyncio
from typing import Any

import pytest

from tampu.backoff import Backoff
from tampu.events import QueueEvents
from tampu.job import Job
from tampu.outcome import Snooze, Unrecoverable
from tampu.wire.event import Event, EventKind
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Crew, envelope
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

AT_ONCE = Backoff.fixed(0)


def told_of(events: list[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def but_promotion(events: list[Event]) -> list[Event]:
    """Without `waiting`: who promotes is not always who runs, and each tells for itself."""
    return [event for event in events if event.kind is not EventKind.WAITING]


async def events_of(crew: Crew, job_id: str, last: EventKind) -> list[Event]:
    """What is told of a job, up to its last event."""
    await wait_until(
        lambda: bool(told_of(crew.events(job_id), last)), within=SOON, sentence=f"{last} is told"
    )
    return crew.events(job_id)


class TestOneJob:
    @pytest.mark.parametrize("name", ["greet", ""])
    async def test_a_job_that_succeeds_is_active_and_then_completed(
        self, crew: Crew, name: str
    ) -> None:
        await crew.hire(Calls())
        job = await crew.queue.add(name)
        active, completed = await events_of(crew, job.id, EventKind.COMPLETED)
        assert (active.kind, active.fields) == (EventKind.ACTIVE, {"attempt": 1})
        assert completed.kind is EventKind.COMPLETED
        assert completed.fields["attempt"] == 1
        duration_us = completed.fields["duration_us"]
        assert isinstance(duration_us, int)
        assert 0 <= duration_us < 10_000_000
        for event in (active, completed):
            assert event.name == name
            assert isinstance(event.ts, int)
        raw = [flat for _, flat in crew.admin.xrange(KEYS.events) if flat[b"id"]]
        assert [b"n" in flat for flat in raw] == [bool(name)] * 2

    async def test_a_job_that_fails_once_is_told_of_step_by_step(self, crew: Crew) -> None:
        await crew.hire(Boom(ValueError("just the message"), times=1), backoff=Backoff.fixed(0.02))
        job = await crew.queue.add("greet")
        told = await events_of(crew, job.id, EventKind.COMPLETED)
        assert {event.name for event in told} == {"greet"}
        told = but_promotion(told)
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

    async def test_a_job_that_is_given_up_is_told_of_as_dead(self, crew: Crew) -> None:
        await crew.hire(Boom(), attempts=2, backoff=AT_ONCE)
        job = await crew.queue.add("greet")
        told = await events_of(crew, job.id, EventKind.DEAD)
        assert len(told_of(told, EventKind.FAILED)) == 2
        (dead,) = told_of(told, EventKind.DEAD)
        assert dead.fields == {"attempt": 2, "reason": "retries_exhausted"}
        assert dead.name == "greet"

    async def test_an_unrecoverable_job_has_failed_exactly_once(self, crew: Crew) -> None:
        await crew.hire(Boom(Unrecoverable("no")))
        job = await crew.queue.add("greet")
        told = await events_of(crew, job.id, EventKind.DEAD)
        kinds = [event.kind for event in told]
        assert kinds == [EventKind.ACTIVE, EventKind.FAILED, EventKind.DEAD]
        assert told[-1].fields["reason"] == "unrecoverable"

    async def test_an_entry_that_cannot_be_run_is_told_of_as_dead(self, crew: Crew) -> None:
        await crew.hire(Calls())
        crew.put({b"d": b"\xc1", b"n": b"greet"})
        (dead,) = await events_of(crew, "", EventKind.DEAD)
        assert dead.fields == {"attempt": 0, "reason": "decode_failed"}

    async def test_a_job_that_is_put_off_has_not_failed(self, crew: Crew) -> None:
        await crew.hire(Boom(Snooze(0.01), times=1))
        job = await crew.queue.add("greet")
        told = await events_of(crew, job.id, EventKind.COMPLETED)
        assert [event.kind for event in but_promotion(told)] == [
            EventKind.ACTIVE,
            EventKind.ACTIVE,
            EventKind.COMPLETED,
        ]

    async def test_a_delayed_job_is_told_of_by_name_when_it_is_promoted(self, crew: Crew) -> None:
        job = await crew.queue.add("greet", delay=0.05)
        assert crew.admin.exists(KEYS.events) == 0
        await crew.hire(Calls())
        await events_of(crew, job.id, EventKind.COMPLETED)
        told = await events_of(crew, job.id, EventKind.WAITING)
        (waiting,) = told_of(told, EventKind.WAITING)
        assert waiting.name == "greet"
        kinds = [event.kind for event in but_promotion(told)]
        assert kinds == [EventKind.ACTIVE, EventKind.COMPLETED]

    async def test_progress_is_told_between_active_and_completed(self, crew: Crew) -> None:
        async def handler(job: Job[Any]) -> None:
            for percent in (-5, 10, 50, 1000):
                job.progress(percent)

        await crew.hire(handler)
        job = await crew.queue.add("greet")
        told = await events_of(crew, job.id, EventKind.COMPLETED)
        percents = [event.fields["progress"] for event in told_of(told, EventKind.PROGRESS)]
        assert percents == [0, 10, 50, 100]
        assert (told[0].kind, told[-1].kind) == (EventKind.ACTIVE, EventKind.COMPLETED)

    async def test_what_an_exception_says_is_cut_to_a_size_that_an_event_can_have(
        self, crew: Crew
    ) -> None:
        await crew.hire(Boom(ValueError("x" * 1_000_000)), attempts=1)
        job = await crew.queue.add("greet")
        told = await events_of(crew, job.id, EventKind.DEAD)
        (failed,) = told_of(told, EventKind.FAILED)
        assert len(str(failed.fields["reason"])) == 8192


class TestManyJobs:
    async def test_each_job_is_active_before_it_is_completed(self, crew: Crew) -> None:
        await crew.hire(Calls())
        jobs = await crew.queue.add_each("job", range(1000))
        await wait_until(
            lambda: len(told_of(crew.events(), EventKind.COMPLETED)) == 1000,
            within=SOON,
            sentence="all are completed",
        )
        kinds: dict[str, list[EventKind | str]] = {}
        for event in crew.events():
            if event.job_id:
                kinds.setdefault(event.job_id, []).append(event.kind)
        assert set(kinds) == {job.id for job in jobs}
        assert all(each == [EventKind.ACTIVE, EventKind.COMPLETED] for each in kinds.values())

    async def test_the_queue_is_told_of_as_drained_once_it_ran_empty(
        self, crew: Crew, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.reader.BLOCK_MS", 50)
        await crew.hire(Calls())
        await crew.queue.add_each("job", range(10))
        await wait_until(
            lambda: bool(told_of(crew.events(), EventKind.DRAINED)), within=SOON, sentence="drained"
        )
        assert len(told_of(crew.events(), EventKind.COMPLETED)) == 10
        assert len(told_of(crew.events(), EventKind.DRAINED)) == 1

    async def test_the_stream_of_events_keeps_about_as_many_as_it_may(self, crew: Crew) -> None:
        worker = await crew.hire(Calls(), events_max_len=64)
        await crew.queue.add_each("job", range(1000))
        await crew.settled()
        await worker.stop()
        assert 64 <= crew.admin.xlen(KEYS.events) < 400


class TestListening:
    async def test_who_listens_is_told_in_order_with_numbers_as_numbers(self, crew: Crew) -> None:
        async with QueueEvents(QUEUE, crew.running.url) as events:
            await crew.hire(Boom(times=1), backoff=AT_ONCE)
            job = await crew.queue.add("greet")
            kinds = []
            async with asyncio.timeout(SOON):
                async for event in events:
                    assert event.job_id == job.id
                    kinds.append(event.kind)
                    assert isinstance(event.attempt, int)
                    for field in {"duration_us", "backoff_ms"} & set(event.fields):
                        assert isinstance(event.fields[field], int)
                    if event.kind is EventKind.COMPLETED:
                        break
        assert kinds[0] is EventKind.ACTIVE
        assert EventKind.RETRY_SCHEDULED in kinds


class TestOff:
    async def test_without_events_there_is_no_stream_of_them(self, crew: Crew) -> None:
        async def handler(job: Job[Any]) -> None:
            job.progress(50)
            if job.data == "bad":
                raise ValueError

        await crew.hire(handler, events=False, attempts=1)
        await crew.queue.add("greet", "good", delay=0.01)
        await crew.queue.add("greet", "bad")
        crew.put({b"d": b"\xc1"})
        await crew.dead(2)
        await crew.settled()
        assert crew.admin.exists(KEYS.events) == 0

    async def test_events_that_cannot_be_written_fail_no_job(
        self, crew: Crew, caplog: pytest.LogCaptureFixture
    ) -> None:
        crew.admin.set(KEYS.events, "not a stream")
        calls = Calls()
        worker = await crew.hire(calls)
        await crew.queue.add_each("job", range(50))
        crew.put({b"d": envelope()})
        await crew.settled()
        await worker.stop()
        assert len(calls) == 51
        assert caplog.messages.count("events cannot be written") == 1
