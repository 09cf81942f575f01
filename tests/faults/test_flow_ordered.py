"""Ordered jobs while workers are killed: those of a key succeed in the order of adding."""

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from tampu import NewJob
from tests.faults.flow_process import DONE, send_twice
from tests.faults.flow_run import flow_run
from tests.servers import RunningServer
from tests.waiting import wait_until

JOBS = int(os.environ.get("TAMPU_FAULTS_ORDERED", "800"))  # `make faults`: more
EACH = 20 if JOBS < 10_000 else 100
KILLS = 4 if JOBS < 10_000 else 40
LIMIT_S = 60 + JOBS / 100


@pytest.mark.timeout(120 + 2 * LIMIT_S)
async def test_jobs_of_a_key_succeed_in_their_order_while_workers_are_killed(
    running: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some fail, are snoozed, or meet a rate limit; calls are sent twice."""
    monkeypatch.setattr("tampu.server.lane.Lane.send", send_twice(Random(4), 0.1))  # noqa: S311
    keys = [f"o{number}" for number in range(JOBS // EACH)]
    async with flow_run(running, tmp_path, 15) as run:
        for number in range(1, EACH + 1):
            data = {"seq": number}
            jobs = [
                NewJob("ordered", data | {"counts": {f">{key}": 1}}, key=key, ordered=True)
                for key in keys
            ]
            await run.add(jobs)
        run.jobs.of_key.update(dict.fromkeys(keys, EACH))
        for kill in range(KILLS):
            goal = JOBS * (kill + 1) // (KILLS + 2)
            await wait_until(
                lambda goal=goal: run.outside.scard(DONE) >= goal,  # type: ignore[misc]
                within=LIMIT_S,
                sentence="some more are done",
            )
            run.look()
            await wait_until(
                lambda: run.workers.kill_one(run.outside), within=LIMIT_S, sentence="one works"
            )
            run.workers.start()
        await wait_until(
            lambda: run.outside.scard(DONE) == JOBS, within=LIMIT_S, sentence="all are done"
        )
        await run.rest()
        assert all(run.order_of(key) == [*range(1, EACH + 1)] for key in keys)
        await asyncio.wait_for(run.workers.stop(), 120)
