"""The bell on real servers: who puts a job that is due before all others wakes the promoter."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from time import time
from typing import Any

import pytest

from tampu import Backoff, Promoter
from tampu.job import Job
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Crew, envelope
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


def rings(crew: Crew) -> int:
    """How many rings nobody has heard; they are taken away."""
    count = int(crew.admin.llen(KEYS.bell))
    crew.admin.delete(KEYS.bell)
    return count


def ears(crew: Crew) -> list[str]:
    """The connections that wait for a ring."""
    clients = crew.admin.client_list()
    return [each["id"] for each in clients if each["cmd"] == "blpop" and "b" in each["flags"]]


async def until_heard(crew: Crew) -> None:
    """Return when a promoter leads and has heard all there was."""

    def is_heard() -> bool:
        leads, rung = crew.admin.exists(KEYS.promoter_lock), crew.admin.exists(KEYS.bell)
        return bool(leads and not rung and ears(crew))

    await wait_until(is_heard, within=SOON, sentence="a promoter listens")


class TestRinging:
    async def test_only_a_job_that_is_due_before_all_others_rings(self, crew: Crew) -> None:
        queue = crew.queue
        await queue.add("a", delay=60)
        assert rings(crew) == 1, "there was none"
        await queue.add("a", delay=61)
        assert rings(crew) == 0, "it is due later"
        await queue.add("a", delay=59)
        assert rings(crew) == 1, "it is due sooner"
        await queue.add("a", at=datetime.now(UTC) + timedelta(seconds=30))
        assert rings(crew) == 1, "an instant counts like a delay"
        await queue.add("a")
        await queue.add("a", attempts=3)
        assert rings(crew) == 0, "these are not delayed"

    async def test_many_rings_are_one_and_end_by_themselves(self, crew: Crew) -> None:
        for delay in (60, 50, 40, 30):
            await crew.queue.add("a", delay=delay)
        assert 0 < crew.admin.pttl(KEYS.bell) <= 60_000
        assert rings(crew) == 1
        await crew.queue.add_each("a", range(100), delay=20)
        assert rings(crew) == 1

    async def test_an_id_that_is_taken_does_not_ring(self, crew: Crew) -> None:
        await crew.queue.add("a", job_id="x", delay=60)
        rings(crew)
        assert (await crew.queue.add("a", job_id="x", delay=1)).duplicate
        assert rings(crew) == 0

    async def test_a_retry_rings_like_a_delayed_job(self, crew: Crew) -> None:
        boom = Boom()
        await crew.hire(boom, promote=False, backoff=Backoff.fixed(60))
        for expected in (1, 0):  # the second is due later
            await crew.queue.add("boom")
            await boom.until(2 - expected)
            await wait_until(
                lambda: crew.admin.zcard(KEYS.delayed) == len(boom),
                within=SOON,
                sentence="it waits for its next attempt",
            )
            assert rings(crew) == expected

    async def test_a_job_that_is_put_off_does_not_ring_and_one_that_is_brought_forward_does(
        self, crew: Crew
    ) -> None:
        jobs = await crew.queue.add_each("a", [1, 2], delay=60)
        rings(crew)
        assert await crew.queue.reschedule(jobs[0].id, delay=120)
        assert rings(crew) == 0
        assert await crew.queue.reschedule(jobs[0].id, delay=30)
        assert rings(crew) == 1

    async def test_a_bell_that_is_none_keeps_nobody_from_adding(self, crew: Crew) -> None:
        crew.admin.set(KEYS.bell, "no bell")
        job = await crew.queue.add("a", delay=60)
        assert await crew.queue.reschedule(job.id, delay=30)
        assert crew.admin.zcard(KEYS.delayed) == 1
        assert crew.admin.get(KEYS.bell) == b"no bell"


@pytest.mark.usefixtures("sleepy")
class TestHearing:
    async def test_a_job_from_another_process_is_not_late_although_the_promoter_sleeps(
        self, crew: Crew
    ) -> None:
        late_ms: list[float] = []

        async def handle(job: Job[Any]) -> None:
            late_ms.append(time() * 1000 - job.created_at_ms - 50)

        await crew.hire(handle)
        await crew.queue.add("far away", delay=3600)
        await until_heard(crew)
        adder = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", ADD_FROM_ANOTHER_PROCESS, QUEUE, crew.running.url),
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

    async def test_a_retry_of_another_worker_wakes_it(self, crew: Crew) -> None:
        boom = Boom(times=1)
        await crew.hire(boom, promote=False, backoff=Backoff.fixed(0.05))
        async with Promoter(QUEUE, crew.running.url):
            await until_heard(crew)
            await crew.queue.add("boom")
            await boom.until(2)

    async def test_a_job_that_is_brought_forward_wakes_it(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        job = await crew.queue.add("a", delay=3600)
        await until_heard(crew)
        assert await crew.queue.reschedule(job.id, delay=0.05)
        await calls.until(1)

    async def test_a_bell_that_could_not_be_heard_is_heard_again(
        self, crew: Crew, caplog: pytest.LogCaptureFixture
    ) -> None:
        crew.admin.set(KEYS.bell, "no bell")
        crew.forget_calls()
        calls = Calls()
        await crew.hire(calls)
        await wait_until(
            lambda: crew.calls("blpop") >= 3, within=SOON, sentence="it has tried three times"
        )
        crew.admin.delete(KEYS.bell)
        await crew.queue.add("a", delay=0.02)
        await calls.until(1)
        assert caplog.messages.count("a bell cannot be heard") == 1

    async def test_a_lost_connection_is_made_again(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        for number in (1, 2):
            await until_heard(crew)
            for ear in ears(crew):
                crew.admin.execute_command("CLIENT KILL ID", ear)
            await crew.queue.add("a", delay=0.02)
            await calls.until(number)


async def test_a_peer_that_does_not_ring_is_served_all_the_same(crew: Crew) -> None:
    calls = Calls()
    await crew.hire(calls)
    await until_heard(crew)
    now: Any = crew.admin.time()
    crew.admin.zadd(KEYS.delayed, {b"\0\0\0\0" + envelope(): now[0] * 1000 + now[1] // 1000 + 50})
    await calls.until(1)
