"""Flow control while workers die: no limit is exceeded, nothing is lost, and nothing is left over.

`gate_check.lua` looks at all of the gate at once, again and again; what handlers count themselves
must agree with it.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tampu import Every
from tests.conftest import Start
from tests.faults.flow_process import send_twice
from tests.faults.flow_run import FLOW_S, REST_LIMIT_S, flow_run
from tests.interop.chasqui import Chasqui
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.mark.timeout(240 + FLOW_S)
async def test_workers_that_are_killed_leave_no_slot_and_exceed_no_limit(
    running: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.server.lane.Lane.send", send_twice(Random(3), 0.1))  # noqa: S311
    async with flow_run(running, tmp_path, 7) as run:
        await run.queue.schedules.add("n0", Every(0.1), {"t": 0}, key="tick")
        await run.go(FLOW_S)
        await run.queue.schedules.remove("tick")
        await run.rest()
        await run.workers.stop()
    assert len(run.workers.killed) > 1
    assert run.looks > 10


@pytest.fixture(scope="module")
def peer(_shared_server: RunningServer) -> Iterator[Chasqui]:
    with Chasqui(_shared_server.url) as started:
        yield started


@pytest.mark.chasquimq
@pytest.mark.timeout(240 + FLOW_S)
async def test_beside_a_worker_of_chasquimq_slots_come_back_too(
    running: RunningServer, tmp_path: Path, peer: Chasqui
) -> None:
    options = {
        "concurrency": 10,
        "claim_min_idle_ms": 30_000,
        "run_scheduler": False,
        "delayed_enabled": False,
    }
    async with flow_run(running, tmp_path, 8) as run:
        run.has_peers = True
        await run.step()
        await peer.ask(
            "start_worker", queue=run.queue.name, worker="c-1", handler={}, options=options
        )
        await run.go(FLOW_S)
        await run.workers.all_started()
        await wait_until(run.is_over, within=REST_LIMIT_S, sentence="all jobs have ended")
        calls = {call["id"] for call in await peer.calls("c-1")}
        await peer.ask("stop_worker", worker="c-1")
        await run.rest(calls)
        await run.workers.stop()
        await peer.ask("leave")
    assert calls


@pytest.mark.timeout(240 + FLOW_S)
async def test_a_server_that_is_killed_and_started_again_forgets_no_slot(
    running: RunningServer, start: Start, tmp_path: Path
) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "no")
    async with flow_run(server, tmp_path, 9, outside=running) as run:
        for _ in range(2):
            await run.go(FLOW_S / 4, kills=False)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
        await run.go(FLOW_S / 4)
        await run.rest()
        await run.workers.stop()
