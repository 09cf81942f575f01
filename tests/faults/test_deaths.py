"""Workers that die: what they held is run by others, once more and not oftener."""

import asyncio
import os
from random import Random

import pytest

from tampu import BuryReason, Queue
from tampu.worker import Worker
from tests.faults.conftest import QUEUE, StartWorker
from tests.faults.jobs import add_all, is_at_rest
from tests.faults.ledger import Kind, Ledger, check
from tests.faults.worker_process import Handlers, WorkerProcess
from tests.servers import RunningServer
from tests.waiting import wait_until

DEATHS = ("exit", "kill", "segfault")
KILLS = int(os.environ.get("TAMPU_FAULTS_KILLS", "3"))  # `make faults` kills more often
JOBS_A_KILL = 2000


@pytest.mark.every_server
async def test_jobs_of_a_killed_worker_are_done_by_another_within_seconds(
    running: RunningServer, queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    killed = await start_worker(concurrency=100)
    await add_all(queue, ledger, "hang", range(100))
    await wait_until(
        lambda: ledger.count(Kind.STARTED) == 100, within=60, sentence="100 jobs are running"
    )
    handlers = Handlers(ledger, lambda: other.id)
    async with Worker(QUEUE, handlers.by_name(), running.url) as other:
        await killed.kill()
        await wait_until(  # mostly 4 s; a mark that only runs out takes 30
            lambda: ledger.count(Kind.DONE) == 100, within=60, sentence="another has done them"
        )
        await wait_until(lambda: is_at_rest(queue), within=60, sentence="all are settled")
    report = check(ledger.lines())
    report.assert_sound()
    assert set(report.runs.values()) == {2}


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_workers_that_are_killed_one_after_another_lose_nothing(
    queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    jobs, rng = KILLS * JOBS_A_KILL, Random(7)  # noqa: S311 - who is killed
    workers = list(await asyncio.gather(*(start_worker(concurrency=25) for _ in range(3))))
    await add_all(queue, ledger, "short", range(jobs))
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
    report = check(ledger.lines())
    report.assert_sound()
    assert len(report.runs) == jobs
    assert len(report.repeated) <= KILLS * 100
    for process in workers:
        await process.stop()


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_workers_that_are_killed_while_batches_run_lose_nothing(
    queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    jobs, rng = KILLS * JOBS_A_KILL, Random(11)  # noqa: S311 - who is killed
    size, slots = 20, 5
    workers = list(
        await asyncio.gather(*(start_worker(concurrency=slots, batch=size) for _ in range(3)))
    )
    await add_all(queue, ledger, "batch", range(jobs))
    for number in range(1, KILLS + 1):
        goal = jobs * number // (KILLS + 1)
        await wait_until(
            lambda goal=goal: ledger.count(Kind.DONE) >= goal,  # type: ignore[misc]
            within=30,
            sentence="some more jobs are done",
        )
        killed = workers.pop(rng.randrange(len(workers)))
        await killed.kill()
        workers.append(await start_worker(concurrency=slots, batch=size))
    await wait_until(lambda: is_at_rest(queue), within=30, sentence="all are settled")
    report = check(ledger.lines())
    report.assert_sound()
    assert len(report.runs) == jobs
    assert len(report.repeated) <= KILLS * 2 * size * slots
    for process in workers:
        await process.stop()


@pytest.mark.parametrize("death", DEATHS)
async def test_a_job_that_kills_its_worker_each_time_is_buried(
    queue: Queue, ledger: Ledger, start_worker: StartWorker, death: str
) -> None:
    ledger.sent(0)
    await queue.add(death, 0, attempts=2)
    ledger.added(0)
    await add_all(queue, ledger, "short", range(1, 201))

    async def keep_one_alive(process: WorkerProcess) -> None:
        while True:
            await process.gone()
            process = await start_worker(concurrency=1, lease="1s")

    async with asyncio.TaskGroup() as watch:
        watcher = watch.create_task(keep_one_alive(await start_worker(concurrency=1, lease="1s")))
        await wait_until(
            lambda: is_at_rest(queue), within=60, sentence="the death is buried, the others done"
        )
        watcher.cancel()
    (letter,) = await queue.dead.peek()
    assert (letter.data, letter.reason, letter.attempt) == (0, BuryReason.CRASHED, 2)
    report = check(ledger.lines(), [letter.data])
    report.assert_sound()
    assert report.runs["0"] == 2
    assert ledger.count(Kind.FAULT) == 2


async def test_a_worker_that_acknowledges_without_running_is_found_out(
    queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    worker = await start_worker(skip_every=10)
    await add_all(queue, ledger, "short", range(100))
    await wait_until(lambda: is_at_rest(queue), within=60, sentence="all are settled")
    await worker.stop()
    report = check(ledger.lines())
    assert report.lost == {str(tag) for tag in range(0, 100, 10)}
    with pytest.raises(AssertionError, match="10 lost"):
        report.assert_sound()
