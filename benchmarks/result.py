"""From `add` to the result in the caller's hands, with a worker that has nothing else to do."""

from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.bench import OURS, Bench
from benchmarks.figure import Figure, Measured, Unit, Value, in_turns
from benchmarks.latency import milliseconds
from benchmarks.peer import NAME as PEER
from benchmarks.peer import Peer
from benchmarks.sample import CONCURRENCY, DATA, NAME, QUEUE
from tampu import Queue
from tampu.job import Job
from tampu.worker import Worker

SAMPLES: Final = 400
PEERS_SAMPLES: Final = 20  # it looks every tenth of a second
ROUNDS: Final = 3
LIMIT_MS: Final = 2.0


async def run(bench: Bench) -> list[Measured]:
    """The median against a limit, and against the rival's."""
    ways = bench.ways(lambda: _ours(bench), lambda peer: _theirs(bench, peer))
    medians = await in_turns(ways, ROUNDS)
    what = "add to result, p50"
    lines: list[Measured] = [Value(what, medians[OURS], Unit.MS, LIMIT_MS)]
    if PEER in medians:
        lines.append(Figure(what, medians[OURS], PEER, medians[PEER], unit=Unit.MS))
    return lines


async def _ours(bench: Bench) -> float:
    bench.empty()

    async def handle(job: Job[object]) -> object:
        return job.data

    async def once() -> float:
        began = perf_counter()
        job = await queue.add(NAME, DATA)
        await job.result(timeout=10)
        return perf_counter() - began

    worker = Worker(
        QUEUE, handle, bench.url, concurrency=CONCURRENCY, events=False, store_results=True
    )
    async with Queue(QUEUE, bench.url) as queue, worker:
        return median(await milliseconds(once, SAMPLES))


async def _theirs(bench: Bench, peer: Peer) -> float:
    bench.empty()
    samples: list[float] = await peer.run("result", samples=PEERS_SAMPLES)
    return median(samples)
