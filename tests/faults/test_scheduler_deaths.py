"""Schedulers that are killed or frozen: runs are repeated or lost, but never counted twice."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tampu.scheduler import CoordinatedStore, Scheduler, SqliteStore, TaskState
from tampu.timing import Every
from tampu.util.clock import now_ms
from tests.faults.scheduler_process import LEASE, Kind, Ledger, LedgerTask, Line, SchedulerProcess
from tests.schedulers import TASK, grid, instants_between, read_shared_state
from tests.servers import RunningServer
from tests.waiting import wait_until

KILLS = int(os.environ.get("TAMPU_FAULTS_KILLS", "3"))  # `make faults` kills more often
WAIT_S = 30.0
RULE = grid("20ms")
SLOW_RULE = grid("1s")
FILE_RULE = grid("50ms")

StartProcess = Callable[..., Coroutine[Any, Any, SchedulerProcess]]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger")
    yield made
    made.close()


@pytest.fixture
async def start(ledger: Ledger) -> AsyncIterator[StartProcess]:
    """A function that starts a process; all of them are killed after the test."""
    processes: list[SchedulerProcess] = []

    async def start_one(where: str, rule: Every = RULE, *, hangs: bool = False) -> SchedulerProcess:
        process = await SchedulerProcess.start(where, ledger, rule, hangs=hangs)
        processes.append(process)
        return process

    yield start_one
    for process in processes:
        with suppress(ProcessLookupError):
            process.thaw()
        process.kill()


async def wait_for_line(ledger: Ledger, kind: Kind, after: int = 0) -> Line:
    """Wait for the line of a kind that comes after `after` others."""
    await wait_until(
        lambda: len(ledger.lines(kind)) > after, within=WAIT_S, sentence=f"one more {kind.value}"
    )
    return ledger.lines(kind)[after]


async def wait_for_catch_up(ledger: Ledger) -> None:
    """Wait until everything that is due now has run."""
    due_ms = now_ms()
    await wait_until(
        lambda: any(line.at_ms > due_ms for line in ledger.lines(Kind.DONE)),
        within=WAIT_S,
        sentence="everything that was due has run",
    )


async def test_a_run_of_a_killed_scheduler_is_repeated_by_another(
    running: RunningServer, ledger: Ledger, start: StartProcess
) -> None:
    killed = await start(running.url, SLOW_RULE, hangs=True)
    first = await wait_for_line(ledger, Kind.STARTED)
    assert (first.owner, first.note) == (killed.owner, "first")
    killed.kill()
    ledger.gate.touch()
    successor = await start(running.url, SLOW_RULE)
    again = await wait_for_line(ledger, Kind.STARTED, 1)
    assert again == Line(Kind.STARTED, successor.owner, first.at_ms, "again")
    done = await wait_for_line(ledger, Kind.DONE)
    assert done.at_ms == first.at_ms
    await wait_for_line(ledger, Kind.ENDED)
    assert (await read_shared_state(running.url)).last_success_ms is not None


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_no_occurrence_is_lost_while_schedulers_are_killed_during_runs(
    running: RunningServer, ledger: Ledger, start: StartProcess
) -> None:
    processes = {process.owner: process for process in await _start_three(start, running.url)}
    for _ in range(KILLS):
        await wait_for_line(ledger, Kind.DONE, len(ledger.lines(Kind.DONE)) + 5)
        joining = asyncio.create_task(start(running.url))
        line = await wait_for_line(ledger, Kind.STARTED, len(ledger.lines(Kind.STARTED)))
        processes.pop(line.owner).kill()
        process = await joining
        processes[process.owner] = process
    await wait_for_catch_up(ledger)
    for process in processes.values():
        process.kill()
    done = {line.at_ms for line in ledger.lines(Kind.DONE)}
    started = ledger.lines(Kind.STARTED)
    first_ms, last_ms = min(done), max(done)
    assert sorted(done) == instants_between(RULE, first_ms, last_ms)
    again = Counter(line.at_ms for line in started if line.note == "again")
    runs = Counter(line.at_ms for line in started)
    for at_ms, count in runs.items():
        assert count - again[at_ms] <= 1, "every run after the first knows that it is repeated"
    assert 1 <= len(again) <= 2 * KILLS + 1


async def test_the_result_of_a_frozen_run_does_not_count(
    running: RunningServer, ledger: Ledger, start: StartProcess
) -> None:
    frozen = await start(running.url, SLOW_RULE, hangs=True)
    first = await wait_for_line(ledger, Kind.STARTED)
    frozen.freeze()
    ledger.gate.touch()
    successor = LedgerTask(ledger, "successor", hangs=False)
    async with Scheduler(
        store=CoordinatedStore(running.url, **LEASE), observers=[successor]
    ) as scheduler:
        handle = scheduler.add(successor.task(SLOW_RULE))
        ended = await wait_for_line(ledger, Kind.ENDED)
        assert ended == Line(Kind.ENDED, "successor", first.at_ms, "SUCCESS")
        assert await handle.pause()  # from here on, nothing is counted
        before = await read_shared_state(running.url)
        frozen.thaw()
        await wait_until(
            lambda: frozen.owner in {line.owner for line in ledger.lines(Kind.ENDED)},
            within=WAIT_S,
            sentence="the frozen process has ended its run too",
        )
        assert await read_shared_state(running.url) == before
    (late,) = [line for line in ledger.lines(Kind.ENDED) if line.owner == frozen.owner]
    assert late == Line(Kind.ENDED, frozen.owner, first.at_ms, "LOST")


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_a_file_store_loses_at_most_one_run_per_kill_and_repeats_none(
    tmp_path: Path, ledger: Ledger, start: StartProcess
) -> None:
    path, rng = tmp_path / "states", Random(7)  # noqa: S311 - random moments
    for _ in range(KILLS):
        process = await start(str(path), FILE_RULE)
        await wait_for_line(ledger, Kind.STARTED, len(ledger.lines(Kind.STARTED)))
        await asyncio.sleep(rng.uniform(0, 0.2))  # at a random moment
        process.kill()
        store = SqliteStore(path)
        await store.open()
        (state,) = await store.load([TASK])
        await store.close()
        assert isinstance(state, TaskState)
    last = await start(str(path), FILE_RULE)
    await wait_for_catch_up(ledger)
    last.kill()
    started = [line.at_ms for line in ledger.lines(Kind.STARTED)]
    assert sorted(started) == sorted(set(started)), "no occurrence has run twice"
    done = {line.at_ms for line in ledger.lines(Kind.DONE)}
    lost = set(instants_between(FILE_RULE, min(started), max(done))) - done
    assert len(lost) <= KILLS


async def _start_three(start: StartProcess, url: str) -> list[SchedulerProcess]:
    return list(await asyncio.gather(*(start(url) for _ in range(3))))
