"""A paused queue: no worker starts a job until it is resumed, whatever is restarted meanwhile."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from tampu import Every, Job, JobState, Queue, Worker
from tampu.services import reaper
from tests.conftest import Start
from tests.contract.cli import tampu
from tests.contract.workers import KEYS, QUEUE, SOON, Calls, Gate, Harness
from tests.servers import RunningServer
from tests.waiting import wait_until


async def pause_with_running(harness: Harness, **options: Any) -> Gate:  # noqa: ANN401 - of a worker
    """A paused queue, and a worker that knows it and runs one job."""
    gate = Gate()
    await harness.start_worker(gate, **options)
    await harness.queue.add_each("x", ["runs", "is cancelled"])
    await gate.until(2)
    await harness.pause(gate)
    return gate


@pytest.mark.every_server
class TestPause:
    async def test_running_jobs_go_on_and_no_other_starts_until_it_is_resumed(
        self, harness: Harness
    ) -> None:
        gate = await pause_with_running(harness)
        jobs = await harness.queue.add_each("x", range(20))
        gate.open.set()
        await wait_until(
            lambda: harness.pending() == 0, within=SOON, sentence="the running job has ended"
        )
        assert gate.ended == 1
        assert (await harness.queue.counts()).waiting == 20
        assert {(await job.info()).state for job in jobs} == {JobState.WAITING}
        assert await harness.queue.resume() is True
        await harness.until_settled()
        assert sorted(gate.data[2:]) == list(range(20))
        assert set(gate.attempts) == {1}

    async def test_it_says_whether_it_changed_anything(self, harness: Harness) -> None:
        queue = harness.queue
        assert await queue.is_paused() is False
        assert await queue.resume() is False
        assert (await queue.pause(), await queue.pause()) == (True, False)
        assert await queue.is_paused() is True
        assert (await queue.resume(), await queue.resume()) == (True, False)
        assert await queue.is_paused() is False

    async def test_jobs_that_a_worker_has_read_ahead_go_back_and_no_attempt_counts(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reaper, "_STALE_S", 60.0)  # not because they have waited too long
        gate = Gate()

        async def handle(job: Job[Any]) -> object:
            return await gate(job) if job.data >= 2000 else None

        await harness.start_worker(handle, concurrency=1)
        await harness.queue.add_each("x", range(2300))
        await gate.until(1)
        assert await harness.queue.pause() is True
        await wait_until(
            lambda: harness.pending() == 1, within=SOON, sentence="only what runs is held"
        )
        assert (await harness.queue.counts()).waiting == 299
        gate.open.set()
        await wait_until(lambda: gate.ended == 1, within=SOON, sentence="the running job ends")
        assert len(gate) == 1
        assert await harness.queue.resume() is True
        await harness.until_settled()
        assert sorted(gate.data) == list(range(2000, 2300))
        assert set(gate.attempts) == {1}

    async def test_it_wakes_all_workers_when_it_is_resumed(self, harness: Harness) -> None:
        gates = [Gate() for _ in range(3)]
        for gate in gates:
            await harness.start_worker(gate, concurrency=1)
        assert await harness.queue.pause() is True
        await harness.queue.add_each("x", range(3))
        assert await harness.queue.resume() is True
        for gate in gates:
            await gate.until(1)
            gate.open.set()
        await harness.until_settled()
        assert [len(gate) for gate in gates] == [1, 1, 1]

    async def test_it_can_be_paused_and_resumed_in_quick_succession(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls, concurrency=5)
        for number in range(20):
            await harness.queue.add_each("x", range(10 * number, 10 * number + 10))
            await harness.queue.pause()
            await harness.queue.resume()
        await harness.until_settled()
        assert sorted(calls.data) == list(range(200))
        assert set(calls.attempts) == {1}

    async def test_a_worker_that_is_paused_can_be_stopped(self, harness: Harness) -> None:
        await pause_with_running(harness)
        await asyncio.wait_for(harness.workers[0].stop(grace=0), SOON)
        assert (await harness.queue.counts()).waiting == 1  # what ran is released

    async def test_other_queues_go_on(self, harness: Harness) -> None:
        await pause_with_running(harness)
        calls, url = Calls(), harness.running.url
        async with Queue("other", url) as other, Worker("other", calls, url):
            await other.add("x")
            await calls.until(1)


@pytest.mark.every_server
class TestTimes:
    async def test_delayed_jobs_and_schedules_keep_their_times_and_wait(
        self, harness: Harness
    ) -> None:
        gate = await pause_with_running(harness)
        stored = await harness.queue.schedules.add("tick", Every("1s"), key="tick", limit=1)
        await harness.queue.add("x", "due", delay=0.2)

        async def both_wait() -> bool:
            return [info.name async for info in harness.queue.jobs(state="waiting")].count(
                "tick"
            ) == 1 and (await harness.queue.counts()).waiting == 2

        await wait_until(both_wait, within=SOON, sentence="both are due, and wait")
        instants: list[datetime | None] = [
            info.scheduled_at
            async for info in harness.queue.jobs(state="waiting")
            if info.name == "tick"
        ]
        assert instants == [stored.next_at]
        assert len(gate) == 2
        gate.open.set()
        await harness.queue.resume()
        await harness.until_settled()
        assert sorted(job.name for job in gate.jobs[2:]) == ["tick", "x"]


@pytest.mark.every_server
class TestRestarts:
    async def test_a_worker_that_starts_while_it_is_paused_starts_nothing(
        self, harness: Harness
    ) -> None:
        """It is at work all the same: it takes over what a dead consumer held."""
        await harness.queue.pause()
        harness.admin.delete(KEYS.control)  # the message is forgotten, the state is not
        held = await harness.queue.add("x", "held")
        info = await held.info()
        assert info.entry_id is not None
        harness.hold_as_peer(info.entry_id.encode(), deliveries=1)
        await harness.queue.add_each("x", range(5))
        calls = Calls()
        await harness.start_worker(calls, lease=1)

        async def is_back() -> bool:
            return (await held.info()).state is JobState.WAITING

        await wait_until(is_back, within=SOON, sentence="it was taken over, and waits again")
        assert (await harness.queue.counts()).waiting == 6
        assert len(calls) == 0
        await harness.queue.resume()
        await calls.until(6)

    async def test_it_stays_paused_when_the_server_is_restarted(
        self, start: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", logger="tampu.consumer.control")
        running = start("--appendonly", "yes", "--appendfsync", "always")
        calls = Calls()
        async with Queue(QUEUE, running.url) as queue, Worker(QUEUE, calls, running.url):
            await queue.add("x", 1)
            await calls.until(1)
            await queue.pause()
            await wait_until(
                lambda: "queue work was paused" in caplog.text,
                within=SOON,
                sentence="the worker knows",
            )
            await queue.add("x", 2)
            running.kill()
            running.restart()
            assert await queue.is_paused() is True
            await queue.add("x", 3)
            with running.admin() as admin:
                admin.delete(KEYS.control)

            async def both_wait() -> bool:  # also one that was being read when the server died
                return (await queue.counts()).waiting == 2

            await wait_until(both_wait, within=SOON, sentence="both jobs wait")
            assert calls.data == [1]
            assert await queue.resume() is True
            await calls.until(3)
        assert sorted(calls.data) == [1, 2, 3]

    async def test_workers_that_lost_the_connection_learn_what_they_missed(
        self, harness: Harness
    ) -> None:
        gate = await pause_with_running(harness)
        for client in harness.admin.client_list(_type="normal"):
            if client["id"] != str(harness.admin.client_id()):
                harness.admin.client_kill_filter(_id=client["id"])
        harness.admin.delete(KEYS.pause, KEYS.control)  # as if somebody had resumed it
        await harness.queue.add("x", "after")
        gate.open.set()
        await harness.until_settled()
        assert gate.data[2:] == ["after"]


class TestCommands:
    async def test_pause_and_resume(self, running: RunningServer, harness: Harness) -> None:
        url = running.url
        await harness.queue.add("x")
        paused = await tampu("queue", "pause", QUEUE, url=url)
        assert (paused.code, paused.out) == (0, "work is paused.\n")
        again = await tampu("queue", "pause", QUEUE, url=url)
        assert (again.code, again.out) == (0, "work is paused already.\n")
        assert await harness.queue.is_paused() is True
        inspected = await tampu("inspect", QUEUE, url=url)
        assert "State      paused" in inspected.lines
        assert (await tampu("inspect", QUEUE, "--json", url=url)).json["queues"][0][
            "paused"
        ] is True
        listed = await tampu("queue", "ls", url=url)
        assert listed.lines[1].startswith("work (paused) ")
        resumed = await tampu("queue", "resume", QUEUE, "--json", url=url)
        of_all = {"queue": QUEUE, "task": None, "key": None}
        assert resumed.json == {**of_all, "paused": False, "changed": True}
        again = await tampu("queue", "resume", QUEUE, url=url)
        assert (again.code, again.out) == (0, "work was not paused.\n")
        assert "State" not in (await tampu("inspect", QUEUE, url=url)).out

    @pytest.mark.parametrize("command", ["pause", "resume"])
    async def test_a_queue_that_does_not_exist_is_an_error(
        self, running: RunningServer, command: str
    ) -> None:
        wrong = await tampu("queue", command, "nope", url=running.url)
        assert (wrong.code, wrong.out) == (1, "")
        assert "nope" in wrong.err
