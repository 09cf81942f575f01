"""Jobs that fail once, are retried after a millisecond, and then succeed."""

import logging
from typing import Final

from benchmarks.bench import Bench, ChasquiMQ
from benchmarks.figures import Figure, run_for_medians
from benchmarks.measuring import JobCounter
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import Backoff, NewJob
from tampu.job import Job
from tampu.worker import Worker

JOBS: Final = 30_000
THEIR_JOBS: Final = 10_000
ROUNDS: Final = 3
FLOOR: Final = 8.0
# The backoff belongs to the job, because ChasquiMQ's worker has no such option in Python.
JOB: Final = NewJob(NAME, DATA, attempts=3, backoff=Backoff.fixed("1ms"))


async def run(bench: Bench) -> list[Figure]:
    """Jobs per second. Each job has one failed and one successful attempt."""
    # Writing the log of failed attempts would take longer than all the rest.
    logging.getLogger("tampu").setLevel(logging.ERROR)
    contenders = bench.contenders(lambda: _ours(bench), lambda theirs: _theirs(bench, theirs))
    rates = await run_for_medians(contenders, ROUNDS)
    return [bench.compare("fail once, retry after 1 ms", rates, floor=FLOOR)]


async def _ours(bench: Bench) -> float:
    await bench.fill(JOBS, JOB)
    counter = JobCounter(JOBS)

    async def handle(job: Job[object]) -> None:
        counter.start()
        if job.attempt == 1:
            raise RuntimeError("the first attempt")
        counter.count()

    worker = Worker(QUEUE, handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with worker:
        return await counter.wait()


async def _theirs(bench: Bench, chasquimq: ChasquiMQ) -> float:
    await bench.fill(THEIR_JOBS, JOB)
    per_s: float = await chasquimq.run("retry", jobs=THEIR_JOBS)
    return per_s
