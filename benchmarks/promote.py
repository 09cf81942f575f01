"""Promoting and running delayed jobs that are all due when the worker starts."""

from typing import Final

from benchmarks.bench import Bench, ChasquiMQ
from benchmarks.figures import Figure, run_for_medians
from benchmarks.measuring import JobCounter
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import NewJob
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker

JOBS: Final = 60_000
THEIR_JOBS: Final = 12_000
ROUNDS: Final = 3
FLOOR: Final = 4.0


async def run(bench: Bench) -> list[Figure]:
    """Jobs per second, from the first that runs to the last."""
    contenders = bench.contenders(lambda: _ours(bench), lambda theirs: _theirs(bench, theirs))
    rates = await run_for_medians(contenders, ROUNDS)
    return [bench.compare("promote and run due jobs", rates, floor=FLOOR)]


async def _ours(bench: Bench) -> float:
    await _fill(bench, JOBS)
    counter = JobCounter(JOBS)
    worker = Worker(QUEUE, counter.handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with worker:
        return await counter.wait()


async def _theirs(bench: Bench, chasquimq: ChasquiMQ) -> float:
    await _fill(bench, THEIR_JOBS)
    options = {"events_enabled": False, "store_results": False}
    per_s: float = await chasquimq.run("consume", jobs=THEIR_JOBS, result=None, options=options)
    return per_s


async def _fill(bench: Bench, jobs: int) -> None:
    """Add this many delayed jobs, and make all of them due."""
    await bench.fill(jobs, NewJob(NAME, DATA, delay="1h"))
    delayed = QueueKeys(QUEUE).delayed
    with bench.server.admin() as admin:
        admin.zunionstore(delayed, {delayed: 0})  # multiplies every score by 0: due since 1970
