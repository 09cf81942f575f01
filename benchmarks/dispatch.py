"""The time from `add` to the handler, with an idle worker."""

from statistics import median
from typing import Final

from benchmarks.bench import OURS, Bench, ChasquiMQ
from benchmarks.figures import Figure, Unit, Value, run_rounds
from benchmarks.measuring import DispatchTimer, percentile, take_samples_ms
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import Queue
from tampu.worker import Worker

SAMPLES: Final = 500
ROUNDS: Final = 3
P99_LIMIT_MS: Final = 2.0


async def run(bench: Bench) -> list[Figure]:
    """p50 against ChasquiMQ's, and p99 against a limit."""
    contenders = bench.contenders(lambda: _ours(bench), lambda theirs: _theirs(bench, theirs))
    rounds = await run_rounds(contenders, ROUNDS)
    p50, p99 = (_percentiles(rounds, percent) for percent in (50, 99))
    return [
        bench.compare("add to handler, p50", p50, floor=1.0, unit=Unit.MS),
        Value("add to handler, p99", p99[OURS], Unit.MS, P99_LIMIT_MS),
    ]


def _percentiles(rounds: dict[str, list[list[float]]], percent: int) -> dict[str, float]:
    """The median of a percentile over the rounds of each contender."""
    return {
        name: median(percentile(samples, percent) for samples in taken)
        for name, taken in rounds.items()
    }


async def _ours(bench: Bench) -> list[float]:
    bench.empty()
    timer = DispatchTimer()
    worker = Worker(QUEUE, timer.handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with Queue(QUEUE, bench.url) as queue, worker:
        return await take_samples_ms(lambda: timer.time_one(lambda: queue.add(NAME, DATA)), SAMPLES)


async def _theirs(bench: Bench, chasquimq: ChasquiMQ) -> list[float]:
    bench.empty()
    samples: list[float] = await chasquimq.run("dispatch", samples=SAMPLES)
    return samples
