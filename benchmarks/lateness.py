"""How late delayed jobs run: the time from the due instant to the handler."""

from statistics import median
from typing import Final

from benchmarks.bench import OURS, THEIRS, Bench, ChasquiMQ
from benchmarks.figures import Comparison, Figure, Unit, Value, run_rounds
from benchmarks.measuring import LatenessRecorder, due_times, percentile
from benchmarks.workload import CONCURRENCY, NAME, QUEUE
from tampu import NewJob, Queue
from tampu.util.clock import instant
from tampu.worker import Worker

JOBS: Final = 400
ROUNDS: Final = 3
LIMITS_MS: Final = {50: 3.0, 99: 15.0}


async def run(bench: Bench) -> list[Figure]:
    """p50 and p99, against limits and against ChasquiMQ's."""
    contenders = bench.contenders(lambda: _ours(bench), lambda theirs: _theirs(bench, theirs))
    rounds = await run_rounds(contenders, ROUNDS)
    figures: list[Figure] = []
    for percent, limit_ms in LIMITS_MS.items():
        late = {
            name: median(percentile(samples, percent) for samples in taken)
            for name, taken in rounds.items()
        }
        what = f"a delayed job's lateness, p{percent}"
        figures.append(Value(what, late[OURS], Unit.MS, limit_ms))
        if THEIRS in late:
            figures.append(Comparison(what, late[OURS], THEIRS, late[THEIRS], unit=Unit.MS))
    return figures


async def _ours(bench: Bench) -> list[float]:
    bench.empty()
    recorder = LatenessRecorder(JOBS)
    worker = Worker(QUEUE, recorder.handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with Queue(QUEUE, bench.url) as queue, worker:
        due = due_times(JOBS)
        await queue.add_many([NewJob(NAME, at, at=instant(round(1000 * at))) for at in due])
        return await recorder.wait()


async def _theirs(bench: Bench, chasquimq: ChasquiMQ) -> list[float]:
    bench.empty()
    samples: list[float] = await chasquimq.run("lateness", jobs=JOBS)
    return samples
