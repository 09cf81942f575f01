"""How late delayed jobs come: from the instant that each was asked for to its handler."""

from statistics import median
from typing import Final

from benchmarks.bench import OURS, Bench
from benchmarks.figure import Figure, Measured, Unit, Value, rounds_of
from benchmarks.latency import Lateness, due_times, percentile
from benchmarks.peer import NAME as PEER
from benchmarks.peer import Peer
from benchmarks.sample import CONCURRENCY, NAME, QUEUE
from tampu import NewJob, Queue
from tampu.util.clock import instant
from tampu.worker import Worker

JOBS: Final = 400
ROUNDS: Final = 3
LIMITS_MS: Final = {50: 3.0, 99: 15.0}


async def run(bench: Bench) -> list[Measured]:
    """The median and the latest of a hundred, against limits and against the rival's."""
    ways = bench.ways(lambda: _ours(bench), lambda peer: _theirs(bench, peer))
    taken = await rounds_of(ways, ROUNDS)
    lines: list[Measured] = []
    for percent, limit_ms in LIMITS_MS.items():
        late = {
            name: median(percentile(samples, percent) for samples in rounds)
            for name, rounds in taken.items()
        }
        what = f"a delayed job's lateness, p{percent}"
        lines.append(Value(what, late[OURS], Unit.MS, limit_ms))
        if PEER in late:
            lines.append(Figure(what, late[OURS], PEER, late[PEER], unit=Unit.MS))
    return lines


async def _ours(bench: Bench) -> list[float]:
    bench.empty()
    lateness = Lateness(JOBS)
    worker = Worker(QUEUE, lateness.handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with Queue(QUEUE, bench.url) as queue, worker:
        due = due_times(JOBS)
        await queue.add_many([NewJob(NAME, at, at=instant(round(1000 * at))) for at in due])
        return await lateness.done()


async def _theirs(bench: Bench, peer: Peer) -> list[float]:
    bench.empty()
    samples: list[float] = await peer.run("lateness", jobs=JOBS)
    return samples
