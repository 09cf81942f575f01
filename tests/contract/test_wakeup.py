"""Wakeups on real servers: a job that is due before all others wakes the promoter."""

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
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promoter that is not woken sleeps until the next job that it knows of."""
    monkeypatch.setattr("tampu.services.leader._LOOK_S", 60.0)


def take_wakeups(harness: Harness) -> int:
    """Remove the wakeups that no promoter has taken; returns how many there were."""
    count = int(harness.admin.llen(KEYS.wakeup))
    harness.admin.delete(KEYS.wakeup)
    return count


def listeners(harness: Harness) -> list[str]:
    """The connections that wait for a wakeup."""
    clients = harness.admin.client_list()
    return [each["id"] for each in clients if each["cmd"] == "blpop" and "b" in each["flags"]]


async def wait_until_listening(harness: Harness) -> None:
    """Return when a promoter leads and has taken all wakeups."""

    def is_listening() -> bool:
        leads, has_wakeup = (
            harness.admin.exists(KEYS.promoter_lock),
            harness.admin.exists(KEYS.wakeup),
        )
        return bool(leads and not has_wakeup and listeners(harness))

    await wait_until(is_listening, within=SOON, sentence="a promoter listens")


class TestWaking:
    async def test_only_a_job_that_is_due_before_all_others_wakes_the_promoter(
        self, harness: Harness
    ) -> None:
        queue = harness.queue
        await queue.add("a", delay=60)
        assert take_wakeups(harness) == 1, "it is the first"
        await queue.add("a", delay=61)
        assert take_wakeups(harness) == 0, "it is due later"
        await queue.add("a", delay=59)
        assert take_wakeups(harness) == 1, "it is due sooner"
        await queue.add("a", at=datetime.now(UTC) + timedelta(seconds=30))
        assert take_wakeups(harness) == 1, "an instant counts like a delay"
        await queue.add("a")
        await queue.add("a", attempts=3)
        assert take_wakeups(harness) == 0, "these are not delayed"

    async def test_many_wakeups_become_one_and_expire(self, harness: Harness) -> None:
        for delay in (60, 50, 40, 30):
            await harness.queue.add("a", delay=delay)
        assert 0 < harness.admin.pttl(KEYS.wakeup) <= 60_000
        assert take_wakeups(harness) == 1
        await harness.queue.add_each("a", range(100), delay=20)
        assert take_wakeups(harness) == 1

    async def test_a_duplicate_does_not_wake_the_promoter(self, harness: Harness) -> None:
        await harness.queue.add("a", job_id="x", delay=60)
        take_wakeups(harness)
        assert (await harness.queue.add("a", job_id="x", delay=1)).duplicate
        assert take_wakeups(harness) == 0

    async def test_a_retry_wakes_the_promoter_like_a_delayed_job(self, harness: Harness) -> None:
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
            assert take_wakeups(harness) == expected

    async def test_rescheduling_wakes_the_promoter_only_for_an_earlier_time(
        self, harness: Harness
    ) -> None:
        jobs = await harness.queue.add_each("a", [1, 2], delay=60)
        take_wakeups(harness)
        assert await harness.queue.job(jobs[0].id).reschedule(delay=120)
        assert take_wakeups(harness) == 0
        assert await harness.queue.job(jobs[0].id).reschedule(delay=30)
        assert take_wakeups(harness) == 1

    async def test_a_wakeup_key_of_a_wrong_type_does_not_prevent_adding(
        self, harness: Harness
    ) -> None:
        harness.admin.set(KEYS.wakeup, "a string")
        job = await harness.queue.add("a", delay=60)
        assert await harness.queue.job(job.id).reschedule(delay=30)
        assert harness.admin.zcard(KEYS.delayed) == 1
        assert harness.admin.get(KEYS.wakeup) == b"a string"


@pytest.mark.usefixtures("no_polling")
class TestListening:
    async def test_a_job_from_another_process_wakes_a_sleeping_promoter(
        self, harness: Harness
    ) -> None:
        late_ms: list[float] = []

        async def handle(job: Job[Any]) -> None:
            late_ms.append(time() * 1000 - job.created_at_ms - 50)

        await harness.start_worker(handle)
        await harness.queue.add("far away", delay=3600)
        await wait_until_listening(harness)
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
                sentence="the job has run",
            )
        adder.stdin.close()
        assert await adder.wait() == 0
        assert min(late_ms) >= 0

    async def test_a_retry_of_another_worker_wakes_it(self, harness: Harness) -> None:
        boom = Boom(times=1)
        await harness.start_worker(boom, promote=False, backoff=Backoff.fixed(0.05))
        async with Promoter(QUEUE, harness.running.url):
            await wait_until_listening(harness)
            await harness.queue.add("boom")
            await boom.until(2)

    async def test_a_job_that_is_rescheduled_to_an_earlier_time_wakes_it(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        job = await harness.queue.add("a", delay=3600)
        await wait_until_listening(harness)
        assert await harness.queue.job(job.id).reschedule(delay=0.05)
        await calls.until(1)

    async def test_a_promoter_that_could_not_listen_listens_again(
        self,
        harness: Harness,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("tampu.server.listening._TRY_AGAIN_S", 0.2)
        monkeypatch.setattr("tampu.server.listening.BLOCK_S", 0.5)
        harness.admin.set(KEYS.wakeup, "a string")
        harness.reset_calls()
        calls = Calls()
        await harness.start_worker(calls)
        await wait_until(
            lambda: harness.calls("blpop") >= 2, within=SOON, sentence="it has tried again"
        )
        harness.admin.delete(KEYS.wakeup)
        await harness.queue.add("a", delay=0.02)
        await calls.until(1)
        assert caplog.text.count(f"nothing arrives on {KEYS.wakeup.decode()}") == 1

    async def test_a_promoter_that_lost_its_connection_listens_again(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        for number in (1, 2):
            await wait_until_listening(harness)
            for client_id in listeners(harness):
                harness.admin.execute_command("CLIENT KILL ID", client_id)
            await harness.queue.add("a", delay=0.02)
            await calls.until(number)


async def test_a_delayed_job_of_a_peer_that_sends_no_wakeup_is_promoted(harness: Harness) -> None:
    calls = Calls()
    await harness.start_worker(calls)
    await wait_until_listening(harness)
    now: Any = harness.admin.time()
    harness.admin.zadd(
        KEYS.delayed, {b"\0\0\0\0" + envelope(): now[0] * 1000 + now[1] // 1000 + 50}
    )
    await calls.until(1)
