"""Tasks with typed arguments, run by an `AppWorker`, against a plain `Worker` on the same jobs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, Unit, Value, run_for_medians
from benchmarks.measuring import JobCounter
from benchmarks.workload import CONCURRENCY, NAME, QUEUE
from tampu import App, AppWorker, NewJob, Worker

JOBS: Final = 100_000
ROUNDS: Final = 3
FLOOR: Final = 0.6
RESULTS_FLOOR: Final = 0.4
_BARE: Final = "the bare engine"


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


@dataclass(frozen=True, slots=True)
class _Mode:
    name: str
    kept: bool
    returned: int | None


_OFF: Final = _Mode("app, no results", kept=False, returned=7)
_SIGN: Final = _Mode("app, None", kept=True, returned=None)
_VALUE: Final = _Mode("app, a number", kept=True, returned=7)


async def run(bench: Bench) -> list[Figure]:
    """Each job has a text, a number, a datetime and a dataclass."""
    memory: dict[str, list[float]] = {}

    def measure(mode: _Mode) -> Callable[[], Awaitable[float]]:
        return lambda: _app(bench, mode, memory)

    modes = {mode.name: measure(mode) for mode in (_OFF, _SIGN, _VALUE)}
    rates = await run_for_medians({**modes, _BARE: lambda: _bare(bench)}, ROUNDS)
    off = rates[_OFF.name]
    what = "consume through App, four typed arguments, events off"
    figures: list[Figure] = [Comparison(what, off, _BARE, rates[_BARE], FLOOR)]
    for mode in (_SIGN, _VALUE):
        told = f"{what}, {'None' if mode is _SIGN else 'a number'} kept as result"
        figures.append(Comparison(told, rates[mode.name], _OFF.name, off, RESULTS_FLOOR))
    for mode in (_SIGN, _VALUE):
        told = f"server memory per kept result ({'None' if mode is _SIGN else 'a number'})"
        figures.append(Value(told, median(memory[mode.name]), Unit.BYTES))
    return figures


async def _app(bench: Bench, mode: _Mode, memory: dict[str, list[float]]) -> float:
    bench.empty()
    before = _used_bytes(bench)
    await bench.fill(JOBS, NewJob(NAME, _ORDER))
    counter = JobCounter(JOBS)
    app = App(bench.url, default_queue=QUEUE)

    @app.task(name=NAME)
    async def order(to: str, number: int, *, at: datetime, item: Item):  # type: ignore[no-untyped-def]  # noqa: ANN202
        del to, number, at, item
        counter.count()
        return mode.returned

    async with AppWorker(app, concurrency=CONCURRENCY, events=False, store_results=mode.kept):
        per_s = await counter.wait()
    memory.setdefault(mode.name, []).append((_used_bytes(bench) - before) / JOBS)
    bench.empty()
    return per_s


def _used_bytes(bench: Bench) -> int:
    with bench.server.admin() as admin:
        info: dict[str, Any] = admin.info("memory")
    return int(info["used_memory"])


async def _bare(bench: Bench) -> float:
    await bench.fill(JOBS, NewJob(NAME, _ORDER))
    counter = JobCounter(JOBS)
    async with Worker(QUEUE, counter.handle, bench.url, concurrency=CONCURRENCY, events=False):
        return await counter.wait()
