"""Adds that return only when the job is on disk or on another server."""

import asyncio
from collections.abc import Iterator

import pytest
import redis

from tampu import NewJob, NotDurable, OptionError, Queue
from tampu.server.connect import connect
from tests.conftest import Start
from tests.contract.queues import KEYS, QUEUE, waiting, waiting_ids
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import block_until, wait_until

pytestmark = pytest.mark.every_version


async def can_confirm(server: RunningServer) -> bool:
    async with await connect(server.url) as connected:
        return connected.dialect.wait_for_fsync


@pytest.fixture
def pair(start: Start) -> Iterator[tuple[RunningServer, RunningServer]]:
    """A server and its replica."""
    master = start()
    replica = start("--replicaof", "127.0.0.1", str(master.port))
    with replica.admin() as admin:
        block_until(
            lambda: admin.info("replication")["master_link_status"] == "up",
            within=60,
            sentence="the replica follows",
        )
    yield master, replica
    replica.resume()


def wait_commands(server: RunningServer, command: str) -> int:
    with server.admin() as admin:
        stats = admin.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


async def test_fsync_returns_when_the_job_is_on_disk_or_is_refused(start: Start) -> None:
    on_disk = start("--appendonly", "yes", "--appendfsync", "always")
    if not await can_confirm(on_disk):
        with pytest.raises(OptionError, match=r"^Invalid durability 'fsync'"):
            await Queue(QUEUE, on_disk.url, durability="fsync").add("a")
        return
    async with Queue(QUEUE, on_disk.url, durability="fsync") as queue:
        one = await queue.add("a", 1)
        many = await queue.add_many([NewJob("a", 2), NewJob("a", 3, job_id="x")])
        assert wait_commands(on_disk, "waitaof") >= 3  # the probe, and one for each call
        on_disk.kill()
        on_disk.restart()
        with on_disk.admin() as admin:
            assert waiting_ids(admin) == [one.id, *[job.id for job in many]]


async def test_fsync_is_refused_where_nothing_is_written_to_disk(
    running: RunningServer,
) -> None:
    queue = Queue(QUEUE, running.url, durability="fsync")
    with pytest.raises(OptionError, match=r"^Invalid durability 'fsync'"):
        await queue.add("a")
    with running.admin() as admin:
        assert admin.keys("*") == []
    await queue.close()


async def test_a_replica_confirms(pair: tuple[RunningServer, RunningServer]) -> None:
    master, replica = pair
    async with Queue(QUEUE, master.url, durability="replica") as queue:
        jobs = await asyncio.gather(*[queue.add("a", number) for number in range(20)])
        with replica.admin() as admin:
            assert waiting_ids(admin) == [job.id for job in jobs]


async def test_without_a_replica_the_jobs_are_added_but_not_durable(
    running: RunningServer,
) -> None:
    async with Queue(QUEUE, running.url, durability="replica", time_limit=0.5) as queue:
        with pytest.raises(NotDurable):
            await queue.add("a")
    with running.admin() as admin:
        assert len(waiting(admin)) == 1


async def test_a_replica_that_lags_too_long_raises_not_durable(
    pair: tuple[RunningServer, RunningServer],
) -> None:
    master, replica = pair
    async with Queue(QUEUE, master.url, durability="replica") as queue:
        await queue.add("a")
    replica.pause()
    async with Queue(QUEUE, master.url, durability="replica", time_limit=0.4) as queue:
        with pytest.raises(NotDurable):
            await queue.add("b")
    with master.admin() as admin:
        assert [job.name for job in waiting(admin)] == ["a", "b"]


async def test_a_wait_that_is_lost_with_its_connection_is_repeated(
    pair: tuple[RunningServer, RunningServer],
) -> None:
    master, replica = pair
    async with Proxy(master.port) as proxy:
        async with Queue(QUEUE, proxy.url, durability="replica", time_limit=20) as queue:
            await queue.add("a")
            replica.pause()
            adding = asyncio.create_task(queue.add("b"))
            with master.admin() as admin:
                await wait_until(
                    lambda: blocked(admin) == 1, within=60, sentence="the server waits for the copy"
                )
                proxy.cut()
                await wait_until(
                    lambda: blocked(admin) == 1, within=60, sentence="it is asked to wait again"
                )
                assert not adding.done()
                replica.resume()
                await asyncio.wait_for(adding, 15)
                assert [job.name for job in waiting(admin)] == ["a", "b"]
            with replica.admin() as admin:
                assert [job.name for job in waiting(admin)] == ["a", "b"]


async def test_jobs_that_were_lost_with_their_server_are_added_again(start: Start) -> None:
    """The server loses what it was told behind its back, memory of the call included."""
    server = start()
    replica = start("--replicaof", "127.0.0.1", str(server.port))
    with server.admin() as admin, replica.admin() as copy:
        await wait_until(
            lambda: copy.info("replication")["master_link_status"] == "up",
            within=60,
            sentence="the replica follows",
        )
        async with Proxy(server.port) as proxy:
            async with Queue(QUEUE, proxy.url, durability="replica", time_limit=20) as queue:
                await queue.add("a")
                replica.pause()
                adding = asyncio.create_task(queue.add("b"))
                await wait_until(
                    lambda: blocked(admin) == 1, within=60, sentence="the server waits for the copy"
                )
                admin.flushall()
                proxy.cut()
                replica.resume()
                job = await asyncio.wait_for(adding, 15)
        assert waiting_ids(admin) == waiting_ids(copy) == [job.id]
        assert admin.exists(KEYS.delayed) == 0


def blocked(admin: redis.Redis) -> int:
    return int(admin.info("clients")["blocked_clients"])
