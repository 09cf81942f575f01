"""Schedulers that die or freeze: what they had begun is begun again, or lost, but never doubled."""

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
from tests.faults.scheduler_process import LEASE, Author, Diary, Kind, Line, SchedulerProcess
from tests.schedulers import TASK, grid, instants, shared_state
from tests.servers import RunningServer
from tests.waiting import wait_until

KILLS = int(os.environ.get("TAMPU_FAULTS_KILLS", "5"))  # `make faults` kills more often
WITHIN = 30.0
RULE = grid("20ms")
SLOW = grid("1s")
OF_FILE = grid("50ms")

Begin = Callable[..., Coroutine[Any, Any, SchedulerProcess]]


@pytest.fixture
def diary(tmp_path: Path) -> Iterator[Diary]:
    kept = Diary(tmp_path / "diary")
    yield kept
    kept.close()


@pytest.fixture
async def begin(diary: Diary) -> AsyncIterator[Begin]:
    """Start processes; all are ended after the test."""
    begun: list[SchedulerProcess] = []

    async def started(where: str, rule: Every = RULE, *, hangs: bool = False) -> SchedulerProcess:
        process = await SchedulerProcess.start(where, diary, rule, hangs=hangs)
        begun.append(process)
        return process

    yield started
    for process in begun:
        with suppress(ProcessLookupError):
            process.thaw()
        process.kill()


async def until_told(diary: Diary, kind: Kind, after: int = 0) -> Line:
    """The first line of a kind behind so many others."""
    await wait_until(
        lambda: len(diary.lines(kind)) > after, within=WITHIN, sentence=f"one more {kind.value}"
    )
    return diary.lines(kind)[after]


async def until_caught_up(diary: Diary) -> None:
    """Return when what is due now has been run."""
    due_ms = now_ms()
    await wait_until(
        lambda: any(line.at_ms > due_ms for line in diary.lines(Kind.DONE)),
        within=WITHIN,
        sentence="all that was due has been run",
    )


async def test_what_a_killed_scheduler_had_begun_is_begun_again_by_another(
    running: RunningServer, diary: Diary, begin: Begin
) -> None:
    doomed = await begin(running.url, SLOW, hangs=True)
    begun = await until_told(diary, Kind.BEGAN)
    assert (begun.who, begun.note) == (doomed.who, "first")
    doomed.kill()
    diary.gate.touch()
    heir = await begin(running.url, SLOW)
    again = await until_told(diary, Kind.BEGAN, 1)
    assert again == Line(Kind.BEGAN, heir.who, begun.at_ms, "again")
    done = await until_told(diary, Kind.DONE)
    assert done.at_ms == begun.at_ms
    await until_told(diary, Kind.ENDED)
    assert (await shared_state(running.url)).last_success_ms is not None


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_nothing_is_lost_while_schedulers_are_killed_in_the_middle_of_runs(
    running: RunningServer, diary: Diary, begin: Begin
) -> None:
    crew = {process.who: process for process in await _three(begin, running.url)}
    for _ in range(KILLS):
        await until_told(diary, Kind.DONE, len(diary.lines(Kind.DONE)) + 5)
        joining = asyncio.create_task(begin(running.url))
        line = await until_told(diary, Kind.BEGAN, len(diary.lines(Kind.BEGAN)))
        crew.pop(line.who).kill()
        process = await joining
        crew[process.who] = process
    await until_caught_up(diary)
    for process in crew.values():
        process.kill()
    done = {line.at_ms for line in diary.lines(Kind.DONE)}
    began = diary.lines(Kind.BEGAN)
    first_ms, last_ms = min(done), max(done)
    assert sorted(done) == instants(RULE, first_ms, last_ms)
    again = Counter(line.at_ms for line in began if line.note == "again")
    runs = Counter(line.at_ms for line in began)
    for at_ms, count in runs.items():
        assert count - again[at_ms] <= 1, "each but the first is known to be a repetition"
    assert 1 <= len(again) <= 2 * KILLS + 1


async def test_what_comes_of_a_frozen_run_does_not_count(
    running: RunningServer, diary: Diary, begin: Begin
) -> None:
    frozen = await begin(running.url, SLOW, hangs=True)
    begun = await until_told(diary, Kind.BEGAN)
    frozen.freeze()
    diary.gate.touch()
    heir = Author(diary, "heir", hangs=False)
    async with Scheduler(
        store=CoordinatedStore(running.url, **LEASE), observers=[heir]
    ) as scheduler:
        handle = scheduler.add(heir.task(SLOW))
        ended = await until_told(diary, Kind.ENDED)
        assert ended == Line(Kind.ENDED, "heir", begun.at_ms, "SUCCESS")
        assert await handle.pause()  # from here on nobody counts anything
        before = await shared_state(running.url)
        frozen.thaw()
        await wait_until(
            lambda: frozen.who in {line.who for line in diary.lines(Kind.ENDED)},
            within=WITHIN,
            sentence="the frozen one has ended its run too",
        )
        assert await shared_state(running.url) == before
    (late,) = [line for line in diary.lines(Kind.ENDED) if line.who == frozen.who]
    assert late == Line(Kind.ENDED, frozen.who, begun.at_ms, "LOST")


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_a_file_of_states_loses_at_most_one_run_a_kill_and_doubles_none(
    tmp_path: Path, diary: Diary, begin: Begin
) -> None:
    path, rng = tmp_path / "states", Random(7)  # noqa: S311 - when it is killed
    for _ in range(KILLS):
        process = await begin(str(path), OF_FILE)
        await until_told(diary, Kind.BEGAN, len(diary.lines(Kind.BEGAN)))
        await asyncio.sleep(rng.uniform(0, 0.2))  # at any moment: time itself is the subject
        process.kill()
        store = SqliteStore(path)
        await store.open()
        (state,) = await store.load([TASK])
        await store.close()
        assert isinstance(state, TaskState)
    last = await begin(str(path), OF_FILE)
    await until_caught_up(diary)
    last.kill()
    began = [line.at_ms for line in diary.lines(Kind.BEGAN)]
    assert sorted(began) == sorted(set(began)), "none has run twice"
    done = {line.at_ms for line in diary.lines(Kind.DONE)}
    lost = set(instants(OF_FILE, min(began), max(done))) - done
    assert len(lost) <= KILLS


async def _three(begin: Begin, url: str) -> list[SchedulerProcess]:
    return list(await asyncio.gather(*(begin(url) for _ in range(3))))
