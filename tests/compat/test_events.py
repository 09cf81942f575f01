"""Behaviours of events, 168 to 188 in ChasquiMQ's re-test list."""

import asyncio

import pytest

from tampu.compat.chasquimq import Queue, QueueEvents, UnrecoverableError
from tests.compat.shop import KEYS, QUEUE, SOON, Given, Seen, Shop, echo
from tests.conftest import Start
from tests.waiting import wait_until


async def test_168_169_the_iterator_tells_ends_and_names(shop: Shop) -> None:
    told = shop.follow(last_event_id="0")
    shop.hire(echo)
    named = await shop.queue.add("send", 1)
    await told.until("completed")
    unnamed = await shop.queue.add("", 1)
    await told.until("completed", 2)
    assert [(event.job_id, event.job_name) for event in told.of("completed")] == [
        (named.id, "send"),
        (unnamed.id, ""),
    ]
    drained = await told.until("drained")
    assert (drained[0].job_id, drained[0].job_name) == (None, "")


async def test_from_now_on_nothing_is_missed(shop: Shop) -> None:
    shop.hire(echo)
    await shop.queue.add("before", 1)
    await shop.settled()
    told = shop.follow()
    while not told.events:
        await shop.queue.add("after", 1)
        await asyncio.sleep(0.01)
    assert {event.job_name for event in told.events} <= {"after", ""}


@pytest.mark.parametrize("first", [0, b"0", "0-0"])
async def test_an_id_may_be_bytes_or_a_number(shop: Shop, first: Given) -> None:
    shop.admin.xadd(KEYS.events, {"e": "drained"})
    (event,) = await shop.follow(last_event_id=first).until("drained")
    assert event.name == "drained"


async def test_an_id_that_cannot_be_is_told_under_its_name() -> None:
    with pytest.raises(ValueError, match=r"^last_event_id='new' cannot be"):
        QueueEvents(QUEUE, last_event_id="new")


async def test_186_187_one_failed_event_whose_reason_is_the_message(shop: Shop) -> None:
    told = shop.follow(last_event_id="0")
    shop.hire(Seen(fails=9, error=UnrecoverableError))
    await shop.queue.add("n", 1)
    (dead,) = await told.until("dlq")
    (failed,) = told.of("failed")
    assert (failed.fields["reason"], dead.fields["reason"]) == ("boom", "unrecoverable")


async def test_188_numbers_are_numbers(shop: Shop) -> None:
    told = shop.follow(last_event_id="0")
    shop.hire(Seen(fails=1))
    await shop.queue.add("n", 1, delay_ms=1, backoff=1)
    (retry,) = await told.until("retry-scheduled")
    (done,) = await told.until("completed")
    assert (retry.fields["attempt"], done.fields["attempt"]) == (2, 2)
    numbers = [retry.fields["backoff_ms"], done.fields["duration_us"], done.fields["ts"]]
    assert all(type(number) is int for number in numbers)


async def test_it_waits_for_a_server_that_is_not_there_yet(start: Start) -> None:
    server = start()
    server.kill()
    shop = Shop(server, Queue(QUEUE, redis_url=server.url))
    told = shop.follow(last_event_id="0")
    await asyncio.wait([told.listening], timeout=0.1)
    assert not told.listening.done()
    server.restart()
    shop.hire(echo)
    await wait_until(lambda: bool(shop.admin.exists(KEYS.stream)), within=SOON, sentence="it works")
    await shop.queue.add("n", 1)
    await told.until("completed")
    await shop.close()
    await shop.queue.close()
