"""Shares of keys: with a backlog of one of them, and by the order that the server has recorded."""

import asyncio
import os
from collections import Counter
from typing import Any, Final

import pytest

from tampu import Job, NewJob, Queue
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.conftest import Start
from tests.faults.conftest import QUEUE
from tests.gates import ManualGate, commands
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = QueueKeys(QUEUE)
BACKLOG: Final = int(os.environ.get("TAMPU_FAULTS_BACKLOG", "200000"))  # `make faults`: more
LIMIT_S: Final = 60 + BACKLOG / 2000
PASSED: Final = 10_000


async def add_backlog(queue: Queue, count: int) -> None:
    for start in range(0, count, 10_000):
        await queue.add_many([NewJob("j", "noisy", key="noisy")] * min(10_000, count - start))


@pytest.mark.timeout(LIMIT_S)
async def test_a_backlog_of_one_key_delays_the_first_job_of_another_by_a_batch_at_most(
    running: RunningServer, queue: Queue, server: Server
) -> None:
    with running.admin() as admin:
        async with await Lane.open(server, KEYS.stream) as lane:
            gate = ManualGate(queue, lane, admin, KEYS)
            await gate.open()
            await add_backlog(queue, BACKLOG)
            for number, batch in enumerate((1, 10, 100, 512)):
                key, seen = f"quiet-{number}", 0

                def add_another(_: object, batch: int = batch, key: str = key) -> Any:  # noqa: ANN401 - what is to be awaited
                    nonlocal seen
                    seen += 1
                    is_first = seen == 2 * batch + 1  # of the third batch, which is read already
                    return queue.add("j", key, key=key) if is_first else None

                order = await gate.drain(batch, most=6 * batch, on=add_another)
                added_at = 2 * batch
                assert order.index(key) - added_at <= batch + 1
            gate.sound()


@pytest.mark.timeout(LIMIT_S)
async def test_a_worker_that_has_a_backlog_of_one_key_starts_another_key_after_what_it_has_read(
    running: RunningServer, queue: Queue
) -> None:
    order: list[str] = []

    async def handle(job: Job[Any]) -> None:
        order.append(job.data)
        await asyncio.sleep(0.01)

    await add_backlog(queue, BACKLOG // 20)
    async with Worker(QUEUE, handle, running.url, concurrency=10, grace=0):
        for number in range(5):
            key, before = f"quiet-{number}", len(order)
            await wait_until(
                lambda before=before: len(order) > before + 100,  # type: ignore[misc]
                within=60,
                sentence="some more have run",
            )
            await queue.add("j", key, key=key)
            added_at = len(order)
            await wait_until(lambda key=key: key in order, within=60, sentence="it has started")  # type: ignore[misc]
            # What had passed: the jobs that run, and what the worker has room for beside them.
            assert order.index(key) - added_at <= 3 * 10


@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
async def test_workers_get_jobs_by_the_shares_of_their_keys(
    start: Start, *, weighted: bool
) -> None:
    server, ran = start("--appendonly", "yes", "--appendfsync", "no"), 0
    weights = {f"key-{number}": 1 + number % 4 if weighted else 1 for number in range(20)}

    async def handle(job: Job[Any]) -> None:
        nonlocal ran
        del job
        ran += 1

    async with Queue(QUEUE, server.url) as queue:
        for key, weight in weights.items():  # all of them have jobs until so many have passed
            count = PASSED * weight // sum(weights.values()) + 300
            await queue.add_many([NewJob(key, None, key=key, weight=weight)] * count)
        options: Any = {"concurrency": 25, "grace": 0}
        async with (
            Worker(QUEUE, handle, server.url, **options),
            Worker(QUEUE, handle, server.url, **options),
        ):
            await wait_until(lambda: ran >= PASSED, within=60, sentence="enough have run")
    names = [
        rest[rest.index(b"n") + 1].decode()
        for name, key, *rest in (each for each in commands(server) if len(each) > 2)
        if name.upper() == b"XADD" and key == KEYS.stream and b"n" in rest
    ]
    served = Counter[str]()
    for name in names[:PASSED]:
        served[name] += 1
        shares = [served[key] / weight for key, weight in weights.items()]
        assert max(shares) - min(shares) <= 1, "more than a job from its share"
    for key, weight in weights.items():
        assert served[key] == pytest.approx(PASSED * weight / sum(weights.values()), rel=0.02)
