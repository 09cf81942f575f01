"""The bell on real servers: who puts a job that is due before all others wakes the promoter."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from time import time
from typing import Any

import pytest

from tampu import Backoff, Promoter
from tampu.job import Job
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Harness, envelope
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

ADD_FROM_ANOTHER_PROCESS = """
import sys
from tampu import SyncQueue
with SyncQueue(sys.argv[1], sys.argv[2]) as queue:
    for line in sys.stdin:
        queue.add("a", delay=float(line))
"""


@pytest.fixture
def sleepy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promoter that is not woken sleeps until the next job that it knows of."""
    monkeypatch.setattr("tampu.services.promoter._LOOK_AGAIN_S", 60.0)


def rings(harness: Harness) -> int:
    """How many rings nobody has heard; they are taken away."""
    count = int(harness.admin.llen(KEYS.bell))
    harness.admin.delete(KEYS.bell)
    return count


def ears(harness: Harness) -> list[str]:
    """The connections that wait for a ring."""
    clients = harness.admin.client_list()
    return [each["id"] for each in clients if each["cmd"] == "blpop" and "b" in each["flags"]]


async def until_heard(harness: Harness) -> None:
    """Return when a promoter leads and has heard all there was."""

    def is_heard() -> bool:
        leads, rung = harness.admin.exists(KEYS.promoter_lock), harness.admin.exists(KEYS.bell)
        return bool(leads and not rung and ears(harness))

    await wait_until(is_heard, within=SOON, sentence="a promoter listens")


class TestRinging:
    async def test_only_a_job_that_is_due_before_all_others_rings(self, harness: Harness) -> None:
        queue = harness.queue
        await queue.add("a", delay=60)
        assert rings(harness) == 1, "there was none"
        await queue.add("a", delay=61)
        assert rings(harness) == 0, "it is due later"
        await queue.add("a", delay=59)
        assert rings(harness) == 1, "it is due sooner"
        await queue.add("a", at=datetime.now(UTC) + timedelta(seconds=30))
        assert rings(harness) == 1, "an instant counts like a delay"
        await queue.add("a")
        await queue.add("a", attempts=3)
        assert rings(harness) == 0, "these are not delayed"

    async def test_many_rings_are_one_and_end_by_themselves(self, harness: Harness) -> None:
        for delay in (60, 50, 40, 30):
            await harness.queue.add("a", delay=delay)
        assert 0 < harness.admin.pttl(KEYS.bell) <= 60_000
        assert rings(harness) == 1
        await harness.queue.add_each("a", range(100), delay=20)
        assert rings(harness) == 1

    async def test_an_id_that_is_taken_does_not_ring(self, harness: Harness) -> None:
        await harness.queue.add("a", job_id="x", delay=60)
        rings(harness)
        assert (await harness.queue.add("a", job_id="x", delay=1)).duplicate
        assert rings(harness) == 0

    async def test_a_retry_rings_like_a_delayed_job(self, harness: Harness) -> None:
        boom = Boom()
        await harness.start_worker(boom, promote=False, backoff=Backoff.fixed(60))
        for expected in (1, 0):  # the second is due later
            await harness.queue.add("boom")
            await boom.until(2 - expected)
            await wait_until(
                lambda: harness.admin.zcard(KEYS.delayed) == len(boom),
                within=SOON,
                sentence="it waits for its next attempt",
            )
            assert rings(harness) == expected

    async def test_a_job_that_is_put_off_does_not_ring_and_one_that_is_brought_forward_does(
        self, harness: Harness
    ) -> None:
        jobs = await harness.queue.add_each("a", [1, 2], delay=60)
        rings(harness)
        assert await harness.queue.reschedule(jobs[0].id, delay=120)
        assert rings(harness) == 0
        assert await harness.queue.reschedule(jobs[0].id, delay=30)
        assert rings(harness) == 1

    async def test_a_bell_that_is_none_keeps_nobody_from_adding(self, harness: Harness) -> None:
        harness.admin.set(KEYS.bell, "no bell")
        job = await harness.queue.add("a", delay=60)
        assert await harness.queue.reschedule(job.id, delay=30)
        assert harness.admin.zcard(KEYS.delayed) == 1
        assert harness.admin.get(KEYS.bell) == b"no bell"


@pytest.mark.usefixtures("sleepy")
class TestHearing:
    async def test_a_job_from_another_process_is_not_late_although_the_promoter_sleeps(
        self, harness: Harness
    ) -> None:
        late_ms: list[float] = []

        async def handle(job: Job[Any]) -> None:
            late_ms.append(time() * 1000 - job.created_at_ms - 50)

        await harness.start_worker(handle)
        await harness.queue.add("far away", delay=3600)
        await until_heard(harness)
        adder = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", ADD_FROM_ANOTHER_PROCESS, QUEUE, harness.running.url),
            stdin=asyncio.subprocess.PIPE,
        )
        assert adder.stdin is not None
        for number in range(1, 6):
            adder.stdin.write(b"0.05\n")
            await wait_until(
                lambda wanted=number: len(late_ms) == wanted,  # type: ignore[misc]
                within=SOON,
                sentence="it has come",
            )
        adder.stdin.close()
        assert await adder.wait() == 0
        # On a machine that does other things as well, some of them may be late all the same.
        assert 0 <= min(late_ms) < 40

    async def test_a_retry_of_another_worker_wakes_it(self, harness: Harness) -> None:
        boom = Boom(times=1)
        await harness.start_worker(boom, promote=False, backoff=Backoff.fixed(0.05))
        async with Promoter(QUEUE, harness.running.url):
            await until_heard(harness)
            await harness.queue.add("boom")
            await boom.until(2)

    async def test_a_job_that_is_brought_forward_wakes_it(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        job = await harness.queue.add("a", delay=3600)
        await until_heard(harness)
        assert await harness.queue.reschedule(job.id, delay=0.05)
        await calls.until(1)

    async def test_a_bell_that_could_not_be_heard_is_heard_again(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        harness.admin.set(KEYS.bell, "no bell")
        harness.reset_calls()
        calls = Calls()
        await harness.start_worker(calls)
        await wait_until(
            lambda: harness.calls("blpop") >= 3, within=SOON, sentence="it has tried three times"
        )
        harness.admin.delete(KEYS.bell)
        await harness.queue.add("a", delay=0.02)
        await calls.until(1)
        assert caplog.text.count("wakeup of the promoter of queue 'work' failed") == 1

    async def test_a_lost_connection_is_made_again(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        for number in (1, 2):
            await until_heard(harness)
            for ear in ears(harness):
                harness.admin.execute_command("CLIENT KILL ID", ear)
            await harness.queue.add("a", delay=0.02)
            await calls.until(number)


async def test_a_peer_that_does_not_ring_is_served_all_the_same(harness: Harness) -> None:
    calls = Calls()
    await harness.start_worker(calls)
    await until_heard(harness)
    now: Any = harness.admin.time()
    harness.admin.zadd(
        KEYS.delayed, {b"\0\0\0\0" + envelope(): now[0] * 1000 + now[1] // 1000 + 50}
    )
    await calls.until(1)
