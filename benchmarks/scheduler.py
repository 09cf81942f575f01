"""The in-process scheduler: its cost when idle, how late tasks run, how many run per second."""

import asyncio
from statistics import median
from time import perf_counter, process_time, time
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.figures import ROUNDS, Comparison, Figure, Unit, Value
from benchmarks.measuring import percentile
from tampu import Every
from tampu.scheduler import MemoryStore, ScheduledTask, Scheduler, TaskRun

TASKS: Final = 100_000
REST_S: Final = 5.0
EVERY_S: Final = 20.0
LATE_MS: Final = 5.0
BUSY_TASKS: Final = 6_000
BUSY_EVERY: Final = "100ms"  # 60 000 runs per second, a fifth more than required
BUSY_S: Final = 2.0
REQUIRED_PER_S: Final = 50_000


async def run(bench: Bench) -> list[Figure]:
    """All states are kept in memory; no server is used."""
    del bench
    rest = await _at_rest()
    late = await _lateness()
    busy = {
        "async": [await _busy(_do_nothing) for _ in range(ROUNDS)],
        "plain": [await _busy(_do_nothing_sync) for _ in range(ROUNDS)],
    }
    of_tasks = f"of {TASKS} tasks"
    of_each = f"lateness, {of_tasks} in {EVERY_S:g} s"
    return [
        Value(f"processor at rest, {of_tasks}", rest, Unit.PERCENT, limit=1.0),
        Value(f"{of_each}, p50", percentile(late, 50), Unit.MS),
        Value(f"{of_each}, p99", percentile(late, 99), Unit.MS),
        Value(f"{of_each}, the latest", max(late), Unit.MS, limit=LATE_MS),
        Value(f"later than {LATE_MS:g} ms", _share_above(LATE_MS, late), Unit.PERCENT),
        *[
            Comparison(
                f"runs of {kind} functions", median(rates), "required", REQUIRED_PER_S, floor=1
            )
            for kind, rates in busy.items()
        ],
    ]


def _share_above(limit_ms: float, late: list[float]) -> float:
    return 100 * sum(ms > limit_ms for ms in late) / len(late)


async def _do_nothing(run: TaskRun[Any]) -> None:
    pass


def _do_nothing_sync(run: TaskRun[Any]) -> None:
    pass


async def _at_rest() -> float:
    """Processor usage in percent while nothing is due."""
    async with Scheduler(history=1) as scheduler:
        for number in range(TASKS):
            scheduler.add(ScheduledTask(f"task-{number}", Every("3650d"), _do_nothing))
        await _wait_until_armed(scheduler)
        began, used = perf_counter(), process_time()
        await asyncio.sleep(REST_S)
        return 100 * (process_time() - used) / (perf_counter() - began)


async def _lateness() -> list[float]:
    """How late each task ran, in ms. The ids spread the instants."""
    late: list[float] = []

    async def record(run: TaskRun[None]) -> None:
        late.append(1000 * time() - run.at_ms)

    async with Scheduler(history=1) as scheduler:
        for number in range(TASKS):
            scheduler.add(ScheduledTask(f"task-{number}", Every(EVERY_S), record, stagger=True))
        await _wait_until_armed(scheduler)
        await asyncio.sleep(EVERY_S / 2)  # until everything that became due meanwhile has run
        late.clear()
        await asyncio.sleep(EVERY_S)
    return late


async def _busy(function: Any) -> float:  # noqa: ANN401 - async or plain
    """Runs per second."""
    store = MemoryStore()
    async with Scheduler(store=store, history=1) as scheduler:
        handles = [
            scheduler.add(
                ScheduledTask(f"task-{number}", Every(BUSY_EVERY), function, stagger=True)
            )
            for number in range(BUSY_TASKS)
        ]
        await _wait_until_armed(scheduler)
        before = sum(handle.report().state.ran for handle in handles)
        began = perf_counter()
        await asyncio.sleep(BUSY_S)
        ran = sum(handle.report().state.ran for handle in handles) - before
        return ran / (perf_counter() - began)


async def _wait_until_armed(scheduler: Scheduler) -> None:
    """Wait until the last task has its next instant."""
    last = scheduler.handles()[-1]
    while last.report().state.next_ms is None:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
