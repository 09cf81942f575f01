"""Faults of servers and networks: no job is added twice, none that was returned is lost."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
import redis

from tampu import ConnectionLost, Job, NewJob, Queue, QueueFull, ServerError
from tests.conftest import Start
from tests.contract.queues import KEYS, QUEUE, delayed, waiting, waiting_ids
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

ADDED = b"$0\r\n\r\n"  # what the add script answers


def kill_clients(admin: redis.Redis) -> None:
    with suppress(redis.ResponseError):
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"job_id": "x"}])
async def test_a_resend_after_a_lost_reply_adds_nothing_twice(
    running: RunningServer, admin: redis.Redis, options: dict[str, object]
) -> None:
    async with Proxy(running.port) as proxy, Queue(QUEUE, proxy.url) as queue:
        await queue.counts()
        proxy.lost_reply = ADDED
        adding = asyncio.create_task(queue.add("a", 1, **options))  # type: ignore[arg-type]
        await wait_until(
            lambda: proxy.swallowed > 0, within=60, sentence="the server's answer was lost"
        )
        assert len(waiting(admin)) + len(delayed(admin)) == 1
        proxy.lost_reply = None
        proxy.cut()
        job = await adding
    assert not job.duplicate
    assert len(waiting(admin)) + len(delayed(admin)) == 1


async def test_many_calls_in_flight_survive_lost_replies(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Proxy(running.port) as proxy, Queue(QUEUE, proxy.url) as queue:
        await queue.counts()
        proxy.hold_replies = True
        adding = asyncio.create_task(queue.add_each("a", range(2800)))
        await wait_until(
            lambda: admin.xlen(KEYS.stream) == 2800, within=60, sentence="all calls were done"
        )
        proxy.hold_replies = False
        proxy.cut()
        jobs = await adding
    assert waiting_ids(admin) == [job.id for job in jobs]


async def test_killed_connections_neither_lose_nor_repeat_jobs(
    running: RunningServer, admin: redis.Redis
) -> None:
    returned: list[Job[object]] = []
    async with Queue(QUEUE, running.url) as queue:

        async def adder(number: int) -> None:
            for turn in range(20):
                if turn % 5 == 4:
                    returned.extend(await queue.add_many([NewJob("many", number)] * 3))
                elif turn % 5 == 3:
                    returned.append(await queue.add("full", number, tenant="t"))
                else:
                    returned.append(await queue.add("a", number))
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            adders = [group.create_task(adder(number)) for number in range(50)]
            while not all(each.done() for each in adders):
                kill_clients(admin)
                await asyncio.sleep(0.05)
    counted = Counter(waiting_ids(admin))
    assert counted == Counter(job.id for job in returned)
    assert set(counted.values()) == {1}
    assert len(returned) == 50 * (16 + 4 * 3)


async def test_a_server_that_forgets_its_scripts_loses_no_job(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        jobs: list[Job[object]] = []
        for number in range(20):
            admin.script_flush()
            jobs += await asyncio.gather(queue.add("a", number), queue.add("b", tenant="t"))
    assert sorted(waiting_ids(admin)) == sorted(job.id for job in jobs)


async def test_without_an_answer_the_add_fails_within_the_time_limit(
    running: RunningServer,
) -> None:
    async with Proxy(running.port) as proxy, Queue(QUEUE, proxy.url, time_limit=0.3) as queue:
        await queue.counts()
        proxy.hold_replies = True
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(queue.add("a"), 10)
        with pytest.raises(ServerError):
            await asyncio.wait_for(queue.add("a", delay=5), 10)


async def test_a_job_is_added_when_the_server_comes_back_in_time(start: Start) -> None:
    server = start()
    async with Queue(QUEUE, server.url) as queue:
        await queue.add("a", 1)
        server.kill()
        adding = asyncio.create_task(queue.add("a", 2))
        await asyncio.sleep(0.05)
        server.restart()
        job = await asyncio.wait_for(adding, 10)
        with server.admin() as admin:
            assert waiting_ids(admin) == [job.id]


async def test_at_the_memory_limit_adds_are_refused(start: Start) -> None:
    server = start("--maxmemory-policy", "noeviction")
    with server.admin() as admin:
        async with Queue(QUEUE, server.url, max_len=1000, on_full="wait") as queue:
            before = await queue.add_each("a", range(10))
            admin.config_set("maxmemory", 1)
            for adding in (
                queue.add("a"),
                queue.add("a", delay=60),
                queue.add("a", job_id="x"),
                queue.add_each("a", range(10)),
            ):
                with pytest.raises(QueueFull) as refused:
                    await asyncio.wait_for(adding, 10)
                assert refused.value.code == "OOM"
            admin.config_set("maxmemory", 0)
            assert waiting_ids(admin) == [job.id for job in before]
            assert admin.exists(KEYS.marker("x"), KEYS.delayed) == 0
            assert not (await queue.add("a", job_id="x")).duplicate
