"""What a scheduler logs, with and without a `LogObserver`."""

import asyncio
import logging

import pytest

from tampu.scheduler import (
    ClockJumped,
    Event,
    LogObserver,
    RunSkipped,
    RunStarted,
    Scheduler,
    SkipReason,
    Source,
    StateLoaded,
    StopReason,
    TaskStopped,
)
from tampu.timing import At, Every
from tests.unit.scheduler.harness import SOON, task
from tests.unit.scheduler.plans import nothing
from tests.unit.scheduler.stores.fragile import UNREACHABLE, FragileStore
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leftovers")


class TestLogging:
    """Problems are logged without an observer too."""

    async def test_the_start_and_the_end_of_an_outage_of_the_store_are_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "tampu.scheduler")
        store = FragileStore()
        store.error = UNREACHABLE
        scheduler = Scheduler(store=store)
        running = asyncio.ensure_future(scheduler.run(task(nothing, At())))
        await wait_until(lambda: len(store.calls) > 2, within=SOON, sentence="it tries again")
        store.error = None
        await asyncio.wait_for(running, SOON)
        assert caplog.messages == [
            f"cannot reach the task store, trying again; LOAD failed: {UNREACHABLE}",
            "the task store can be reached again",
        ]
        assert vars(caplog.records[0])["error"] == str(UNREACHABLE)

    async def test_a_failed_run_is_logged_with_its_traceback(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(run: object) -> None:
            del run
            raise ValueError("no disk")

        report = await asyncio.wait_for(
            Scheduler().run(task(fails, Every("1ms"), max_runs=1)), SOON
        )
        assert report.state.last_error == "ValueError: no disk"
        (record,) = caplog.records
        [run] = report.history
        when = run.scheduled_at.isoformat()
        assert record.message == f"task t, scheduled for {when}, failed: ValueError: no disk"
        facts = {"task_id": "t", "at_ms": run.at_ms, "error": "ValueError: no disk"}
        assert facts.items() <= vars(record).items()
        assert "in fails" in caplog.text, "the traceback is logged"


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (
            StateLoaded(task_id="t", source=Source.NEW, fired=0, next_ms=1000),
            logging.INFO,
            "StateLoaded task_id='t' source=NEW fired=0 next=1970-01-01T00:00:01+00:00",
        ),
        (
            TaskStopped(task_id="t", reason=StopReason.TERMINAL, fired=0),
            logging.INFO,
            "TaskStopped task_id='t' reason=TERMINAL fired=0",
        ),
        (ClockJumped(by_ms=5000), logging.WARNING, "ClockJumped by_ms=5000"),
        (
            RunStarted(task_id="t", at_ms=1000),
            logging.DEBUG,
            "RunStarted task_id='t' at=1970-01-01T00:00:01+00:00 catch_up=False manual=False "
            "fired=0 replayed=False",
        ),
        (
            RunSkipped(task_id="t", at_ms=1000, last_ms=2000, count=2, reason=SkipReason.MISSED),
            logging.DEBUG,
            "RunSkipped task_id='t' at=1970-01-01T00:00:01+00:00 catch_up=False manual=False "
            "fired=0 reason=MISSED count=2 last=1970-01-01T00:00:02+00:00",
        ),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_log_observer_logs_the_facts_of_an_event_at_its_level(
    event: Event, level: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "tampu.scheduler"):
        LogObserver().on_event(event)
    [record] = caplog.records
    assert (record.levelno, record.message) == (level, text)
    assert "event_task_id" in vars(record) or "event_by_ms" in vars(record)
    caplog.clear()
    with caplog.at_level(logging.ERROR, "tampu.scheduler"):
        LogObserver().on_event(event)
    assert caplog.records == []
