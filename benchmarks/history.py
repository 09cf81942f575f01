"""What the history of a queue costs a worker: running jobs with it and without it, in turns."""

from statistics import median
from time import process_time
from typing import Final, NamedTuple

from benchmarks.bench import Bench
from benchmarks.consume import MODES, Mode
from benchmarks.figures import Comparison, Figure
from benchmarks.measuring import JobCounter
from benchmarks.workload import CONCURRENCY, QUEUE
from tampu.worker import Worker

JOBS: Final = 200_000
ROUNDS: Final = 7
FLOOR: Final = 0.97


class _Run(NamedTuple):
    per_s: float
    per_cpu_s: float  # jobs for each second of the worker's processor time


async def run(bench: Bench) -> list[Figure]:
    """Each mode of `consume` with history, against the same without."""
    return [figure for mode in MODES for figure in await _measure(bench, mode)]


async def _measure(bench: Bench, mode: Mode) -> list[Figure]:
    runs: dict[bool, list[_Run]] = {True: [], False: []}
    for number in range(ROUNDS):
        for history in (True, False) if number % 2 else (False, True):
            runs[history].append(await _consume(bench, mode, history=history))
    what, without = f"consume with history, {mode.what}", "without history"
    kept, plain = runs[True], runs[False]
    return [
        Comparison(
            what,
            median(each.per_s for each in kept),
            without,
            median(each.per_s for each in plain),
            FLOOR,
        ),
        Comparison(
            f"{what}, by processor time",
            median(each.per_cpu_s for each in kept),
            without,
            median(each.per_cpu_s for each in plain),
            FLOOR,
        ),
    ]


async def _consume(bench: Bench, mode: Mode, *, history: bool) -> _Run:
    await bench.fill(JOBS)
    counter = JobCounter(JOBS, mode.result)
    worker = Worker(
        QUEUE,
        counter.handle,
        bench.url,
        concurrency=CONCURRENCY,
        events=mode.events,
        store_results=mode.results,
        history=history,
    )
    began_s = process_time()
    async with worker:
        per_s = await counter.wait()
    return _Run(per_s, JOBS / (process_time() - began_s))
