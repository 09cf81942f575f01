"""Flow control on servers that are replaced or full, and in a cluster whose slots move."""

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tampu import Every, Queue
from tampu.limits import Concurrency
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.conftest import Start
from tests.faults.conftest import QUEUE
from tests.faults.flow_run import FLOW_S, FlowRun, flow_run
from tests.gates import ManualGate, assert_empty, look_at_gate
from tests.servers import RunningServer
from tests.topology import Cluster, cluster, watched
from tests.waiting import wait_until

KEYS = QueueKeys(QUEUE)


@pytest.mark.timeout(240 + FLOW_S)
async def test_after_a_failover_no_slot_is_left(
    binary: Path, running: RunningServer, tmp_path: Path
) -> None:
    with watched(binary, tmp_path, fails_fast=True) as group, group.replica.admin() as admin:
        given = {"outside": running, "url": group.url, "durability": "replica"}
        async with flow_run(group.master, tmp_path, 10, **given) as run:  # type: ignore[arg-type]
            await run.go(FLOW_S / 4, kills=False)
            await asyncio.to_thread(group.switch)
            await wait_until(
                lambda: admin.role()[0] == b"master", within=30, sentence="there is a new master"
            )
            run.admin = admin
            await run.go(FLOW_S / 4)
            # What passed last on the old master may be known to workers only.
            await run.rest(is_counted=False)
            await run.workers.stop()


@pytest.mark.timeout(240 + FLOW_S)
async def test_after_a_master_has_died_nothing_is_lost_that_its_replica_had(
    binary: Path, running: RunningServer, tmp_path: Path
) -> None:
    with watched(binary, tmp_path, fails_fast=True) as group, group.replica.admin() as admin:
        given = {"outside": running, "url": group.url, "durability": "replica"}
        async with flow_run(group.master, tmp_path, 12, **given) as run:  # type: ignore[arg-type]
            await run.go(FLOW_S / 4, kills=False)
            await asyncio.to_thread(group.master.kill)
            await wait_until(
                lambda: admin.role()[0] == b"master", within=60, sentence="there is a new master"
            )
            await asyncio.to_thread(group.master.restart)
            await wait_until(
                lambda: "online" in str(admin.info("replication").get("slave0")),
                within=60,
                sentence="the old master follows the new one",
            )
            run.admin = admin
            await run.go(FLOW_S / 4)
            await run.rest(is_counted=False)
            await run.workers.stop()


@pytest.mark.timeout(240 + FLOW_S)
async def test_a_server_at_its_memory_limit_refuses_jobs_and_finishes_those_it_has(
    running: RunningServer, start: Start, tmp_path: Path
) -> None:
    server = start("--maxmemory-policy", "noeviction")
    async with flow_run(server, tmp_path, 13, outside=running) as run:
        filling = asyncio.create_task(fill_now_and_then(run))
        await run.go(FLOW_S / 2)
        filling.cancel()
        await asyncio.wait([filling])
        run.admin.config_set("maxmemory", 0)
        await run.rest()
        await run.workers.stop()
        assert run.refused > 1


async def fill_now_and_then(run: FlowRun) -> None:
    """Let the server have no memory left, again and again."""
    for limit in cycle((1, 0)):
        run.admin.config_set("maxmemory", limit)
        await asyncio.sleep(run.rng.random())


@pytest.mark.timeout(240 + FLOW_S)
async def test_while_the_slot_of_a_queue_moves_nothing_is_lost_and_no_limit_exceeded(
    binary: Path, running: RunningServer, tmp_path: Path
) -> None:
    with cluster(binary) as nodes:
        name, is_over = f"flow-{os.urandom(6).hex()}", asyncio.Event()
        stream = QueueKeys(name).stream
        given = {"outside": running, "url": nodes.url, "name": name}
        async with flow_run(nodes.owner(stream), tmp_path, 14, **given) as run:  # type: ignore[arg-type]
            adding = asyncio.create_task(add_until(run, is_over))
            for _ in range(round(FLOW_S / 2)):
                await asyncio.to_thread(nodes.move, stream, nodes.other(stream))
                run.workers.kill_one(run.outside)
                run.workers.start()
                with nodes.owner(stream).admin() as admin:
                    run.admin = admin
                    before = len(run.added)
                    await wait_until(
                        lambda before=before: adding.done() or len(run.added) > before + 200,  # type: ignore[misc]
                        within=60,
                        sentence="the producer goes on",
                    )
                    run.look()
            is_over.set()
            await adding
            with nodes.owner(stream).admin() as run.admin:
                await run.rest()
            await run.workers.stop()


async def add_until(run: FlowRun, is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        await run.add([run.make_job() for _ in range(20)])
        await asyncio.sleep(0.02)  # what workers do in that time is the subject


@pytest.fixture
async def half_moved(binary: Path) -> AsyncIterator[tuple[Cluster, ManualGate]]:
    """A gate in a cluster, with jobs in lines and jobs that are held."""
    with cluster(binary) as nodes:
        async with Queue(QUEUE, nodes.url) as queue, await connect(nodes.url) as server:
            async with await Lane.open(server, KEYS.stream) as lane:
                with nodes.owner(KEYS.stream).admin() as admin:
                    gate = ManualGate(queue, lane, admin, KEYS)
                    await gate.open()
                    await queue.add_each("j", range(20), limits=[Concurrency(3)], key="k")
                    await gate.want(10)
                    yield nodes, gate


@pytest.mark.every_server
@pytest.mark.parametrize("moved", [b":run", b":held", b":line:5/k|j()", b":limits", b":want", b""])
async def test_a_gate_whose_slot_is_half_way_to_another_node_is_not_torn_apart(
    half_moved: tuple[Cluster, ManualGate], moved: bytes
) -> None:
    """A script sees all keys of the gate, or it does not run."""
    nodes, gate = half_moved
    held, target = gate.read(), nodes.other(KEYS.stream)
    source = nodes.begin_move(KEYS.stream, target)
    gate.admin.execute_command("MIGRATE", "127.0.0.1", target.port, KEYS.gate + moved, 0, 5000)
    calls: list[asyncio.Task[Any]] = [
        asyncio.create_task(gate.settle(held[:1])),
        asyncio.create_task(gate.want(11)),
        asyncio.create_task(gate.queue.add("j", 20, key="new", priority=9)),
        asyncio.create_task(gate.run_again(held[1])),
        asyncio.create_task(gate.queue.limits.keys()),
        asyncio.create_task(
            gate.queue.schedules.add("j", Every("1h"), key="s", limits=[Concurrency(3)])
        ),
    ]
    await asyncio.wait(calls, timeout=0.5)  # they wait until the slot has moved
    await asyncio.to_thread(nodes.end_move, KEYS.stream, source, target)
    await asyncio.gather(*calls)
    with target.admin() as admin:
        state = look_at_gate(admin, KEYS)
        assert (state.gone, state.problems) == (0, [])
        gate.admin = admin
        order = await gate.drain(10)
        assert sorted(order) == [1, *range(3, 21)]
        await gate.settle(held[2:])
        assert_empty(admin, KEYS)
