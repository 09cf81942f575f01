"""Both kinds of worker, promoter and scheduler at once on one queue, under load."""

import asyncio
import os
from collections import Counter
from time import monotonic

import pytest

from tests.interop.crowd import INTERVALS_MS, Crowd, more_than_once
from tests.interop.road import Road

pytestmark = pytest.mark.chasquimq

# `make faults` has the long form.
LASTS_S = float(os.environ.get("TAMPU_INTEROP_S", "5"))
CHANGE_EVERY_S = 0.8
REST_LIMIT_S = 30.0


@pytest.mark.timeout(60 + 3 * LASTS_S)
async def test_every_job_runs_once_and_every_instant_fires_once(road: Road) -> None:
    crowd = Crowd(road)
    await crowd.schedule()
    first_ms = crowd.armed()  # before anybody is there to fire
    assert len(first_ms) == 2 * len(INTERVALS_MS)
    await crowd.start()
    await load(crowd)
    fired = await crowd.unschedule(first_ms)
    await road.settled(within=REST_LIMIT_S)
    runs = await crowd.runs()

    assert more_than_once(runs) == []
    assert await road.queue.dead.peek() == []
    ran = Counter(run.tag for run in runs if not run.failed)
    assert {tag: ran[tag] for tag in crowd.sent} == dict.fromkeys(crowd.sent, 1)
    ids = {run.tag: run.job_id for run in runs if run.tag in crowd.sent}
    assert ids == crowd.sent

    for schedule in fired:
        instants = (schedule.next_ms - schedule.first_ms) / schedule.interval_ms
        assert (schedule.name, schedule.count) == (schedule.name, instants)
        assert (schedule.name, ran[schedule.name]) == (schedule.name, schedule.count)

    failures = Counter(run.job_id for run in runs if run.failed)
    promoted = crowd.promotions()
    assert {
        job_id: count
        for job_id, count in promoted.items()
        if count > (job_id in crowd.delayed) + failures[job_id]
    } == {}

    assert {run.world for run in runs} == {"here", "there"}
    # A lead is left by those who end, and taken from nobody.
    for leaders in crowd.leaders.values():
        assert crowd.changes < len(leaders) <= crowd.ended + 1


async def load(crowd: Crowd) -> None:
    """Add, and have workers come and go, for a while."""
    ends = monotonic() + LASTS_S

    async def produce(rounds: list[int], world: str) -> None:
        while monotonic() < ends:
            await (crowd.produce_here() if world == "here" else crowd.produce_there())
            rounds.append(1)
            crowd.look()
            await asyncio.sleep(0.01)

    async def change() -> None:
        while monotonic() < ends - CHANGE_EVERY_S:
            await asyncio.sleep(CHANGE_EVERY_S)
            await crowd.change()

    here: list[int] = []
    there: list[int] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(produce(here, "here"))
        group.create_task(produce(there, "there"))
        group.create_task(change())
    assert min(len(here), len(there)) > LASTS_S
    assert crowd.changes >= 2
