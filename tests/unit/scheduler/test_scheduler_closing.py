"""Serving, sharing and closing a scheduler."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tampu.errors import OptionError, WrongContext
from tampu.scheduler import (
    MemoryStore,
    RunStatus,
    ScheduledTask,
    Scheduler,
    StopReason,
    TaskReport,
    TaskRun,
    TaskState,
)
from tampu.scheduler.stores.coordinated import CoordinatedStore
from tampu.timing import At, Every, Overlap
from tests.unit.scheduler.harness import SOON, Harness, HeldFunction, finish, minutes, task
from tests.unit.scheduler.plans import MINUTE, SECOND, START_MS, ms, nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leftovers")


class TestServing:
    async def test_serve_returns_a_report_for_each_task(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing, Every("10s"), id="a", max_runs=6))
            scheduler.add(task(nothing, Every("20s"), id="b", max_runs=3))
            serving = asyncio.ensure_future(scheduler.serve())
            await harness.turn(MINUTE)
            reports = await finish(serving)
        assert {key: report.state.ran for key, report in reports.items()} == {"a": 6, "b": 3}

    async def test_serve_reports_tasks_that_were_added_and_ended_meanwhile(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing, At(), id="before"))
            scheduler.add(task(nothing, max_runs=1, id="long"))
            await harness.idle()
            serving = asyncio.ensure_future(scheduler.serve())
            await harness.idle()
            scheduler.add(task(nothing, At(), id="meanwhile"))
            await harness.turn(MINUTE)
            reports = await finish(serving)
            assert set(reports) == {"before", "long", "meanwhile"}

    async def test_serve_reports_the_last_thousand_tasks_that_ended_before(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            for n in range(1010):
                scheduler.add(task(nothing, At(), id=f"t{n}"))
            await harness.idle()
            reports = await asyncio.wait_for(scheduler.serve(), SOON)
        assert list(reports) == [f"t{n}" for n in range(10, 1010)]

    async def test_serve_returns_at_once_without_tasks(self) -> None:
        async with Harness().scheduler as scheduler:
            assert await asyncio.wait_for(scheduler.serve(), SOON) == {}

    async def test_a_task_may_add_another(self) -> None:
        harness = Harness()

        def add_another(run: TaskRun[Any]) -> None:
            harness.scheduler.add(task(nothing, Every("1s"), id=f"{run.at_ms}", max_runs=1))

        async with harness.scheduler as scheduler:
            scheduler.add(task(add_another, max_runs=1))
            serving = asyncio.ensure_future(scheduler.serve())
            await harness.turn(MINUTE + SECOND)
            reports = await finish(serving)
            assert set(reports) == {"t", f"{START_MS + MINUTE}"}

    async def test_an_id_that_is_taken_is_refused_by_name(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            with pytest.raises(OptionError, match="already has a task with this id") as caught:
                scheduler.add(task(nothing, Every("5s")))
            assert caught.value.option == "id"
            with pytest.raises(OptionError):
                await scheduler.run(task(nothing))
            await harness.turn(MINUTE)
            assert harness.log.started == minutes([1]), "the first task continues"

    async def test_runs_of_a_coordinated_store_cannot_overlap(self) -> None:
        scheduler = Scheduler(store=CoordinatedStore("redis://127.0.0.1:1"))
        with pytest.raises((OptionError, WrongContext)):
            scheduler.add(task(nothing, overlap=Overlap.ALLOW))

    @pytest.mark.parametrize("what", ["add", "handle", "serve", "cancel", "shutdown"])
    async def test_a_scheduler_that_is_not_open_refuses_calls(self, what: str) -> None:
        scheduler = Harness().scheduler
        calls: dict[str, Any] = {"add": (task(nothing),), "handle": ("t",)}
        with pytest.raises(
            WrongContext, match="the scheduler is not open; use `async with scheduler`"
        ):
            answer = getattr(scheduler, what)(*calls.get(what, ()))
            if what == "serve":
                await answer


class TestSharing:
    async def test_two_calls_of_run_share_one_loop(self) -> None:
        harness = Harness()
        first = await harness.start_run(task(nothing, id="a", max_runs=1))
        second = await harness.start_run(task(nothing, id="b", max_runs=2))
        loops = [t for t in asyncio.all_tasks() if t.get_name() == "tampu-scheduler"]
        assert len(loops) == 1
        await harness.turn(MINUTE)
        assert (await finish(first)).state.ran == 1
        await harness.turn(MINUTE)
        assert (await finish(second)).state.ran == 2

    async def test_it_stays_open_until_its_last_user_has_left(self) -> None:
        harness = Harness()
        async with harness.scheduler:
            async with harness.scheduler as scheduler:
                scheduler.add(task(nothing))
            await harness.turn(MINUTE)
            assert harness.log.started == minutes([1])

    async def test_it_can_be_opened_again(self) -> None:
        harness = Harness()
        for n in (1, 2):
            async with harness.scheduler as scheduler:
                handle = scheduler.add(task(nothing))
                await harness.turn(MINUTE)
                assert handle.report().state.ran == n

    async def test_a_cancelled_run_call_cancels_the_runs_of_its_task(self) -> None:
        function, harness = HeldFunction(), Harness()
        running = await harness.start_run(task(function))
        await harness.turn(MINUTE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finish(running)
        assert (function.active, function.cancelled) == (0, 1)

    async def test_a_cancelled_run_call_in_an_open_scheduler_removes_its_task(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            running = await harness.start_run(task(nothing))
            running.cancel()
            await asyncio.wait([running])
            await harness.idle()
            scheduler.add(task(nothing))  # its id is free again
            await harness.turn(MINUTE)
        assert harness.log.started == minutes([1])


class TestClosing:
    async def test_closing_waits_for_active_runs(self) -> None:
        function, harness = HeldFunction(), Harness()

        async def open_and_close() -> TaskReport:
            async with harness.scheduler as scheduler:
                handle = scheduler.add(task(function))
                await harness.turn(MINUTE)
            return handle.report()

        closing = asyncio.ensure_future(open_and_close())
        await wait_until(lambda: function.active == 1, within=SOON, sentence="the run has started")
        for _ in range(100):
            await asyncio.sleep(0)
        assert not closing.done()
        function.release()
        report = await finish(closing)
        assert report.history[0].status is RunStatus.SUCCESS
        assert report.stopped is StopReason.SHUTDOWN

    async def test_runs_are_cancelled_when_the_grace_is_over(self) -> None:
        function = HeldFunction()
        harness = Harness(grace=0.02)
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await harness.turn(MINUTE)
        report = handle.report()
        assert report.history[0].status is RunStatus.CANCELLED
        assert function.runs[0].cancelled
        assert (report.state.ran, report.state.failed) == (1, 0)

    async def test_an_error_inside_async_with_cancels_the_runs_at_once(self) -> None:
        function, harness = HeldFunction(), Harness(grace="1h")
        with pytest.raises(ZeroDivisionError):
            async with harness.scheduler as scheduler:
                handle = scheduler.add(task(function))
                await harness.turn(MINUTE)
                raise ZeroDivisionError
        assert function.cancelled == 1
        assert handle.report().stopped is StopReason.SHUTDOWN

    async def test_a_run_that_has_not_started_yet_is_cancelled_too(self) -> None:
        gate = asyncio.Event()

        class SlowStore(MemoryStore):
            async def save(self, states: Sequence[TaskState]) -> None:
                if any(state.ran for state in states):
                    await gate.wait()
                await super().save(states)

        function = HeldFunction()
        harness = Harness(store=SlowStore(), grace=0)
        closing: asyncio.Future[None]

        async def open_and_close() -> None:
            async with harness.scheduler as scheduler:
                scheduler.add(task(function))
                await harness.idle()
                harness.clock.turn(ms(MINUTE))
                for _ in range(20):
                    await asyncio.sleep(0)

        closing = asyncio.ensure_future(open_and_close())
        for _ in range(200):
            await asyncio.sleep(0)
        assert not closing.done()
        gate.set()
        await finish(closing)
        assert function.active == 0

    async def test_a_cancelled_close_cancels_the_runs(self) -> None:
        function, harness = HeldFunction(), Harness()

        async def open_and_close() -> None:
            async with harness.scheduler as scheduler:
                scheduler.add(task(function))
                await harness.turn(MINUTE)

        closing = asyncio.ensure_future(open_and_close())
        await wait_until(lambda: function.active == 1, within=SOON, sentence="the run has started")
        for _ in range(50):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finish(closing)
        await wait_until(lambda: function.active == 0, within=SOON, sentence="the run is cancelled")

    async def test_closing_waits_for_a_blocking_run(self) -> None:
        started, go_on, done = threading.Event(), threading.Event(), []

        def block(run: TaskRun[Any]) -> None:
            started.set()
            go_on.wait(SOON)
            done.append(run.at_ms)

        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(block, blocking=True))
            await harness.turn(MINUTE)
            await wait_until(started.is_set, within=SOON, sentence="it has started")
            go_on.set()
        assert done == [START_MS + MINUTE]

    async def test_a_scheduler_on_the_clock_of_the_machine(self) -> None:
        seen: list[TaskRun[str]] = []
        each = ScheduledTask("t", Every("5ms"), seen.append, deps="deps", max_runs=3)
        report = await asyncio.wait_for(Scheduler().run(each), SOON)
        assert [run.deps for run in seen] == ["deps"] * 3
        assert all(record.started_ms >= record.at_ms for record in report.history)
        assert report.stopped is StopReason.TERMINAL
