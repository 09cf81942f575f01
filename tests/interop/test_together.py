"""Both kinds of worker, promoter and scheduler at once on one queue, under load."""

import asyncio
import os
from collections import Counter
from time import monotonic

import pytest

from tests.interop.mixed_load import INTERVALS_MS, MixedLoad, more_than_once
from tests.interop.shared_queue import SharedQueue

pytestmark = pytest.mark.chasquimq

# `make faults` has the long form.
LASTS_S = float(os.environ.get("TAMPU_INTEROP_S", "5"))
CHANGE_EVERY_S = 0.8
REST_LIMIT_S = 30.0


@pytest.mark.timeout(60 + 3 * LASTS_S)
async def test_every_job_runs_once_and_every_instant_fires_once(shared: SharedQueue) -> None:
    mixed = MixedLoad(shared)
    await mixed.schedule()
    first_ms = mixed.armed()  # before anybody is there to fire
    assert len(first_ms) == 2 * len(INTERVALS_MS)
    await mixed.start()
    await load(mixed)
    fired = await mixed.unschedule(first_ms)
    await shared.settled(within=REST_LIMIT_S)
    runs = await mixed.runs()

    assert more_than_once(runs) == []
    assert await shared.queue.dead.peek() == []
    ran = Counter(run.tag for run in runs if not run.failed)
    assert {tag: ran[tag] for tag in mixed.sent} == dict.fromkeys(mixed.sent, 1)
    ids = {run.tag: run.job_id for run in runs if run.tag in mixed.sent}
    assert ids == mixed.sent

    for schedule in fired:
        instants = (schedule.next_ms - schedule.first_ms) / schedule.interval_ms
        assert (schedule.name, schedule.count) == (schedule.name, instants)
        assert (schedule.name, ran[schedule.name]) == (schedule.name, schedule.count)

    failures = Counter(run.job_id for run in runs if run.failed)
    promoted = mixed.promotions()
    assert {
        job_id: count
        for job_id, count in promoted.items()
        if count > (job_id in mixed.delayed) + failures[job_id]
    } == {}

    assert {run.world for run in runs} == {"here", "there"}
    # A lead is left by those who end, and taken from nobody.
    for leaders in mixed.leaders.values():
        assert mixed.changes < len(leaders) <= mixed.ended + 1


async def load(mixed: MixedLoad) -> None:
    """Add, and have workers come and go, for a while."""
    ends = monotonic() + LASTS_S

    async def produce(rounds: list[int], world: str) -> None:
        while monotonic() < ends:
            await (mixed.produce_here() if world == "here" else mixed.produce_there())
            rounds.append(1)
            mixed.look()
            await asyncio.sleep(0.01)

    async def change() -> None:
        while monotonic() < ends - CHANGE_EVERY_S:
            await asyncio.sleep(CHANGE_EVERY_S)
            await mixed.change()

    here: list[int] = []
    there: list[int] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(produce(here, "here"))
        group.create_task(produce(there, "there"))
        group.create_task(change())
    assert min(len(here), len(there)) > LASTS_S
    assert mixed.changes >= 2
