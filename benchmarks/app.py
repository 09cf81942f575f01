"""Tasks with typed arguments, run by an `AppWorker`, against a plain `Worker` on the same jobs."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, run_for_medians
from benchmarks.measuring import JobCounter
from benchmarks.workload import CONCURRENCY, NAME, QUEUE
from tampu import App, AppWorker, NewJob, Worker

JOBS: Final = 100_000
ROUNDS: Final = 3
FLOOR: Final = 0.6
_BARE: Final = "the bare engine"
_APP: Final = "app"


@dataclass(frozen=True, slots=True)
class Item:
    """An ordered item."""

    article: str
    pieces: int


_ORDER: Final = {
    "to": "augusta.byron@example.com",
    "number": 1815,
    "at": datetime(2026, 11, 15, tzinfo=UTC),
    "item": Item("engine", 2),
}


async def run(bench: Bench) -> list[Figure]:
    """Each job has a text, a number, a datetime and a dataclass."""
    contenders = {_APP: lambda: _app(bench), _BARE: lambda: _bare(bench)}
    rates = await run_for_medians(contenders, ROUNDS)
    what = "consume through App, four typed arguments, events off"
    return [Comparison(what, rates[_APP], _BARE, rates[_BARE], FLOOR)]


async def _app(bench: Bench) -> float:
    await bench.fill(JOBS, NewJob(NAME, _ORDER))
    counter = JobCounter(JOBS)
    app = App(bench.url, default_queue=QUEUE)

    @app.task(name=NAME)
    async def order(to: str, number: int, *, at: datetime, item: Item) -> None:
        del to, number, at, item
        counter.count()

    async with AppWorker(app, concurrency=CONCURRENCY, events=False):
        return await counter.wait()


async def _bare(bench: Bench) -> float:
    await bench.fill(JOBS, NewJob(NAME, _ORDER))
    counter = JobCounter(JOBS)
    async with Worker(QUEUE, counter.handle, bench.url, concurrency=CONCURRENCY, events=False):
        return await counter.wait()
