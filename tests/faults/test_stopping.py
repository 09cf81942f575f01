"""One of two workers stops in the middle of its work."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from tampu import Job, Queue
from tampu.worker import Worker
from tests.faults.conftest import QUEUE
from tests.faults.jobs import STREAM, held_by_consumer
from tests.servers import RunningServer
from tests.waiting import wait_until

SHORT, LONG = 3000, 200
AT_ONCE = 5  # what the one that leaves can run
NEVER_S = 60.0
GRACE_S = 0.2


class TwoWorkers:
    """Two handlers, of the one that leaves and the one that stays; long jobs wait for a gate."""

    def __init__(self) -> None:
        self.begun: dict[str, list[tuple[int, int]]] = {"leaver": [], "stayer": []}
        self.done: list[tuple[str, int]] = []
        self.gate = asyncio.Event()

    def handler(self, who: str) -> Callable[[Job[Any]], Awaitable[None]]:
        async def handle(job: Job[Any]) -> None:
            if job.name == "long":
                self.begun[who].append((job.data, job.attempt))
                await self.gate.wait()
            self.done.append((job.name, job.data))

        return handle


async def test_jobs_it_had_not_started_are_started_by_the_other_at_once(
    running: RunningServer, queue: Queue
) -> None:
    two = TwoWorkers()
    leaver = Worker(QUEUE, two.handler("leaver"), running.url, concurrency=AT_ONCE)
    stayer = Worker(QUEUE, two.handler("stayer"), running.url, concurrency=2 * LONG)
    try:
        await leaver.start()
        # Many short jobs make a worker read ahead; then it holds more than it can begin.
        await queue.add_each("short", range(SHORT))
        await queue.add_each("long", range(LONG))
        await wait_until(
            lambda: (
                len(two.begun["leaver"]) == AT_ONCE
                and held_by_consumer(running)[leaver.id] > AT_ONCE
            ),
            within=60,
            sentence="the leaver holds more than it has begun",
        )
        await stayer.start()
        await leave(leaver, two)
        assert {attempt for _, attempt in two.begun["stayer"]} == {1}  # nothing was counted
        assert set(held_by_consumer(running)) == {stayer.id}
        two.gate.set()
        every = [("short", tag) for tag in range(SHORT)] + [("long", tag) for tag in range(LONG)]
        await wait_until(lambda: len(two.done) == len(every), within=60, sentence="all are done")
        assert sorted(two.done) == sorted(every)
    finally:
        two.gate.set()
        await leaver.stop(grace=0)
        await stayer.stop(grace=0)
    await assert_nothing_is_left(running)


async def leave(leaver: Worker, two: TwoWorkers) -> None:
    """Stop it, and see the other begin all that it leaves."""
    stopping = asyncio.create_task(leaver.stop(grace=NEVER_S))
    await wait_until(
        lambda: len(two.begun["stayer"]) >= LONG - AT_ONCE,
        within=60,
        sentence="the stayer has begun what the leaver had not",
    )
    assert not stopping.done(), "what the leaver has begun has its grace"
    await asyncio.wait_for(leaver.stop(grace=GRACE_S), 20)
    await stopping
    await wait_until(
        lambda: {tag for tag, _ in two.begun["stayer"]} == set(range(LONG)),
        within=60,
        sentence="what the leaver could not end is begun too",
    )


async def assert_nothing_is_left(running: RunningServer) -> None:
    """No thread, no task, no pending entry, no consumer and no connection but the producer's."""
    assert [each for each in threading.enumerate() if each.name == "tampu-leases"] == []
    names = {task.get_name() for task in asyncio.all_tasks()} - {"tampu-lane", "tampu-connection"}
    assert not [name for name in names if name.startswith("tampu-")]
    assert held_by_consumer(running) == {}
    with running.admin() as admin:
        assert admin.xinfo_groups(STREAM)[0]["pending"] == 0
        await wait_until(
            lambda: len(admin.client_list(_type="normal")) == 2,  # ours and the producer's
            within=60,
            sentence="no connection is left",
        )
