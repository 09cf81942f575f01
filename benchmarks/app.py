"""Tasks with typed arguments, run by an `AppWorker`; against the bare engine on the same jobs."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figure import Figure, Measured, in_turns
from benchmarks.sample import CONCURRENCY, NAME, QUEUE
from benchmarks.tally import Tally
from tampu import App, AppWorker, NewJob, Worker

JOBS: Final = 100_000
ROUNDS: Final = 3
FLOOR: Final = 0.6
_BARE: Final = "the bare engine"
_APP: Final = "app"


@dataclass(frozen=True, slots=True)
class Item:
    """What is ordered."""

    article: str
    pieces: int


_ORDER: Final = {
    "to": "augusta.byron@example.com",
    "number": 1815,
    "at": datetime(2026, 11, 15, tzinfo=UTC),
    "item": Item("engine", 2),
}


async def run(bench: Bench) -> list[Measured]:
    """A text, a number, a datetime and a dataclass a job."""
    rates = await in_turns({_APP: lambda: _app(bench), _BARE: lambda: _bare(bench)}, ROUNDS)
    what = "consume through App, four typed arguments, events off"
    return [Figure(what, rates[_APP], _BARE, rates[_BARE], FLOOR)]


async def _app(bench: Bench) -> float:
    await bench.fill(JOBS, NewJob(NAME, _ORDER))
    tally = Tally(JOBS)
    app = App(bench.url, default_queue=QUEUE)

    @app.task(name=NAME)
    async def order(to: str, number: int, *, at: datetime, item: Item) -> None:
        del to, number, at, item
        tally.count()

    async with AppWorker(app, concurrency=CONCURRENCY, events=False):
        return await tally.done()


async def _bare(bench: Bench) -> float:
    await bench.fill(JOBS, NewJob(NAME, _ORDER))
    tally = Tally(JOBS)
    async with Worker(QUEUE, tally.handle, bench.url, concurrency=CONCURRENCY, events=False):
        return await tally.done()
