"""Concurrent adds are joined into few calls and do not affect each other."""

import asyncio
from typing import Any

import pytest
import redis

from tampu import EncodeError, OptionError, Queue, QueueFull, ServerError
from tampu.wire.envelope import decode_envelope
from tests.contract.queues import KEYS, QUEUE, delayed, script_calls, waiting, waiting_ids
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until


async def test_a_hundred_concurrent_adds_take_few_calls(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        await queue.add("warm")
        admin.config_resetstat()
        jobs = await asyncio.gather(*[queue.add("a", number) for number in range(100)])
        assert script_calls(admin) <= 3
    assert [job.data for job in waiting(admin)[1:]] == list(range(100))
    assert waiting_ids(admin)[1:] == [job.id for job in jobs]


async def test_the_first_add_is_sent_at_once_and_the_others_are_joined(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        await queue.add("warm")
        admin.config_resetstat()
        plain = [queue.add("a", number) for number in range(50)]
        full = [queue.add("b", number, delay=60) for number in range(50)]
        await asyncio.gather(*plain, *full)
        assert script_calls(admin) == 3
    assert (len(waiting(admin)), len(delayed(admin))) == (51, 50)


async def test_more_than_a_thousand_joined_adds_are_all_added(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        jobs = await asyncio.gather(*[queue.add("a", number) for number in range(20_500)])
    assert waiting_ids(admin) == [job.id for job in jobs]


async def test_an_invalid_add_fails_alone(running: RunningServer, admin: redis.Redis) -> None:
    async with Queue(QUEUE, running.url) as queue:
        adding = [
            queue.add("a", 1),
            queue.add("a", object()),
            queue.add("a", 2, attempts=0),
            queue.add("x" * 300, 3),
            queue.add("a", 4),
        ]
        first, *bad, last = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(each) for each in bad] == [EncodeError, OptionError, OptionError]
    assert not isinstance(first, BaseException)
    assert not isinstance(last, BaseException)
    assert waiting_ids(admin) == [first.id, last.id]


@pytest.mark.parametrize("options", [{}, {"tenant": "t"}])
async def test_an_add_that_is_cancelled_in_time_adds_nothing(
    running: RunningServer, admin: redis.Redis, options: dict[str, str]
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        adding = [
            asyncio.create_task(queue.add("a", number, **options))  # type: ignore[arg-type]
            for number in range(10)
        ]
        await asyncio.sleep(0)  # all are in one batch, which is not on its way yet
        adding[3].cancel()
        done = await asyncio.gather(*adding, return_exceptions=True)
    assert isinstance(done[3], asyncio.CancelledError)
    assert [job.data for job in waiting(admin)] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


async def test_a_cancelled_add_does_not_affect_those_it_was_joined_with(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Proxy(running.port) as proxy, Queue(QUEUE, proxy.url) as queue:
        proxy.latency_s = 0.3
        adding = [asyncio.create_task(queue.add("a", number)) for number in range(10)]
        await wait_until(
            lambda: admin.xlen(KEYS.stream) == 10, within=60, sentence="the jobs were added"
        )
        adding[3].cancel()
        done = await asyncio.gather(*adding, return_exceptions=True)
    ids = [each if isinstance(each, BaseException) else each.id for each in done]
    assert isinstance(ids[3], asyncio.CancelledError)
    found = waiting_ids(admin)
    assert ids[:3] + ids[4:] == found[:3] + found[4:]


async def test_an_add_many_that_is_cancelled_sends_nothing_more(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Proxy(running.port) as proxy, Queue(QUEUE, proxy.url) as queue:
        await queue.add("warm")
        proxy.hold_replies = True
        adding = asyncio.create_task(queue.add_each("a", range(100_000)))
        await wait_until(lambda: admin.xlen(KEYS.stream) > 1, within=60, sentence="some were added")
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        proxy.hold_replies = False
        proxy.cut()
        await queue.add("last")
    assert len(waiting(admin)) < 10_000


async def test_each_add_raises_its_own_error(running: RunningServer, admin: redis.Redis) -> None:
    async with Queue(QUEUE, running.url) as queue:
        admin.set(KEYS.stream, "no stream")
        done = await asyncio.gather(*[queue.add("a") for _ in range(5)], return_exceptions=True)
    assert {type(each).__name__ for each in done} == {"CommandRefused"}
    assert len({id(each) for each in done}) == 5


async def test_few_calls_are_in_flight_and_waiting_adds_have_a_limit(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Proxy(running.port) as proxy, Queue(QUEUE, proxy.url, time_limit=1) as queue:
        await queue.add("warm")
        admin.config_resetstat()
        proxy.hold_replies = True
        adding: list[asyncio.Task[object]] = []
        for _ in range(30):  # a batch each
            adding.append(asyncio.create_task(queue.add("a")))
            for _ in range(3):
                await asyncio.sleep(0)
        await wait_until(
            lambda: script_calls(admin) == 8, within=60, sentence="eight calls are in flight"
        )
        done = await asyncio.gather(*adding, return_exceptions=True)
        assert all(isinstance(each, ServerError) for each in done)
        assert script_calls(admin) < 16  # of 30: further ones when the first had given up


class TestLengthLimit:
    async def test_a_full_queue_refuses_and_loses_nothing(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, max_len=100) as queue:
            done = await asyncio.gather(
                *[queue.add("a", number) for number in range(500)], return_exceptions=True
            )
        added = [each.id for each in done if not isinstance(each, BaseException)]
        assert waiting_ids(admin) == added
        assert len(added) == 100
        assert {type(each) for each in done if isinstance(each, BaseException)} == {QueueFull}

    async def test_a_job_that_fits_is_added_although_others_do_not(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, max_len=3) as queue:
            await queue.add("a")
            done = await asyncio.gather(*[queue.add("a") for _ in range(5)], return_exceptions=True)
        assert [isinstance(each, QueueFull) for each in done].count(False) == 2
        assert len(waiting(admin)) == 3

    async def test_add_many_adds_all_or_none(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, max_len=900) as queue:
            await queue.add("a")
            with pytest.raises(QueueFull):
                await queue.add_each("a", range(900))
            assert len(waiting(admin)) == 1
            await queue.add_each("a", range(899))
        assert len(waiting(admin)) == 900

    async def test_delayed_jobs_do_not_count(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, max_len=1) as queue:
            await queue.add("a")
            await queue.add("a", delay=60)
            with pytest.raises(QueueFull):
                await queue.add("a", job_id="x")
        assert len(delayed(admin)) == 1
        assert admin.exists(KEYS.marker("x")) == 0

    async def test_a_waiting_add_succeeds_as_soon_as_there_is_room(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, max_len=5, on_full="wait") as queue:
            adding = [asyncio.create_task(queue.add("a", number)) for number in range(20)]
            many = asyncio.create_task(queue.add_each("b", range(20)))
            seen: set[str] = set()

            def taken_away() -> bool:
                entries: Any = admin.xrange(KEYS.stream)
                assert len(entries) <= 5
                seen.update(decode_envelope(fields[b"d"]).id for _, fields in entries)
                if entries:  # only these: others may be added meanwhile
                    admin.xdel(KEYS.stream, *[entry_id for entry_id, _ in entries])
                return all(each.done() for each in (*adding, many))

            await wait_until(taken_away, within=60, sentence="all were added")
            jobs = [*[await each for each in adding], *await many]
        assert seen == {job.id for job in jobs}
        assert len(seen) == 40

    async def test_a_waiting_add_that_is_cancelled_adds_nothing_later(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, max_len=1, on_full="wait") as queue:
            await queue.add("a")
            admin.config_resetstat()
            adding = asyncio.create_task(queue.add("b"))
            await wait_until(
                lambda: script_calls(admin) >= 3, within=60, sentence="it has tried again"
            )
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            admin.xtrim(KEYS.stream, maxlen=0, approximate=False)
            await queue.add("c")
        assert [job.name for job in waiting(admin)] == ["c"]
