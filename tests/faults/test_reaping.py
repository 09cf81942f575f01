"""What workers leave behind, and what is cleared away; what holds entries never is."""

import asyncio
import time

import pytest
import redis

from tampu import Queue
from tampu.admin.workers import workers_of
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.faults.conftest import QUEUE, StartWorker
from tests.faults.jobs import GROUP, STREAM, add_all, held_by_consumer
from tests.faults.ledger import Ledger, check
from tests.faults.worker_process import Handlers
from tests.servers import RunningServer
from tests.waiting import wait_until

PEER = "c-peer"
LEASE_S = 1.0


def looks_at_clients(admin: redis.Redis) -> int:
    """How often the server was asked for its connections; before 7.0 with calls like it."""
    stats: dict[str, dict[str, int]] = admin.info("commandstats")
    found = stats.get("cmdstat_client|list") or stats.get("cmdstat_client") or {"calls": 0}
    return found["calls"]


async def test_short_lived_workers_leave_no_consumer_and_no_key(
    running: RunningServer, queue: Queue, ledger: Ledger
) -> None:
    for number in range(20):
        await add_all(queue, ledger, "short", [number])
        handlers = Handlers(ledger, lambda: "")
        async with Worker(QUEUE, handlers.by_name(), running.url, events=False) as worker:
            await wait_until(
                lambda: len(ledger.lines()) >= 4 * (number + 1),  # noqa: B023 - waited for here
                within=60,
                sentence="it has run a job",
            )
            assert worker.id in held_by_consumer(running)
    check(ledger.lines()).assert_sound()
    assert held_by_consumer(running) == {}
    with running.admin() as admin:
        assert list(admin.scan_iter(f"*{QUEUE}*:worker:*")) == []
        assert list(admin.scan_iter(f"*{QUEUE}*lock*")) == []
        assert admin.xlen(STREAM) == 0


@pytest.mark.every_server
async def test_consumers_of_killed_workers_go_when_they_hold_nothing(
    running: RunningServer, queue: Queue, start_worker: StartWorker, ledger: Ledger
) -> None:
    killed = await asyncio.gather(*(start_worker(lease="1s") for _ in range(3)))

    async def each_has_run_one() -> bool:
        await queue.add_each("short", range(50))
        return len(held_by_consumer(running)) == 3

    await wait_until(each_has_run_one, within=60, sentence="each has run a job")
    await wait_until(
        lambda: sum(held_by_consumer(running).values()) == 0, within=60, sentence="all are done"
    )
    for process in killed:  # at once: those that live clear away what others leave
        process.process.kill()
    assert len(held_by_consumer(running)) == 3
    for process in killed:
        await process.gone()
    handlers = Handlers(ledger, lambda: worker.id)
    async with Worker(QUEUE, handlers.by_name(), running.url, lease="1s") as worker:
        await wait_until(
            lambda: not set(held_by_consumer(running)) - {worker.id},
            within=60,
            sentence="the dead are cleared away",
        )


async def test_a_killed_worker_that_was_idle_counts_as_gone_and_goes_long_before_its_lease_ends(
    running: RunningServer, queue: Queue, start_worker: StartWorker, ledger: Ledger
) -> None:
    killed = await start_worker(lease="10m")
    await add_all(queue, ledger, "short", [1])
    await wait_until(
        lambda: list(held_by_consumer(running).values()) == [0], within=60, sentence="it is idle"
    )

    async def states() -> list[str]:
        return [str(each.state) for each in await workers_of(lane, QueueKeys(QUEUE), b"default")]

    async def is_gone() -> bool:
        return await states() == ["gone"]

    async with await connect(running.url) as server, await Lane.open(server, b"k") as lane:
        assert await states() == ["alive"]
        await killed.kill()
        await wait_until(is_gone, within=60, sentence="its closed connection is seen")
        handlers = Handlers(ledger, lambda: worker.id)
        async with Worker(QUEUE, handlers.by_name(), running.url, lease="10m") as worker:
            await wait_until(
                lambda: not set(held_by_consumer(running)) - {worker.id},
                within=60,
                sentence="it is cleared away",
            )
            assert await states() == ["alive"]


async def test_an_idle_worker_whose_process_is_stopped_stays(
    running: RunningServer, queue: Queue, start_worker: StartWorker, ledger: Ledger
) -> None:
    """Its heartbeats stop, but its connection is open: it may only be slow."""
    stopped = await start_worker(lease="1s")
    await add_all(queue, ledger, "short", [1])
    await wait_until(
        lambda: list(held_by_consumer(running).values()) == [0], within=60, sentence="it is idle"
    )
    (name,) = held_by_consumer(running)
    key = QueueKeys(QUEUE).worker(name.encode())
    handlers = Handlers(ledger, lambda: worker.id)
    with running.admin() as admin:
        stopped.pause()
        try:
            async with Worker(QUEUE, handlers.by_name(), running.url, lease="1s") as worker:
                admin.pexpire(key, 60_000)  # late for a lease of a second, and not expired
                looks = looks_at_clients(admin)
                await wait_until(
                    lambda: looks_at_clients(admin) >= looks + 3,
                    within=60,
                    sentence="the other worker has looked at it",
                )
                assert name in held_by_consumer(running)
        finally:
            stopped.resume()


@pytest.mark.every_server
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
            within=60,
            sentence="what the peer held is done",
        )
    report = check(ledger.lines())
    report.assert_sound()
    assert set(report.runs.values()) == {1}
