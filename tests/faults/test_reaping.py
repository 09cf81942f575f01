"""What workers leave behind, and what is cleared away; what holds entries never is."""

import asyncio
import threading
import time
from typing import Any

import pytest

from tampu import Job, Queue
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.faults.conftest import QUEUE, Hire
from tests.faults.ledger import Ledger, check
from tests.faults.worker_process import Deeds
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = QueueKeys(QUEUE)
GROUP = "default"
PEER = "c-peer"
LEASE_S = 1.0


def pending_by_consumer(running: RunningServer) -> dict[str, int]:
    with running.admin() as admin:
        found = admin.xinfo_consumers(KEYS.stream, GROUP)
        return {each["name"].decode(): each["pending"] for each in found}


async def test_short_lived_workers_leave_no_consumer_and_no_key(
    running: RunningServer, queue: Queue, ledger: Ledger
) -> None:
    for number in range(20):
        ledger.sent(number)
        await queue.add("short", number)
        ledger.added(number)
        deeds = Deeds(ledger, lambda: "")
        async with Worker(QUEUE, deeds.by_name(), running.url, events=False) as worker:
            await wait_until(
                lambda: len(ledger.lines()) >= 4 * (number + 1),  # noqa: B023 - waited for here
                within=5,
                sentence="it has run a job",
            )
            assert worker.id in pending_by_consumer(running)
    check(ledger.lines()).assert_sound()
    assert pending_by_consumer(running) == {}
    with running.admin() as admin:
        assert list(admin.scan_iter(f"*{QUEUE}*:worker:*")) == []
        assert list(admin.scan_iter(f"*{QUEUE}*lock*")) == []
        assert admin.xlen(KEYS.stream) == 0


async def test_consumers_of_killed_workers_go_when_they_hold_nothing(
    running: RunningServer, hire: Hire, ledger: Ledger
) -> None:
    doomed = await asyncio.gather(*(hire(lease="1s") for _ in range(3)))
    for process in doomed:
        await process.kill()
    assert len(pending_by_consumer(running)) == 3
    deeds = Deeds(ledger, lambda: worker.id)
    async with Worker(QUEUE, deeds.by_name(), running.url, lease="1s") as worker:
        await wait_until(
            lambda: set(pending_by_consumer(running)) == {worker.id},
            within=10,
            sentence="the dead are cleared away",
        )


async def test_a_peers_consumer_stays_with_what_it_holds_until_a_lease_is_over(
    running: RunningServer, queue: Queue, ledger: Ledger
) -> None:
    deeds = Deeds(ledger, lambda: worker.id)
    with running.admin() as admin:
        admin.xgroup_create(KEYS.stream, GROUP, "0", mkstream=True)
        for tag in range(5):
            ledger.sent(tag)
            await queue.add("short", tag)
            ledger.added(tag)
        admin.xreadgroup(GROUP, PEER, {KEYS.stream: ">"}, count=5)
        read_at = time.monotonic()
    async with Worker(QUEUE, deeds.by_name(), running.url, lease=LEASE_S) as worker:
        held = 5
        while held == 5:
            held = pending_by_consumer(running)[PEER]  # it is always there
            await asyncio.sleep(0.01)
        assert time.monotonic() - read_at >= LEASE_S
        await wait_until(
            lambda: sum(pending_by_consumer(running).values()) == 0,
            within=5,
            sentence="what the peer held is done",
        )
    report = check(ledger.lines())
    report.assert_sound()
    assert set(report.runs.values()) == {1}


class TestStopping:
    """One of two workers stops in the middle of its work."""

    @pytest.fixture
    def gate(self) -> asyncio.Event:
        return asyncio.Event()

    async def test_what_it_had_not_begun_is_begun_by_the_other_at_once(
        self, running: RunningServer, queue: Queue, gate: asyncio.Event
    ) -> None:
        begun: dict[str, list[tuple[int, int]]] = {"leaver": [], "stayer": []}
        done: list[int] = []

        def handler(who: str) -> Any:  # noqa: ANN401 - a handler
            async def handle(job: Job[Any]) -> None:
                if job.name == "long":
                    begun[who].append((job.data, job.attempt))
                    await gate.wait()
                done.append(job.data)

            return handle

        leaver = Worker(QUEUE, handler("leaver"), running.url, concurrency=5)
        async with Worker(QUEUE, handler("stayer"), running.url, concurrency=400) as stayer:
            await leaver.start()
            # Many short jobs make a worker read ahead; then it holds more than it can begin.
            await queue.add_each("short", range(3000))
            await queue.add_each("long", range(200))
            await wait_until(
                lambda: len(begun["leaver"]) == 5 and _held(running, leaver.id) > 5,
                within=10,
                sentence="the leaver holds more than it has begun",
            )
            stopping = asyncio.create_task(leaver.stop(grace=1.0))
            asked_at = time.monotonic()
            await wait_until(
                lambda: len(begun["leaver"]) + len(begun["stayer"]) >= 200,
                within=1.0,
                sentence="the stayer has begun what the leaver had not",
            )
            await stopping
            assert time.monotonic() - asked_at < 3.0
            await wait_until(
                lambda: {tag for tag, _ in begun["stayer"]} == set(range(200)),
                within=1.0,
                sentence="what the leaver could not finish is begun too",
            )
            assert {attempt for _, attempt in begun["stayer"]} == {1}
            assert set(pending_by_consumer(running)) == {stayer.id}
            gate.set()
            await wait_until(lambda: len(done) == 3200, within=10, sentence="all are done")
        assert sorted(done) == sorted([*range(3000), *range(200)])
        assert [each for each in threading.enumerate() if each.name == "tampu-leases"] == []
        left = {task.get_name() for task in asyncio.all_tasks()} - {"tampu-lane", "tampu-link"}
        assert not [name for name in left if name.startswith("tampu-")]
        with running.admin() as admin:
            assert admin.xinfo_groups(KEYS.stream)[0]["pending"] == 0
            await wait_until(
                lambda: len(admin.client_list(_type="normal")) == 2,  # ours and the producer's
                within=2,
                sentence="no connection is left",
            )


def _held(running: RunningServer, consumer: str) -> int:
    return pending_by_consumer(running).get(consumer, 0)
