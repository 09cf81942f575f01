"""Rules about other jobs that wait hold however a job comes into its line."""

from collections.abc import Sequence
from typing import Any

import pytest

from tampu import App, AppWorker, Debounce, Every, JobState, NewJob, QueueFull, Snooze
from tampu.backoff import Backoff
from tampu.server.lane import Lane
from tampu.server.scripts.delayed import promote
from tampu.util.clock import now_ms
from tests.contract.workers import KEYS, SOON, Boom, Gate, Harness, until_empty
from tests.gates import ManualGate, assert_sound, look_at_gate
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

LATEST: dict[str, Any] = {"key": "a", "keep": "latest"}


async def add(gate: ManualGate, *datas: object, **options: Any) -> list[str]:  # noqa: ANN401 - of a job
    return [(await gate.queue.add("sync", data, **options)).id for data in datas]


async def what_waits(gate: ManualGate) -> list[Any]:
    """The data of all jobs in lines, in the order in which they run. They have run then."""
    gate.sound()
    return await gate.drain(1)


def dropped(gate: ManualGate) -> int:
    return int(gate.admin.hget(gate.keys.gate, "dropped") or 0)


async def states_of(gate: ManualGate, ids: Sequence[str]) -> list[JobState]:
    return [(await gate.queue.job(job_id).info()).state for job_id in ids]


class TestPauses:
    """Jobs of a paused task stay in their line."""

    @pytest.mark.parametrize("what", [{"task": "sync"}, {"task": "sync", "key": "a"}, {"key": "a"}])
    async def test_keep_latest(self, gate: ManualGate, what: dict[str, str]) -> None:
        old = await add(gate, 1, **LATEST)
        await gate.queue.pause(**what)
        assert await gate.want(5) == 0, "the gate has looked at the line"
        await add(gate, 2, 3, **LATEST)
        gate.sound()
        assert (await gate.queue.counts()).waiting == 1
        assert await states_of(gate, old) == [JobState.CANCELLED]
        await gate.queue.resume(**what)
        assert await what_waits(gate) == [3]

    async def test_max_waiting(self, gate: ManualGate) -> None:
        await add(gate, 1, 2, key="a", max_waiting=2)
        await gate.queue.pause(task="sync")
        assert await gate.want(5) == 0
        with pytest.raises(QueueFull):
            await add(gate, 3, key="a", max_waiting=2)
        await add(gate, 4, key="a", max_waiting=2, on_full="drop_new")
        await add(gate, 5, key="a", max_waiting=2, on_full="drop_old")
        await gate.queue.resume(task="sync")
        assert await what_waits(gate) == [2, 5]


class TestPriorities:
    """The jobs of a task and key count together, whatever their priority is."""

    async def test_keep_latest(self, gate: ManualGate) -> None:
        await add(gate, 1, priority=9, **LATEST)
        await add(gate, 2, priority=2, **LATEST)
        await add(gate, 3, **LATEST)
        await add(gate, "b", key="b", keep="latest", priority=9)
        assert dropped(gate) == 2
        assert await what_waits(gate) == ["b", 3]
        await gate.queue.add_many(
            [NewJob("sync", n, priority=n, **LATEST) for n in (5, 9, 1, 7)],
        )
        assert await what_waits(gate) == [7]

    async def test_max_waiting(self, gate: ManualGate) -> None:
        two: dict[str, Any] = {"key": "a", "max_waiting": 2}
        await add(gate, 1, priority=9, **two)
        began = now_ms()
        await wait_until(lambda: now_ms() > began, within=SOON, sentence="a millisecond has passed")
        await add(gate, 2, priority=1, **two)
        with pytest.raises(QueueFull):
            await add(gate, 3, **two)
        with pytest.raises(QueueFull):
            await gate.queue.add_many(
                [NewJob("sync", n, key="b", max_waiting=2, priority=n) for n in range(3)]
            )
        await add(gate, 4, on_full="drop_new", **two)
        assert dropped(gate) == 1
        await add(gate, 5, on_full="drop_old", priority=5, **two)
        assert await what_waits(gate) == [5, 2], "the one that was added first is dropped"


class TestDelays:
    """A delayed job comes into its line when it is due."""

    async def test_keep_latest(self, gate: ManualGate, lane: Lane) -> None:
        late = await add(gate, "late", delay="1h", **LATEST)
        later = await add(gate, "later", delay="2h", **LATEST)
        await add(gate, 1, 2, **LATEST)
        assert dropped(gate) == 1
        gate.admin.zadd(gate.keys.delayed, {gate.admin.zrange(gate.keys.delayed, 0, 0)[0]: 1})
        promoted = await promote(lane, gate.keys, limit=10, events_max_len=0)
        assert (promoted.moved, dropped(gate)) == (1, 2)
        assert await gate.queue.job(later[0]).run_now()
        assert await states_of(gate, late + later) == [JobState.CANCELLED, JobState.WAITING]
        assert await what_waits(gate) == ["later"]

    @pytest.mark.parametrize("by_hand", [False, True])
    @pytest.mark.parametrize(
        ("mode", "waits", "count"),
        [
            ("raise", [1, 2, "late"], 0),  # it was accepted, and so it is not lost
            ("wait", [1, 2, "late"], 0),
            ("drop_new", [1, 2], 1),
            ("drop_old", [2, "late"], 1),
        ],
    )
    async def test_max_waiting(
        self, gate: ManualGate, lane: Lane, *, by_hand: bool, mode: str, waits: object, count: int
    ) -> None:
        rule: dict[str, Any] = {"key": "a", "max_waiting": 2, "on_full": mode}
        (late,) = await add(gate, "late", delay="1h", **rule)
        await add(gate, 1, 2, **rule)
        if by_hand:
            assert await gate.queue.job(late).run_now() is (mode != "drop_new")
        else:
            gate.admin.zadd(gate.keys.delayed, {gate.admin.zrange(gate.keys.delayed, 0, 0)[0]: 1})
            await promote(lane, gate.keys, limit=10, events_max_len=0)
        assert gate.admin.zcard(gate.keys.delayed) == 0
        assert dropped(gate) == count
        assert await what_waits(gate) == waits


class TestRetries:
    """A job that runs again is older than all that came after it."""

    async def test_the_payload_of_a_failed_job_does_not_run_after_a_newer_one(
        self, harness: Harness
    ) -> None:
        calls = Boom(times=1)
        await harness.start_worker(calls, attempts=3, backoff=Backoff.fixed(3600))
        old = await harness.queue.add("sync", "old", **LATEST)
        await wait_until(
            lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it has failed"
        )
        await harness.queue.add("sync", "new", **LATEST)
        await calls.until(2)
        assert (await old.info()).state is JobState.RETRYING
        assert not await old.run_now()
        assert (await old.info()).state is JobState.CANCELLED
        await until_empty(harness)
        assert calls.data == ["old", "new"]

    @pytest.mark.parametrize("backoff", [0, 3600])
    async def test_it_is_dropped_when_it_fails_while_a_newer_one_waits(
        self, harness: Harness, backoff: int
    ) -> None:
        order = list[Any]()
        gate = Gate()

        async def handle(job: Any) -> None:  # noqa: ANN401 - a job
            order.append(job.data)
            if job.data == "old":
                await gate(job)
                raise ValueError

        await harness.start_worker(
            handle, attempts=3, backoff=Backoff.fixed(backoff), concurrency=1
        )
        old = await harness.queue.add("sync", "old", **LATEST)
        await gate.until(1)
        for n in range(5):
            await harness.queue.add("other", n, key="b")  # they take the room
        await harness.queue.add("sync", "new", **LATEST)
        gate.open.set()
        await until_empty(harness)
        assert (order.count("old"), order.count("new")) == (1, 1)
        assert (await old.info()).state is JobState.CANCELLED

    async def test_one_that_nothing_replaced_runs_again(self, harness: Harness) -> None:
        failing = Boom(times=2)
        await harness.start_worker(failing, attempts=5, backoff=Backoff.fixed(0.05))
        await harness.queue.add("sync", "only", **LATEST)
        await until_empty(harness)
        await failing.until(3)
        assert failing.data == ["only"] * 3

    async def test_one_that_put_itself_off_is_no_newer_for_that(self, harness: Harness) -> None:
        calls = Boom(Snooze("1h"), times=1)
        await harness.start_worker(calls)
        put_off = await harness.queue.add("sync", "old", job_id="put-off", **LATEST)
        await wait_until(
            lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it waits"
        )
        await harness.workers[0].stop()
        new = await harness.queue.add("sync", "new", **LATEST)
        assert not await put_off.run_now()
        assert (await new.info()).state is JobState.WAITING
        again = await harness.queue.add("sync", "x", job_id="put-off", delay="1h", **LATEST)
        assert not again.duplicate, "its id is free"
        await again.cancel()
        await new.cancel()

    async def test_max_waiting_does_not_hold_for_jobs_that_come_back(
        self, gate: ManualGate
    ) -> None:
        rule: dict[str, Any] = {"key": "a", "max_waiting": 2, "on_full": "drop_old"}
        await add(gate, 1, 2, **rule)
        await gate.want(1)
        (taken,) = gate.read()
        await add(gate, 3, **rule)
        await gate.run_again(taken)
        assert dropped(gate) == 0
        await gate.settle(gate.read())
        assert await what_waits(gate) == [2, 3]

    async def test_a_job_that_a_worker_gives_back_is_dropped_if_a_newer_one_waits(
        self, gate: ManualGate
    ) -> None:
        await add(gate, "old", **LATEST)
        await gate.want(1)
        (taken,) = gate.read()
        await gate.want(0)
        await add(gate, "new", **LATEST)
        await gate.run_again(taken)
        assert dropped(gate) == 1
        assert await what_waits(gate) == ["new"]


class TestSchedules:
    """A schedule adds its jobs like anybody else; a full line drops them, as nobody waits."""

    @pytest.mark.parametrize(
        ("rule", "most"),
        [
            ({"keep": "latest"}, 1),
            ({"max_waiting": 2}, 2),
            ({"max_waiting": 2, "on_full": "drop_new"}, 2),
            ({"max_waiting": 2, "on_full": "drop_old"}, 2),
        ],
    )
    async def test_what_it_adds_is_subject_to_the_rule_of_its_task(
        self, running: RunningServer, harness: Harness, rule: dict[str, Any], most: int
    ) -> None:
        app = App(running.url, default_queue=KEYS.name)
        app.schedule(Every("50ms"))(app.task(name="tick", **rule)(lambda: None))
        async with app:
            await app.queue().pause(task="tick")
            async with AppWorker(app):
                await wait_until(
                    lambda: int(harness.admin.hget(KEYS.gate, "dropped") or 0) >= 3,
                    within=SOON,
                    sentence="jobs of the schedule were dropped",
                )
                assert assert_sound(harness.admin, KEYS).lined == most
            await app.queue().schedules.remove("tick")
        assert look_at_gate(harness.admin, KEYS).lined == most

    async def test_its_jobs_are_debounced(self, running: RunningServer, harness: Harness) -> None:
        app = App(running.url, default_queue=KEYS.name)
        tick = app.task(name="tick", debounce=Debounce("1h"))(lambda: None)
        app.schedule(Every("50ms"))(tick)
        async with app:
            added = await tick.enqueue()
            async with AppWorker(app):
                await wait_until(
                    lambda: int(harness.admin.hget(KEYS.gate, "dropped") or 0) >= 3,
                    within=SOON,
                    sentence="jobs of the schedule were replaced",
                )
                assert (await app.queue().counts()).delayed == 1
            assert (await added.info()).state is JobState.CANCELLED
            await app.queue().schedules.remove("tick")
        harness.admin.delete(KEYS.delayed)
