"""Events; the numbers are those of the behaviours to re-test in the spec."""

import asyncio

import pytest

from tampu.compat.chasquimq import Queue, QueueEvents, UnrecoverableError
from tests.compat.harness import KEYS, QUEUE, SOON, Given, Harness, RecordingHandler, echo
from tests.conftest import Start
from tests.waiting import wait_until


async def test_events_have_the_id_and_the_name_of_their_job(harness: Harness) -> None:
    """Behaviours 168 and 169."""
    listener = harness.start_listener(last_event_id="0")
    harness.start_worker(echo)
    named = await harness.queue.add("send", 1)
    await listener.wait_for("completed")
    unnamed = await harness.queue.add("", 1)
    await listener.wait_for("completed", 2)
    assert [(event.job_id, event.job_name) for event in listener.named("completed")] == [
        (named.id, "send"),
        (unnamed.id, ""),
    ]
    drained = await listener.wait_for("drained")
    assert (drained[0].job_id, drained[0].job_name) == (None, "")


async def test_by_default_only_new_events_arrive(harness: Harness) -> None:
    harness.start_worker(echo)
    await harness.queue.add("before", 1)
    await harness.wait_until_settled()
    listener = harness.start_listener()
    while not listener.events:
        await harness.queue.add("after", 1)
        await asyncio.sleep(0.01)
    assert {event.job_name for event in listener.events} <= {"after", ""}


@pytest.mark.parametrize("first", [0, b"0", "0-0"])
async def test_an_id_may_be_bytes_or_a_number(harness: Harness, first: Given) -> None:
    harness.admin.xadd(KEYS.events, {"e": "drained"})
    (event,) = await harness.start_listener(last_event_id=first).wait_for("drained")
    assert event.name == "drained"


async def test_an_invalid_id_is_refused_under_the_name_of_its_option() -> None:
    with pytest.raises(ValueError, match=r"^Invalid last_event_id 'new': "):
        QueueEvents(QUEUE, last_event_id="new")


async def test_a_failure_is_one_event_with_the_message_as_its_reason(harness: Harness) -> None:
    """Behaviours 186 and 187."""
    listener = harness.start_listener(last_event_id="0")
    harness.start_worker(RecordingHandler(failures=9, error=UnrecoverableError))
    await harness.queue.add("n", 1)
    (dead,) = await listener.wait_for("dlq")
    (failed,) = listener.named("failed")
    assert (failed.fields["reason"], dead.fields["reason"]) == ("boom", "unrecoverable")


async def test_numbers_arrive_as_integers(harness: Harness) -> None:
    """Behaviour 188."""
    listener = harness.start_listener(last_event_id="0")
    harness.start_worker(RecordingHandler(failures=1))
    await harness.queue.add("n", 1, delay_ms=1, backoff=1)
    (retry,) = await listener.wait_for("retry-scheduled")
    (done,) = await listener.wait_for("completed")
    assert (retry.fields["attempt"], done.fields["attempt"]) == (2, 2)
    numbers = [retry.fields["backoff_ms"], done.fields["duration_us"], done.fields["ts"]]
    assert all(type(number) is int for number in numbers)


async def test_the_iterator_waits_until_the_server_is_available(start: Start) -> None:
    server = start()
    server.kill()
    harness = Harness(server, Queue(QUEUE, redis_url=server.url))
    listener = harness.start_listener(last_event_id="0")
    await asyncio.wait([listener.listening], timeout=0.1)
    assert not listener.listening.done()
    server.restart()
    harness.start_worker(echo)
    await wait_until(
        lambda: bool(harness.admin.exists(KEYS.stream)),
        within=SOON,
        sentence="the worker is running",
    )
    await harness.queue.add("n", 1)
    await listener.wait_for("completed")
    await harness.close()
    await harness.queue.close()
