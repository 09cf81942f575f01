"""Lanes in a cluster: the right node, moved slots, failover."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
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
from tampu.server.connection import SharedConnections
from tampu.server.lane import Lane, LaneOptions
from tampu.server.protocol import pack
from tampu.server.scripts.adding import AddKeys, AddRequest, PlainJobs, add
from tampu.server.scripts.workers import lead
from tampu.wire.keys import QueueKeys
from tests.servers import Backend, RunningServer
from tests.topology import Cluster, cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("redis_py")

QUICK = LaneOptions(limit_s=20.0, patience_s=10.0, first_pause_s=0.01, longest_pause_s=0.2)
QUEUES = [b"{chasqui:q%d}" % n for n in range(12)]


@pytest.fixture(scope="module")
def nodes(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


@pytest.fixture
async def server(nodes: Cluster) -> AsyncIterator[Server]:
    """The cluster, empty."""
    for node in nodes.masters:
        with node.admin() as admin:
            admin.flushall()
    async with await connect(nodes.url) as connected:
        yield connected


def is_longer(answers: list[int], length: int) -> bool:
    return len(answers) > length


def request(queue: bytes, number: int = 1, *, jobs: int = 1, limit_s: float = 30.0) -> AddRequest:
    names = ("stream", "delayed", "memory", "wakeup", "gate", "control", "notices")
    keys = AddKeys(**{name: b"%b:%b" % (queue, name.encode()) for name in names})
    plain = PlainJobs([b"envelope", b"name"] * jobs)
    return AddRequest(keys=keys, jobs=plain, number=number, limit_s=limit_s)


@pytest.mark.every_version
async def test_the_lane_of_a_queue_leads_to_the_node_of_its_slot(
    server: Server, nodes: Cluster
) -> None:
    owners = set()
    for queue in QUEUES:
        async with await Lane.open(server, queue + b":stream") as lane:
            await add(lane, request(queue, jobs=10))
            assert await lane.call("XLEN", queue + b":stream") == 10
            owners.add(nodes.owner(queue).port)
    assert len(owners) == 3, "the queues should spread over all nodes"


@pytest.mark.every_version
async def test_a_slot_that_moves_under_load_loses_and_repeats_no_call(
    server: Server, nodes: Cluster
) -> None:
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
            target = nodes.masters[lap % 3]
            if nodes.owner(counter) is not target:
                await asyncio.to_thread(nodes.move, counter, target)
            enough = len(answers) + 200
            await wait_until(partial(is_longer, answers, enough), within=60, sentence="calls go on")
        done.set()
        await asyncio.gather(*counting)
        assert sorted(answers) == list(range(1, len(answers) + 1)), "a call was lost or repeated"


@pytest.mark.every_version
async def test_lanes_that_share_connections_follow_their_own_slots(
    server: Server, nodes: Cluster
) -> None:
    shared = SharedConnections(server)
    async with AsyncExitStack() as stack:
        lanes = {
            queue: await stack.enter_async_context(
                await Lane.open(server, queue, options=QUICK, shared=shared)
            )
            for queue in QUEUES
        }

        async def clients() -> dict[bytes, tuple[int, int | None]]:
            for queue, lane in lanes.items():
                await lane.call("INCR", queue)
            return {q: (nodes.owner(q).port, await lane.client_id()) for q, lane in lanes.items()}

        before = await clients()
        assert len(set(before.values())) == 3, "one connection to each node"
        moved = QUEUES[0]
        target = nodes.other(moved)
        await asyncio.to_thread(nodes.move, moved, target)
        after = await clients()
        assert {queue: after[queue] for queue in QUEUES[1:]} == {
            queue: before[queue] for queue in QUEUES[1:]
        }, "the others stay where they were"
        assert after[moved] in [before[queue] for queue in QUEUES[1:]], "it joins the new node's"
        assert after[moved][0] == target.port


@pytest.mark.every_version
async def test_a_broken_connection_is_replaced_for_all_lanes_that_share_it(
    server: Server, nodes: Cluster
) -> None:
    shared = SharedConnections(server)
    queues = [queue for queue in QUEUES if nodes.owner(queue) is nodes.owner(QUEUES[0])]
    async with AsyncExitStack() as stack:
        lanes = [
            await stack.enter_async_context(
                await Lane.open(server, queue, options=QUICK, shared=shared)
            )
            for queue in queues
        ]
        for _ in range(5):
            before = await lanes[0].client_id()
            with nodes.owner(QUEUES[0]).admin() as admin:
                admin.client_kill_filter(_id=str(before))
            for queue, lane in zip(queues, lanes, strict=True):
                await lane.send(pack("INCR", queue), repeatable=True)
            ids = {await lane.client_id() for lane in lanes}
            assert len(ids) == 1, "they share one connection again"
            assert before not in ids


@pytest.mark.every_version
async def test_a_call_for_a_key_of_a_moving_slot_goes_to_the_new_node(
    server: Server, nodes: Cluster
) -> None:
    queue = b"{chasqui:asking}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        await lane.call("SET", queue + b":stays", b"here")
        with nodes.moving(queue) as target:
            assert await lane.call("SET", queue + b":new", b"there") == b"OK"
            assert await lane.call("GET", queue + b":stays") == b"here"
            with target.admin() as admin:
                slot = admin.execute_command("CLUSTER KEYSLOT", queue)
                found = admin.execute_command("CLUSTER GETKEYSINSLOT", slot, 10)
                assert {k if isinstance(k, bytes) else k.encode() for k in found} == {
                    queue + b":new"
                }
        assert await lane.call("MGET", queue + b":stays", queue + b":new") == [b"here", b"there"]


async def test_a_call_redirected_to_a_frozen_node_fails_at_its_limit(
    server: Server, nodes: Cluster
) -> None:
    queue = b"{chasqui:frozen}"
    options = LaneOptions(limit_s=20.0, patience_s=0.5, longest_pause_s=0.2)
    async with await Lane.open(server, queue, options=options) as lane:
        await lane.call("PING")
        with nodes.moving(queue) as target:
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


async def test_a_blocking_read_waits_for_a_moving_slot(server: Server, nodes: Cluster) -> None:
    queue = b"{chasqui:patient}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        with nodes.moving(queue) as target:
            reading = lane.send(pack("BLPOP", queue + b":list", 30), block_s=30)
            await asyncio.wait([reading], timeout=0.1)
        with target.admin() as admin:
            admin.rpush(queue + b":list", b"x")
        assert await asyncio.wait_for(reading, 10) == [queue + b":list", b"x"]


@pytest.mark.parametrize("refused_before", [False, True])
async def test_a_blocking_read_that_waits_for_a_moving_slot_can_be_unblocked(
    server: Server, nodes: Cluster, *, refused_before: bool
) -> None:
    queue = b"{chasqui:impatient}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        await lane.call("PING")  # from now on calls are written at once
        with nodes.moving(queue):
            reading = lane.send(pack("BLPOP", queue + b":list", 30), block_s=30)
            if refused_before:
                await asyncio.wait([reading], timeout=0.1)
            await lane.unblock()
            assert await asyncio.wait_for(reading, 10) is None


async def test_a_call_for_a_slot_that_stays_half_moved_fails_at_its_limit(
    server: Server, nodes: Cluster
) -> None:
    queue = b"{chasqui:stuck}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        with nodes.moving(queue):
            # Unknown only if the limit is reached at the moment that the other node is asked.
            with pytest.raises((ServerBusy, ConnectionLost)):
                await add(lane, request(queue, limit_s=1.5))


async def test_a_call_that_waits_for_a_moving_slot_fails_at_close(
    server: Server, nodes: Cluster
) -> None:
    queue = b"{chasqui:leaving}"
    lane = await Lane.open(server, queue, options=QUICK)
    with nodes.moving(queue):
        call = lane.send(pack("MGET", queue + b":a", queue + b":b"))
        await asyncio.wait([call], timeout=0.1)
        await lane.close()
        with pytest.raises(ServerError):
            await asyncio.wait_for(call, 10)


async def test_a_wrong_password_for_a_cluster_is_access_denied(nodes: Cluster) -> None:
    hosts = nodes.url.removeprefix("redis+cluster://")
    with pytest.raises(AccessDenied):
        await connect(f"redis+cluster://:wrong@{hosts}")


@pytest.mark.every_version
async def test_a_script_for_a_moving_slot_runs_on_the_new_node(
    server: Server, nodes: Cluster
) -> None:
    queue = b"{chasqui:early}"
    for node in nodes.masters:
        with node.admin() as admin:
            admin.script_flush()
    async with await Lane.open(server, queue, options=QUICK) as lane:
        with nodes.moving(queue):
            assert await lead(lane, queue + b":lock", holder=b"me", ttl_s=5)


@pytest.mark.every_version
async def test_a_script_with_many_keys_waits_until_its_slot_has_moved(
    server: Server, nodes: Cluster
) -> None:
    queue = b"{chasqui:halfway}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        with nodes.moving(queue):
            task = asyncio.create_task(add(lane, request(queue)))
            await asyncio.wait([task], timeout=0.2)
            assert not task.done(), "it cannot be carried out while the slot moves"
        assert await task == b""
        assert await lane.call("XLEN", queue + b":stream") == 1


async def test_a_script_that_meets_a_moving_slot_adds_once(server: Server, nodes: Cluster) -> None:
    queue = b"{chasqui:carried}"
    async with await Lane.open(server, queue, options=QUICK) as lane:
        for number in range(1, 31):
            if number % 10 == 0:
                await asyncio.to_thread(nodes.move, queue, nodes.other(queue))
            await add(lane, request(queue, number))
        assert await lane.call("XLEN", queue + b":stream") == 30


async def test_a_plain_url_of_a_cluster_node_names_the_right_scheme(nodes: Cluster) -> None:
    queue = next(q for q in QUEUES if nodes.owner(q) is not nodes.masters[0])
    async with await connect(nodes.masters[0].url) as server:
        async with await Lane.open(server, queue) as lane:
            with pytest.raises(CommandRefused, match=r"redis\+cluster://"):
                await lane.call("GET", queue)


async def test_a_cluster_url_of_a_single_server_is_an_error(running: RunningServer) -> None:
    with pytest.raises(ServerError, match=r"[Cc]luster"):
        await connect(f"redis+cluster://127.0.0.1:{running.port}")


async def test_a_missing_cluster_is_unreachable() -> None:
    with pytest.raises(ServerUnreachable):
        await connect("redis+cluster://127.0.0.1:1,127.0.0.1:2", connect_timeout_s=2)


async def test_the_second_host_is_used_if_the_first_is_down(nodes: Cluster) -> None:
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{nodes.masters[1].port}"
    async with await connect(url) as server, await Lane.open(server, b"{a}") as lane:
        assert await lane.call("SET", b"{a}:k", b"v") == b"OK"


async def test_a_call_redirected_to_a_dead_node_waits_for_it(binary: Path) -> None:
    with cluster(binary) as nodes:
        key = b"{chasqui:passed}:n"
        async with (
            await connect(nodes.url) as server,
            await Lane.open(server, key, options=QUICK) as lane,
        ):
            await lane.call("PING")
            target = nodes.other(key)
            nodes.begin_move(key, target)
            target.kill()
            # Unknown only if the limit is reached at the moment that a node is asked.
            with pytest.raises((ServerBusy, ConnectionLost)):
                await lane.call("SET", key, b"never", limit_s=1.5)
            waiting = lane.send(pack("SET", key, b"there"), repeatable=True)
            target.restart()
            assert await waiting == b"OK"


@pytest.mark.every_version
async def test_a_cluster_that_hides_its_host_names_is_followed(
    binary: Path, backend: Backend, redis_py: str
) -> None:
    if redis_py != "fast":
        pytest.skip("the public API does not tell where redis-py entered the cluster")
    if backend.version < (7, 0):
        pytest.skip("servers before 7.0 cannot hide them")
    with cluster(binary) as nodes:
        for node in nodes.masters:
            with node.admin() as admin:
                admin.config_set("cluster-preferred-endpoint-type", "unknown-endpoint")
        key = b"{chasqui:hidden}:n"
        async with (
            await connect(nodes.url) as server,
            await Lane.open(server, key, options=QUICK) as lane,
        ):
            assert await lane.call("INCR", key) == 1
            nodes.move(key, nodes.other(key))
            assert await lane.call("INCR", key) == 2


@pytest.mark.every_version
async def test_a_lane_follows_the_slot_to_the_replica_of_a_killed_master(binary: Path) -> None:
    with cluster(binary, replicas=True, fails_fast=True) as nodes:
        key = b"{chasqui:falling}:n"
        async with (
            await connect(nodes.url) as server,
            await Lane.open(server, key, options=QUICK) as lane,
        ):
            await lane.call("SET", key, b"kept")
            owner = nodes.owner(key)
            follower = nodes.replicas[nodes.masters.index(owner)]
            with follower.admin() as admin:
                admin.execute_command("READONLY")
                await wait_until(
                    lambda: admin.get(key) == b"kept", within=60, sentence="the replica has the key"
                )
            owner.kill()
            assert await lane.send(pack("GET", key), repeatable=True, limit_s=20) == b"kept"
            assert await lane.call("SET", key, b"after") == b"OK"


@pytest.mark.every_version
async def test_queues_are_found_examined_and_removed_on_every_node(
    server: Server, nodes: Cluster
) -> None:
    names = [f"found{number}" for number in range(8)]
    for name in names:
        async with Queue(name, nodes.url) as queue:
            await queue.add("x", delay=60, job_id="one")
    owners = {nodes.owner(QueueKeys(name).stream).port for name in names}
    assert len(owners) == 3, "the queues should spread over all nodes"
    assert set(names) <= set(await queue_names(server))
    facts = await examine(server)
    assert len(facts.nodes) == 3
    assert facts.missing_expiries.checked >= 2 * len(names)
    for name in names:
        assert await remove_queue(server, QueueKeys(name)) >= 4
    assert not set(names) & set(await queue_names(server))
