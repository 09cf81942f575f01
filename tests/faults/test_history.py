"""The history of a queue whose workers are killed: its counts are those of the ledger."""

import asyncio
import os
from random import Random

import pytest

from tampu import Queue
from tampu.admin.history import read_totals
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.faults.conftest import QUEUE, StartWorker
from tests.faults.jobs import add_all, is_at_rest
from tests.faults.ledger import Kind, Ledger, check
from tests.faults.worker_process import gate_of
from tests.servers import RunningServer
from tests.waiting import wait_until

KILLS = int(os.environ.get("TAMPU_FAULTS_KILLS", "4"))  # `make faults` kills more often
JOBS_A_KILL = 1500
OTHERS = 100


@pytest.mark.timeout(90 + 10 * KILLS)
async def test_counts_are_exact_although_workers_are_killed(
    running: RunningServer, queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    jobs, rng = KILLS * JOBS_A_KILL, Random(7)  # noqa: S311 - who is killed
    gate_of(ledger, 1).touch()
    gate_of(ledger, 2).touch()
    workers = list(await asyncio.gather(*(start_worker(concurrency=25) for _ in range(3))))
    await add_all(queue, ledger, "short", range(jobs))
    await add_all(queue, ledger, "bury", range(jobs, jobs + OTHERS))
    await add_all(queue, ledger, "retry", range(jobs + OTHERS, jobs + 2 * OTHERS))
    for number in range(1, KILLS + 1):
        goal = jobs * number // (KILLS + 1)
        await wait_until(
            lambda goal=goal: ledger.count(Kind.DONE) >= goal,  # type: ignore[misc]
            within=60,
            sentence="some more jobs are done",
        )
        killed = workers.pop(rng.randrange(len(workers)))
        await killed.kill()
        workers.append(await start_worker(concurrency=25))
    await wait_until(lambda: is_at_rest(queue), within=60, sentence="all are settled")
    await asyncio.gather(*(process.stop() for process in workers))
    async with await connect(running.url) as server:
        async with await Lane.open(server, QueueKeys(QUEUE).stream) as lane:
            totals = await read_totals(lane, QueueKeys(QUEUE))
    dead = [letter.data for letter in await queue.dead.peek(OTHERS)]
    check(ledger.lines(), dead).assert_sound()
    short, bury, retry = (totals.tasks[name] for name in ("short", "bury", "retry"))
    assert totals.unknown == 0
    assert (short.done, short.failed, short.dead) == (jobs, 0, 0)
    assert (bury.done, bury.failed, bury.dead, bury.retried) == (0, OTHERS, OTHERS, 0)
    assert (retry.done, retry.dead, retry.failed) == (OTHERS, 0, retry.retried)
    assert retry.failed + bury.failed <= ledger.count(Kind.FAILED)
