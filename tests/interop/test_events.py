"""Events that one world writes are read by the other."""

import asyncio
from typing import Any

import pytest

from tampu import Backoff, CancelState, EventKind, JobEvent, Queue, QueueEvents
from tests.contract.workers import Calls
from tests.interop.shared_queue import SOON, SharedQueue

pytestmark = pytest.mark.chasquimq


async def heard_here(shared: SharedQueue, last: EventKind) -> list[JobEvent]:
    """All events of a queue up to the first of a kind."""
    heard = []
    async with asyncio.timeout(SOON), QueueEvents(shared.name, shared.url, after="0") as events:
        async for event in events:
            heard.append(event)
            if event.kind is last:
                break
    return heard


async def heard_there(shared: SharedQueue, last: str) -> list[dict[str, Any]]:
    """What the peer has heard, as soon as an event of a kind is among it."""
    heard: list[dict[str, Any]] = []

    async def is_told() -> bool:
        heard[:] = await shared.ask("heard")
        return last in [event["name"] for event in heard]

    await shared.until(is_told, f"the peer has heard of {last}")
    return heard


async def test_events_of_the_peers_worker_are_read_by_us(shared: SharedQueue) -> None:
    await shared.start_peer_worker(handler={"fails": 2}, max_attempts=2)
    job_id = await shared.peer_add("job ñ", 1, delay_ms=20, backoff=20)
    told = await heard_here(shared, EventKind.DEAD)
    of_job = [event for event in told if event.job_id == job_id]
    kinds = [(event.kind, event.attempt) for event in of_job if event.kind is not EventKind.WAITING]
    assert kinds == [
        (EventKind.ACTIVE, 1),
        (EventKind.FAILED, 1),
        (EventKind.RETRY_SCHEDULED, 2),
        (EventKind.ACTIVE, 2),
        (EventKind.FAILED, 2),
        (EventKind.DEAD, 2),
    ]
    assert {event.name for event in of_job if event.kind is not EventKind.WAITING} == {"job ñ"}
    assert EventKind.WAITING in {event.kind for event in of_job}
    by_kind = {event.kind: event.fields for event in of_job}
    assert by_kind[EventKind.FAILED]["reason"] == "boom"
    assert isinstance(by_kind[EventKind.FAILED]["duration_us"], int)
    assert by_kind[EventKind.RETRY_SCHEDULED]["backoff_ms"] >= 20  # type: ignore[operator]
    assert by_kind[EventKind.DEAD]["reason"] == "retries_exhausted"


async def test_events_of_our_worker_are_read_by_the_peer(shared: SharedQueue) -> None:
    await shared.ask("listen")

    async def boom(job: object) -> None:
        raise ValueError("boom")

    await shared.start_worker(boom, attempts=2, backoff=Backoff.fixed(0.5))
    job = await shared.queue.add("job ñ", 1, delay=0.02)
    told = await heard_there(shared, "dlq")
    of_job = [event for event in told if event["job_id"] == job.id]
    kinds = [(event["name"], event["fields"].get("attempt")) for event in of_job]
    assert kinds == [
        ("waiting", None),
        ("active", 1),
        ("failed", 1),
        ("retry-scheduled", 2),
        ("waiting", None),
        ("active", 2),
        ("failed", 2),
        ("dlq", 2),
    ]
    assert {event["job_name"] for event in of_job} == {"job ñ"}
    by_kind = {event["name"]: event["fields"] for event in of_job}
    assert by_kind["failed"]["reason"] == "boom"
    assert type(by_kind["failed"]["duration_us"]) is int
    assert by_kind["retry-scheduled"]["backoff_ms"] == 500
    assert by_kind["dlq"]["reason"] == "retries_exhausted"
    assert all(type(event["fields"]["ts"]) is int for event in told)


async def test_both_report_that_a_queue_is_drained(shared: SharedQueue) -> None:
    """`completed` has a duration, `drained` has no job, and a nameless job no name."""
    await shared.ask("listen")
    ours = await shared.start_worker(Calls())
    await shared.queue.add("", 1)
    there = await heard_there(shared, "drained")
    await ours.stop()
    shared.admin.delete(shared.keys.events)
    await shared.start_peer_worker()
    await shared.queue.add("", 1)
    here = await heard_here(shared, EventKind.DRAINED)
    assert [event["name"] for event in there] == ["active", "completed", "drained"]
    assert [event.kind for event in here] == [
        EventKind.ACTIVE,
        EventKind.COMPLETED,
        EventKind.DRAINED,
    ]
    assert (there[-1]["job_id"], here[-1].job_id) == (None, "")
    assert {event["job_name"] for event in there} == {event.name for event in here} == {""}
    assert set(there[1]["fields"]) == {"ts", *here[1].fields} == {"ts", "attempt", "duration_us"}


async def test_kinds_that_only_we_write_reach_the_peer_as_they_are(shared: SharedQueue) -> None:
    await shared.ask("listen")
    async with Queue(shared.name, shared.url, events=True) as queue:
        job = await queue.add("job", 1, delay="1h", job_id="later")
        await queue.add("job", 1)
        assert await queue.job(job.id).cancel() is CancelState.CANCELLED
    told = {event["name"]: event for event in await heard_there(shared, "cancelled")}
    assert set(told) == {"delayed", "added", "cancelled"}
    assert told["delayed"]["fields"]["delay_ms"] == 3_600_000
    assert told["cancelled"]["job_id"] == "later"
