"""Lanes in a cluster: the right node, moved slots, failover."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from tampu.admin.health import examine
from tampu.admin.queues import queue_names, remove_queue
from tampu.errors import (
    AccessDenied,
    CommandRefused,
    ConnectionLost,
    ServerBusy,
    ServerError,
    ServerUnreachable,
)
from tampu.queue import Queue
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane, LaneOptions
from tampu.server.protocol import pack
from tampu.server.scripts import adding, workers
from tampu.wire.keys import QueueKeys
from tests.servers import Backend, RunningServer
from tests.topology import Cluster, cluster
from tests.waiting import wait_until

QUICK = LaneOptions(limit_s=20.0, patience_s=10.0, first_pause_s=0.01, longest_pause_s=0.2)
QUEUES = [b"{chasqui:q%d}" % n for n in range(12)]


@pytest.fixture(scope="module")
def built(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


@pytest.fixture
async def server(built: Cluster) -> AsyncIterator[Server]:
    async with await connect(built.url) as connected:
        yield connected


def has(answers: list[int], enough: int) -> bool:
    return len(answers) > enough


def keys_of(queue: bytes) -> adding.AddKeys:
    return adding.AddKeys(
        stream=queue + b":stream",
        delayed=queue + b":delayed",
        memory=queue + b":memory",
        bell=queue + b":bell",
    )


@pytest.mark.every_server
async def test_each_queue_s_lane_leads_to_the_node_of_its_slot(
    server: Server, built: Cluster
) -> None:
    owners = set()
    for queue in QUEUES:
        async with await Lane.open(server, queue + b":stream") as lane:
            flat = [b"envelope", b"name"] * 10
            await adding.add(lane, keys_of(queue), adding.PlainJobs(flat), number=1)
            assert await lane.call("XLEN", queue + b":stream") == 10
            owners.add(built.owner(queue).port)
    assert len(owners) == 3, "the queues should spread over all nodes"


@pytest.mark.every_server
async def test_a_slot_that_moves_under_load_costs_nothing(server: Server, built: Cluster) -> None:
    counter = b"{chasqui:moving}:n"
    async with await Lane.open(server, counter, options=QUICK) as lane:
        answers: list[int] = []
        done = asyncio.Event()

        async def count() -> None:
            while not done.is_set():
                calls = [lane.send(pack("INCR", counter)) for _ in range(20)]
                answers.extend(int(str(n)) for n in await asyncio.gather(*calls))

        counting = [asyncio.create_task(count()) for _ in range(3)]
        for lap in range(6):
            target = built.masters[lap % 3]
            if built.owner(counter) is not target:
                await asyncio.to_thread(built.move, counter, target)
            enough = len(answers) + 200
            await wait_until(partial(has, answers, enough), within=10, sentence="calls go on")
        done.set()
        await asyncio.gather(*counting)
        assert sorted(answers) == list(range(1, len(answers) + 1)), "a call was lost or doubled"


@pytest.mark.every_server
async def test_a_call_for_a_key_that_is_on_its_way_is_asked_for_there(
    server: Server, built: Cluster
) -> None:
    queue = b"{chasqui:asking}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        await lane.call("SET", queue + b":stays", b"here")
        with built.moving(queue) as target:
            assert await lane.call("SET", queue + b":new", b"there") == b"OK"
            assert await lane.call("GET", queue + b":stays") == b"here"
            with target.admin() as admin:
                slot = admin.execute_command("CLUSTER KEYSLOT", queue)
                found = admin.execute_command("CLUSTER GETKEYSINSLOT", slot, 10)
                assert {k if isinstance(k, bytes) else k.encode() for k in found} == {
                    queue + b":new"
                }
        assert await lane.call("MGET", queue + b":stays", queue + b":new") == [b"here", b"there"]


async def test_a_call_passed_on_to_a_node_that_is_frozen_ends(
    server: Server, built: Cluster
) -> None:
    queue = b"{chasqui:frozen}"
    options = LaneOptions(limit_s=20.0, patience_s=0.5, longest_pause_s=0.2)
    async with await Lane.open(server, queue, options=options) as lane:
        await lane.call("PING")
        with built.moving(queue) as target:
            target.pause()
            try:
                with pytest.raises(ServerError):
                    await asyncio.wait_for(lane.call("SET", queue + b":a", b"1", limit_s=3), 15)
                again = lane.send(pack("SET", queue + b":b", b"1"), repeatable=True)
                await asyncio.wait([again], timeout=0.7)
                assert not again.done()
            finally:
                target.resume()
            assert await again == b"OK"


async def test_a_blocking_read_of_a_slot_that_is_on_its_way_waits_for_it(
    server: Server, built: Cluster
) -> None:
    queue = b"{chasqui:patient}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        with built.moving(queue) as target:
            reading = lane.send(pack("BLPOP", queue + b":list", 30), block_s=30)
            await asyncio.wait([reading], timeout=0.1)
        with target.admin() as admin:
            admin.rpush(queue + b":list", b"x")
        assert await asyncio.wait_for(reading, 10) == [queue + b":list", b"x"]


@pytest.mark.parametrize("refused_before", [False, True])
async def test_a_blocking_read_of_a_slot_that_is_on_its_way_can_be_unblocked(
    server: Server, built: Cluster, *, refused_before: bool
) -> None:
    queue = b"{chasqui:impatient}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        await lane.call("PING")  # from now on what is sent is written at once
        with built.moving(queue):
            reading = lane.send(pack("BLPOP", queue + b":list", 30), block_s=30)
            if refused_before:
                await asyncio.wait([reading], timeout=0.1)
            await lane.unblock()
            assert await asyncio.wait_for(reading, 10) is None


async def test_a_slot_that_stays_half_way_is_told_at_the_limit(
    server: Server, built: Cluster
) -> None:
    queue = b"{chasqui:stuck}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        with built.moving(queue):
            jobs = adding.PlainJobs([b"e", b"n"])
            # Unknown only if the time is up in the very moment that the other node is asked.
            with pytest.raises((ServerBusy, ConnectionLost)):
                await adding.add(lane, keys_of(queue), jobs, number=1, limit_s=1.5)


async def test_a_call_that_waits_for_its_slot_fails_at_close(
    server: Server, built: Cluster
) -> None:
    queue = b"{chasqui:leaving}"
    lane = await Lane.open(server, queue, options=QUICK)
    with built.moving(queue):
        call = lane.send(pack("MGET", queue + b":a", queue + b":b"))
        await asyncio.wait([call], timeout=0.1)
        await lane.close()
        with pytest.raises(ServerError):
            await asyncio.wait_for(call, 10)


async def test_a_wrong_password_for_a_cluster_is_access_denied(built: Cluster) -> None:
    hosts = built.url.removeprefix("redis+cluster://")
    with pytest.raises(AccessDenied):
        await connect(f"redis+cluster://:wrong@{hosts}")


@pytest.mark.every_server
async def test_a_script_for_a_slot_that_is_on_its_way_runs_there(
    server: Server, built: Cluster
) -> None:
    queue = b"{chasqui:early}"
    for node in built.masters:
        with node.admin() as admin:
            admin.script_flush()
    async with await Lane.open(server, queue, options=QUICK) as lane:
        with built.moving(queue):
            assert await workers.lead(lane, queue + b":lock", holder=b"me", ttl_s=5)


@pytest.mark.every_server
async def test_a_script_of_many_keys_waits_until_its_slot_has_moved(
    server: Server, built: Cluster
) -> None:
    queue = b"{chasqui:halfway}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        jobs = adding.PlainJobs([b"e", b"n"])
        with built.moving(queue):
            task = asyncio.create_task(adding.add(lane, keys_of(queue), jobs, number=1))
            await asyncio.wait([task], timeout=0.2)
            assert not task.done(), "such a call cannot be carried out while the slot moves"
        assert await task == b""
        assert await lane.call("XLEN", queue + b":stream") == 1


async def test_a_script_that_meets_a_moving_slot_adds_once(server: Server, built: Cluster) -> None:
    queue = b"{chasqui:carried}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        for number in range(1, 31):
            if number % 10 == 0:
                await asyncio.to_thread(built.move, queue, built.other(queue))
            await adding.add(lane, keys_of(queue), adding.PlainJobs([b"e", b"n"]), number=number)
        assert await lane.call("XLEN", queue + b":stream") == 30


async def test_one_node_of_a_cluster_by_a_plain_url_says_what_to_use(built: Cluster) -> None:
    queue = next(q for q in QUEUES if built.owner(q) is not built.masters[0])
    async with await connect(built.masters[0].url) as server:
        async with await Lane.open(server, queue) as lane:
            with pytest.raises(CommandRefused, match=r"redis\+cluster://"):
                await lane.call("GET", queue)


async def test_a_cluster_url_to_a_single_server_says_so(running: RunningServer) -> None:
    with pytest.raises(ServerError, match=r"[Cc]luster"):
        await connect(f"redis+cluster://127.0.0.1:{running.port}")


async def test_a_cluster_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(ServerUnreachable):
        await connect("redis+cluster://127.0.0.1:1,127.0.0.1:2", connect_timeout_s=2)


async def test_first_host_dead_the_second_leads_in(built: Cluster) -> None:
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{built.masters[1].port}"
    async with await connect(url) as server, await Lane.open(server, b"{a}") as lane:
        assert await lane.call("SET", b"{a}:k", b"v") == b"OK"


async def test_a_call_passed_on_to_a_node_that_is_gone_waits_for_it(binary: Path) -> None:
    with cluster(binary) as built:
        key = b"{chasqui:passed}:n"
        async with (
            await connect(built.url) as server,
            await Lane.open(server, key, options=QUICK) as lane,
        ):
            await lane.call("PING")
            target = built.other(key)
            built.begin_move(key, target)
            target.kill()
            # Unknown only if the time is up in the very moment that a node is asked.
            with pytest.raises((ServerBusy, ConnectionLost)):
                await lane.call("SET", key, b"never", limit_s=1.5)
            waiting = lane.send(pack("SET", key, b"there"), repeatable=True)
            target.restart()
            assert await waiting == b"OK"


@pytest.mark.every_server
async def test_a_cluster_that_hides_its_host_names_is_followed(
    binary: Path, backend: Backend
) -> None:
    if backend.version < (7, 0):
        pytest.skip("servers before 7.0 cannot hide them")
    with cluster(binary) as built:
        for node in built.masters:
            with node.admin() as admin:
                admin.config_set("cluster-preferred-endpoint-type", "unknown-endpoint")
        key = b"{chasqui:hidden}:n"
        async with (
            await connect(built.url) as server,
            await Lane.open(server, key, options=QUICK) as lane,
        ):
            assert await lane.call("INCR", key) == 1
            built.move(key, built.other(key))
            assert await lane.call("INCR", key) == 2


@pytest.mark.every_server
async def test_a_lane_follows_the_slot_to_the_replica_of_a_killed_master(binary: Path) -> None:
    with cluster(binary, replicas=True) as built:
        key = b"{chasqui:falling}:n"
        async with (
            await connect(built.url) as server,
            await Lane.open(server, key, options=QUICK) as lane,
        ):
            await lane.call("SET", key, b"kept")
            owner = built.owner(key)
            follower = built.replicas[built.masters.index(owner)]
            with follower.admin() as admin:
                admin.execute_command("READONLY")
                await wait_until(
                    lambda: admin.get(key) == b"kept", within=10, sentence="replicated"
                )
            owner.kill()
            assert await lane.send(pack("GET", key), repeatable=True, limit_s=20) == b"kept"
            assert await lane.call("SET", key, b"after") == b"OK"


@pytest.mark.every_server
async def test_queues_are_found_examined_and_removed_on_every_node(
    server: Server, built: Cluster
) -> None:
    names = [f"found{number}" for number in range(8)]
    for name in names:
        async with Queue(name, built.url) as queue:
            await queue.add("x", delay=60, job_id="one")
    owners = {built.owner(QueueKeys(name).stream).port for name in names}
    assert len(owners) == 3, "the queues should spread over all nodes"
    assert set(names) <= set(await queue_names(server))
    facts = await examine(server)
    assert len(facts.nodes) == 3
    assert facts.missing_expiries.checked >= 2 * len(names)
    for name in names:
        assert await remove_queue(server, QueueKeys(name)) >= 4
    assert not set(names) & set(await queue_names(server))
