"""Flow control on servers that are replaced, and in a cluster whose slots move."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tampu import Queue
from tampu.limits import Concurrency
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.faults.conftest import QUEUE
from tests.faults.flow_run import FLOW_S, flow_run
from tests.gates import ManualGate, assert_empty, look_at_gate
from tests.servers import RunningServer
from tests.topology import Cluster, cluster, watched
from tests.waiting import wait_until

KEYS = QueueKeys(QUEUE)


@pytest.mark.timeout(240 + FLOW_S)
async def test_after_a_failover_no_slot_is_left(
    binary: Path, running: RunningServer, tmp_path: Path
) -> None:
    with watched(binary, tmp_path) as group, group.replica.admin() as admin:
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
    calls = [
        asyncio.create_task(gate.settle(held[:1])),
        asyncio.create_task(gate.want(11)),
        asyncio.create_task(gate.queue.add("j", 20, key="new", priority=9)),
        asyncio.create_task(gate.run_again(held[1])),
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
