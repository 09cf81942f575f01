"""Jobs that fail once, wait a millisecond and succeed: until the last has succeeded."""

import logging
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figure import Measured, in_turns
from benchmarks.peer import Peer
from benchmarks.sample import CONCURRENCY, DATA, NAME, QUEUE
from benchmarks.tally import Tally
from tampu import Backoff, NewJob
from tampu.job import Job
from tampu.worker import Worker

JOBS: Final = 30_000
PEERS_JOBS: Final = 10_000
ROUNDS: Final = 3
FLOOR: Final = 8.0
# The job carries its own backoff: the rival's worker takes none from Python.
JOB: Final = NewJob(NAME, DATA, attempts=3, backoff=Backoff.fixed("1ms"))


async def run(bench: Bench) -> list[Measured]:
    """Jobs a second, each with one failed attempt and one that succeeds."""
    # The log of failed attempts is not what is measured: writing tracebacks takes longer than all
    # the rest, here as with any queue.
    logging.getLogger("tampu").setLevel(logging.ERROR)
    ways = bench.ways(lambda: _ours(bench), lambda peer: _theirs(bench, peer))
    rates = await in_turns(ways, ROUNDS)
    return [bench.compared("fail once, retry after 1 ms", rates, floor=FLOOR)]


async def _ours(bench: Bench) -> float:
    await bench.fill(JOBS, JOB)
    tally = Tally(JOBS)

    async def handle(job: Job[object]) -> None:
        tally.start()
        if job.attempt == 1:
            raise RuntimeError("the first attempt")
        tally.count()

    worker = Worker(QUEUE, handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with worker:
        return await tally.done()


async def _theirs(bench: Bench, peer: Peer) -> float:
    await bench.fill(PEERS_JOBS, JOB)
    per_s: float = await peer.run("retry", jobs=PEERS_JOBS)
    return per_s
