"""Flows whose workers are killed: each child is done, and their join starts once."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
import redis

from tampu import Flow, FlowRun
from tampu.wire.keys import QueueKeys
from tests.faults.graph_process import AWAY, HOME, JOINS, RUNS, GraphTasks, GraphWorkers
from tests.servers import RunningServer
from tests.waiting import wait_until

CHILDREN = int(os.environ.get("TAMPU_FAULTS_CHILDREN", "2000"))  # `make faults`: 100 000
KILLS = int(os.environ.get("TAMPU_FAULTS_GRAPH_KILLS", "3"))  # `make faults`: 20
LIMIT_S = 120 + CHILDREN / 200


@pytest.fixture
async def tasks(running: RunningServer) -> AsyncIterator[GraphTasks]:
    made = GraphTasks(running.url)
    async with made.app:
        yield made


@pytest.fixture
async def workers(running: RunningServer) -> AsyncIterator[GraphWorkers]:
    made = GraphWorkers(running.url)
    await asyncio.gather(*(made.start() for _ in range(3)))
    yield made
    made.end()


@pytest.fixture
def notes(running: RunningServer) -> Any:  # noqa: ANN401 - a redis client
    return running.admin()


async def start(tasks: GraphTasks) -> FlowRun[int]:
    """Half of the children in each queue, those of the other from a result; one join."""
    flow: Flow = tasks.app.flow("children")
    half = CHILDREN // 2
    here = flow.map(tasks.child, range(half))
    there = flow.map(tasks.child_there, flow.add(tasks.numbers, half, CHILDREN - half))
    join = flow.add(tasks.join, here=here.results.value, there=there.results.value)
    return await flow.start(result=join)


async def check(run: FlowRun[int], notes: Any) -> None:  # noqa: ANN401 - a redis client
    total = sum(range(CHILDREN))
    assert await run.result(LIMIT_S) == total
    assert notes.lrange(JOINS, 0, -1) == [b"%d" % total]
    runs = notes.hgetall(RUNS)
    assert {int(number) for number in runs} == set(range(CHILDREN))
    assert sum(int(each) > 1 for each in runs.values()) <= KILLS * 200, "few have run twice"

    async def is_over() -> bool:
        info = await run.info()
        assert info is not None
        return info.state.value == "done" and info.ended_at is not None

    await wait_until(is_over, within=60, sentence="the flow is done")
    info = await run.info()
    assert info is not None
    assert (info.done, info.failed) == (CHILDREN + 2, 0)
    for queue in (HOME, AWAY):
        keys = QueueKeys(queue)
        assert notes.xlen(keys.stream) == 0
        assert notes.xlen(keys.outbox) == 0
    left = [key for key in notes.scan_iter(f"*{run.id}*") if notes.ttl(key) == -1]
    assert left == []


@pytest.mark.timeout(120 + 2 * int(LIMIT_S))
async def test_children_of_killed_workers_are_done_and_joined_once(
    tasks: GraphTasks,
    workers: GraphWorkers,
    notes: Any,  # noqa: ANN401 - a redis client
) -> None:
    rng = Random(5)  # noqa: S311 - who is killed
    run = await start(tasks)
    for number in range(1, KILLS + 1):
        goal = CHILDREN * number // (KILLS + 1)
        await wait_until(
            lambda goal=goal: notes.hlen(RUNS) >= goal,  # type: ignore[misc]
            within=LIMIT_S,
            sentence="some more children have run",
        )
        await workers.kill(rng.choice([*workers.alive]))
    await check(run, notes)


@pytest.mark.timeout(120 + 2 * int(LIMIT_S))
async def test_a_relay_is_killed_while_maps_grow_and_jobs_are_between_two_queues(
    tasks: GraphTasks,
    workers: GraphWorkers,
    notes: Any,  # noqa: ANN401 - a redis client
) -> None:
    run = await start(tasks)
    keys, killed = QueueKeys(HOME), 0
    for number in range(1, 3):
        goal = CHILDREN // 2 * number // 3

        def grows(goal: int = goal) -> bool:
            return int(notes.hget(keys.flow(run.id), "p2") or 0) >= goal

        await wait_until(grows, within=LIMIT_S, sentence="the map grows")
        leader = relay_of(notes, keys)
        if leader in workers.alive:
            await workers.kill(leader)
            killed += 1
    assert killed > 0, "some relay was at work"
    await check(run, notes)


def relay_of(notes: redis.Redis, keys: QueueKeys) -> int | None:
    """The id of the process that has the relay of a queue."""
    holder: Any = notes.get(keys.flows_lock)
    found = re.search(rb"p(\d+)-", holder or b"")
    return None if found is None else int(found[1])
