"""The scheduler in a process: what many tasks cost at rest, how late they run, how many can."""

import asyncio
from statistics import median
from time import perf_counter, process_time, time
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.figure import ROUNDS, Figure, Measured, Unit, Value
from benchmarks.latency import percentile
from tampu import Every
from tampu.scheduler import MemoryStore, ScheduledTask, Scheduler, TaskRun

TASKS: Final = 100_000
REST_S: Final = 5.0
EVERY_S: Final = 20.0
LATE_MS: Final = 5.0
BUSY_TASKS: Final = 6_000
BUSY_EVERY: Final = "100ms"  # 60 000 runs a second, a fifth more than is asked for
BUSY_S: Final = 2.0
ASKED_PER_S: Final = 50_000


async def run(bench: Bench) -> list[Measured]:
    """No server is asked: all states are kept in memory."""
    del bench
    rest = await _at_rest()
    late = await _lateness()
    busy = {
        "async": [await _busy(_nothing) for _ in range(ROUNDS)],
        "plain": [await _busy(_plain) for _ in range(ROUNDS)],
    }
    of_tasks = f"of {TASKS} tasks"
    of_each = f"lateness, {of_tasks} in {EVERY_S:g} s"
    return [
        Value(f"processor at rest, {of_tasks}", rest, Unit.PERCENT, limit=1.0),
        Value(f"{of_each}, p50", percentile(late, 50), Unit.MS),
        Value(f"{of_each}, p99", percentile(late, 99), Unit.MS),
        Value(f"{of_each}, the latest", max(late), Unit.MS, limit=LATE_MS),
        Value("later than that", 100 * sum(ms > LATE_MS for ms in late) / len(late), Unit.PERCENT),
        *[
            Figure(f"runs of {kind} functions", median(rates), "asked for", ASKED_PER_S, floor=1)
            for kind, rates in busy.items()
        ],
    ]


async def _nothing(run: TaskRun[Any]) -> None:
    pass


def _plain(run: TaskRun[Any]) -> None:
    pass


async def _at_rest() -> float:
    """Percent of a processor while nothing is due."""
    async with Scheduler(history=1) as scheduler:
        for number in range(TASKS):
            scheduler.add(ScheduledTask(f"task-{number}", Every("3650d"), _nothing))
        await _until_open(scheduler)
        began, used = perf_counter(), process_time()
        await asyncio.sleep(REST_S)
        return 100 * (process_time() - used) / (perf_counter() - began)


async def _lateness() -> list[float]:
    """How late each of many tasks ran, in ms; their instants are spread by their ids."""
    late: list[float] = []

    async def note(run: TaskRun[None]) -> None:
        late.append(1000 * time() - run.at_ms)

    async with Scheduler(history=1) as scheduler:
        for number in range(TASKS):
            scheduler.add(ScheduledTask(f"task-{number}", Every(EVERY_S), note, stagger=True))
        await _until_open(scheduler)
        await asyncio.sleep(EVERY_S / 2)  # what was due while they were added has run
        late.clear()
        await asyncio.sleep(EVERY_S)
    return late


async def _busy(function: Any) -> float:  # noqa: ANN401 - async or plain
    """Runs a second of those that are due."""
    store = MemoryStore()
    async with Scheduler(store=store, history=1) as scheduler:
        handles = [
            scheduler.add(
                ScheduledTask(f"task-{number}", Every(BUSY_EVERY), function, stagger=True)
            )
            for number in range(BUSY_TASKS)
        ]
        await _until_open(scheduler)
        before = sum(handle.report().state.ran for handle in handles)
        began = perf_counter()
        await asyncio.sleep(BUSY_S)
        ran = sum(handle.report().state.ran for handle in handles) - before
        return ran / (perf_counter() - began)


async def _until_open(scheduler: Scheduler) -> None:
    """Wait until the task that was added last has been armed."""
    last = scheduler.handles()[-1]
    while last.report().state.next_ms is None:  # noqa: ASYNC110 - there is nothing to wait for
        await asyncio.sleep(0.01)
