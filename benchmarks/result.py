"""The time from `add` to the result, with an idle worker."""

from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.bench import OURS, THEIRS, Bench, ChasquiMQ
from benchmarks.figures import Comparison, Figure, Unit, Value, run_for_medians
from benchmarks.measuring import take_samples_ms
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import Queue
from tampu.job import Job
from tampu.worker import Worker

SAMPLES: Final = 400
THEIR_SAMPLES: Final = 20  # each takes a tenth of a second, because it polls
ROUNDS: Final = 3
LIMIT_MS: Final = 2.0


async def run(bench: Bench) -> list[Figure]:
    """p50 against a limit, and against ChasquiMQ's."""
    contenders = bench.contenders(lambda: _ours(bench), lambda theirs: _theirs(bench, theirs))
    medians = await run_for_medians(contenders, ROUNDS)
    what = "add to result, p50"
    figures: list[Figure] = [Value(what, medians[OURS], Unit.MS, LIMIT_MS)]
    if THEIRS in medians:
        figures.append(Comparison(what, medians[OURS], THEIRS, medians[THEIRS], unit=Unit.MS))
    return figures


async def _ours(bench: Bench) -> float:
    bench.empty()

    async def handle(job: Job[object]) -> object:
        return job.data

    async def time_one() -> float:
        began = perf_counter()
        job = await queue.add(NAME, DATA)
        await job.result(timeout=10)
        return perf_counter() - began

    worker = Worker(
        QUEUE, handle, bench.url, concurrency=CONCURRENCY, events=False, store_results=True
    )
    async with Queue(QUEUE, bench.url) as queue, worker:
        return median(await take_samples_ms(time_one, SAMPLES))


async def _theirs(bench: Bench, chasquimq: ChasquiMQ) -> float:
    bench.empty()
    samples: list[float] = await chasquimq.run("result", samples=THEIR_SAMPLES)
    return median(samples)
