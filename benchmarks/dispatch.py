"""From `add` to the handler, with a worker that has nothing else to do."""

from statistics import median
from typing import Final

from benchmarks.bench import OURS, Bench
from benchmarks.figure import Measured, Unit, Value, rounds_of
from benchmarks.latency import Arrivals, milliseconds, percentile
from benchmarks.peer import Peer
from benchmarks.sample import CONCURRENCY, DATA, NAME, QUEUE
from tampu import Queue
from tampu.worker import Worker

SAMPLES: Final = 500
ROUNDS: Final = 3
P99_LIMIT_MS: Final = 2.0


async def run(bench: Bench) -> list[Measured]:
    """The median against the rival's, and the slowest of a hundred against a limit."""
    ways = bench.ways(lambda: _ours(bench), lambda peer: _theirs(bench, peer))
    taken = await rounds_of(ways, ROUNDS)
    p50, p99 = (_of_rounds(taken, percent) for percent in (50, 99))
    return [
        bench.compared("add to handler, p50", p50, floor=1.0, unit=Unit.MS),
        Value("add to handler, p99", p99[OURS], Unit.MS, P99_LIMIT_MS),
    ]


def _of_rounds(taken: dict[str, list[list[float]]], percent: int) -> dict[str, float]:
    return {
        name: median(percentile(samples, percent) for samples in rounds)
        for name, rounds in taken.items()
    }


async def _ours(bench: Bench) -> list[float]:
    bench.empty()
    arrivals = Arrivals()
    worker = Worker(QUEUE, arrivals.handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with Queue(QUEUE, bench.url) as queue, worker:
        return await milliseconds(lambda: arrivals.once(lambda: queue.add(NAME, DATA)), SAMPLES)


async def _theirs(bench: Bench, peer: Peer) -> list[float]:
    bench.empty()
    samples: list[float] = await peer.run("dispatch", samples=SAMPLES)
    return samples
