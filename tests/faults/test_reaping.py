"""What workers leave behind, and what is cleared away; what holds entries never is."""

import asyncio
import time

import pytest

from tampu import Queue
from tampu.worker import Worker
from tests.faults.conftest import QUEUE, StartWorker
from tests.faults.jobs import GROUP, STREAM, add_all, held_by_consumer
from tests.faults.ledger import Ledger, check
from tests.faults.worker_process import Handlers
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

PEER = "c-peer"
LEASE_S = 1.0


async def test_short_lived_workers_leave_no_consumer_and_no_key(
    running: RunningServer, queue: Queue, ledger: Ledger
) -> None:
    for number in range(20):
        await add_all(queue, ledger, "short", [number])
        handlers = Handlers(ledger, lambda: "")
        async with Worker(QUEUE, handlers.by_name(), running.url, events=False) as worker:
            await wait_until(
                lambda: len(ledger.lines()) >= 4 * (number + 1),  # noqa: B023 - waited for here
                within=10,
                sentence="it has run a job",
            )
            assert worker.id in held_by_consumer(running)
    check(ledger.lines()).assert_sound()
    assert held_by_consumer(running) == {}
    with running.admin() as admin:
        assert list(admin.scan_iter(f"*{QUEUE}*:worker:*")) == []
        assert list(admin.scan_iter(f"*{QUEUE}*lock*")) == []
        assert admin.xlen(STREAM) == 0


async def test_consumers_of_killed_workers_go_when_they_hold_nothing(
    running: RunningServer, queue: Queue, start_worker: StartWorker, ledger: Ledger
) -> None:
    killed = await asyncio.gather(*(start_worker(lease="1s") for _ in range(3)))

    async def each_has_run_one() -> bool:
        await queue.add_each("short", range(50))
        return len(held_by_consumer(running)) == 3

    await wait_until(each_has_run_one, within=10, sentence="each has run a job")
    await wait_until(
        lambda: sum(held_by_consumer(running).values()) == 0, within=10, sentence="all are done"
    )
    for process in killed:
        await process.kill()
    assert len(held_by_consumer(running)) == 3
    handlers = Handlers(ledger, lambda: worker.id)
    async with Worker(QUEUE, handlers.by_name(), running.url, lease="1s") as worker:
        await wait_until(
            lambda: not set(held_by_consumer(running)) - {worker.id},
            within=10,
            sentence="the dead are cleared away",
        )


async def test_a_peers_consumer_keeps_its_entries_for_a_lease(
    running: RunningServer, queue: Queue, ledger: Ledger
) -> None:
    handlers = Handlers(ledger, lambda: worker.id)
    with running.admin() as admin:
        admin.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        await add_all(queue, ledger, "short", range(5))
        admin.xreadgroup(GROUP, PEER, {STREAM: ">"}, count=5)
        read_at = time.monotonic()
    async with Worker(QUEUE, handlers.by_name(), running.url, lease=LEASE_S) as worker:
        held = 5
        while held == 5:
            held = held_by_consumer(running)[PEER]  # it is always there
            await asyncio.sleep(0.01)
        assert time.monotonic() - read_at >= LEASE_S
        await wait_until(
            lambda: sum(held_by_consumer(running).values()) == 0,
            within=10,
            sentence="what the peer held is done",
        )
    report = check(ledger.lines())
    report.assert_sound()
    assert set(report.runs.values()) == {1}
