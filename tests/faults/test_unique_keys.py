"""Unique keys while workers are killed: none is left behind, and no job is lost."""

import asyncio
import os
from random import Random

import pytest

from tampu import NewJob, Queue, Unique
from tests.faults.conftest import QUEUE, StartWorker
from tests.faults.jobs import is_at_rest
from tests.faults.ledger import Kind, Ledger, check
from tests.servers import RunningServer
from tests.waiting import wait_until

KILLS = int(os.environ.get("TAMPU_FAULTS_KILLS", "3"))
JOBS_A_KILL = 1000
UNTIL = (Unique(until="done"), Unique(until="started"))


def keys_left(running: RunningServer) -> int:
    with running.admin() as admin:
        return len(admin.keys(f"{{chasqui:{QUEUE}}}:tampu:unique:*"))


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_killed_workers_leave_no_unique_key_behind(
    running: RunningServer, queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    count, rng = KILLS * JOBS_A_KILL, Random(7)  # noqa: S311 - who is killed
    workers = list(await asyncio.gather(*(start_worker(concurrency=25) for _ in range(3))))
    for number in range(count):
        ledger.sent(number)
    wanted = [NewJob("short", n, unique=UNTIL[n % 2]) for n in range(count)]
    assert not any(job.duplicate for job in await queue.add_many(wanted))
    for number in range(count):
        ledger.added(number)
    for kill in range(1, KILLS + 1):
        goal = count * kill // (KILLS + 1)
        await wait_until(
            lambda goal=goal: ledger.count(Kind.DONE) >= goal,  # type: ignore[misc]
            within=60,
            sentence="some more jobs are done",
        )
        await workers.pop(rng.randrange(len(workers))).kill()
        workers.append(await start_worker(concurrency=25))
    await wait_until(lambda: is_at_rest(queue), within=60, sentence="all are settled")
    assert keys_left(running) == 0
    check(ledger.lines()).assert_sound()
    for process in workers:
        await process.stop()
