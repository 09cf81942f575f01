"""The tables of the guide name exactly what there is: what is new and not told of fails here."""

import inspect
import logging
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tampu import (
    BuryReason,
    CancelState,
    EventKind,
    Handler,
    JobInfo,
    JobState,
    NewJob,
    Overlap,
    ScheduleCounts,
    ScheduleSettings,
    Verdict,
)
from tampu.admin.queues import Counts
from tampu.backoff import DEFAULT_BACKOFF
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.job import JobOptions
from tampu.metrics import facts
from tampu.producer.options import QueueOptions, QueueSettings
from tampu.scheduler import LogObserver, RedisStore, ScheduledTask, Scope, SkipReason, events
from tampu.scheduler.events import LeaseEvent, RunEvent, TaskEvent
from tampu.scheduler.redis_guard import GuardOptions, GuardSettings, LeaseOptions, LeaseSettings
from tampu.scheduler.scheduler import SchedulerOptions, SchedulerSettings
from tampu.tasks.settings import TaskOptions, TaskSettings
from tests.guide.pages import GUIDE, first_cells

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SHOWN: dict[object, str] = {
    DEFAULT_BACKOFF: "Backoff.exponential(0.1, jitter=0.1)",
    Overlap.ALLOW: "Overlap.ALLOW",
    Overlap.SKIP: "Overlap.SKIP",
    Scope.OCCURRENCE: "Scope.OCCURRENCE",
}

BASES = {TaskEvent, RunEvent, LeaseEvent}


def _shown(default: object) -> str:
    return SHOWN.get(default) or repr(default).replace("'", '"')


def _default(field: "Field[Any]") -> str:
    made = field.default_factory
    return _shown(field.default) if made is MISSING else f"{type(made()).__name__}()"


def _defaults(kind: "type[DataclassInstance]") -> list[tuple[str, str]]:
    return [
        (field.name, _default(field))
        for field in fields(kind)
        if field.default is not MISSING or field.default_factory is not MISSING
    ]


def _structs(module: object) -> list[type[msgspec.Struct]]:
    """The kinds of values that a module tells of, in its order."""
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind is not msgspec.Struct
    ]


class TestOptions:
    def test_of_a_queue(self) -> None:
        told = first_cells(GUIDE / "producing.md", "Options of a queue")
        assert told == _defaults(QueueSettings)
        assert [name for name, _ in told] == list(QueueOptions.__annotations__)

    def test_of_a_job(self) -> None:
        told = first_cells(GUIDE / "producing.md", "Options of a job")
        assert [name for name, _ in told] == list(JobOptions.__annotations__)
        assert list(NewJob.__struct_fields__) == ["name", "data", *JobOptions.__annotations__]

    def test_of_a_worker(self) -> None:
        told = first_cells(GUIDE / "handling.md", "Options of a worker")
        assert told == _defaults(WorkerSettings)
        assert [name for name, _ in told] == list(WorkerOptions.__annotations__)

    def test_of_a_schedule(self) -> None:
        told = first_cells(GUIDE / "scheduling.md", "Options of a schedule")
        assert told == _defaults(ScheduleSettings)

    def test_of_a_handler(self) -> None:
        told = first_cells(GUIDE / "handling.md", "Options of a handler")
        assert told == _defaults(Handler)

    def test_of_a_scheduled_task(self) -> None:
        told = first_cells(GUIDE / "scheduler.md", "Options of a task")
        assert told == _defaults(ScheduledTask)

    def test_of_a_scheduler(self) -> None:
        told = first_cells(GUIDE / "scheduler.md", "Options of a scheduler")
        assert told == _defaults(SchedulerSettings)
        assert [name for name, _ in told] == list(SchedulerOptions.__annotations__)

    def test_of_a_redis_store(self) -> None:
        told = first_cells(GUIDE / "scheduler-stores.md", "Options of a Redis store")
        taken = inspect.signature(RedisStore).parameters.values()
        assert told == [(option.name, _shown(option.default)) for option in taken]

    def test_of_a_guard(self) -> None:
        told = first_cells(GUIDE / "scheduler-guards.md", "Options of a guard")
        assert told == _defaults(GuardSettings)
        assert {name for name, _ in told} == set(GuardOptions.__annotations__)

    def test_of_a_coordinated_store(self) -> None:
        told = first_cells(GUIDE / "scheduler-guards.md", "Options of a coordinated store")
        assert told == _defaults(LeaseSettings)
        assert [name for name, _ in told] == list(LeaseOptions.__annotations__)

    def test_of_a_task(self) -> None:
        told = first_cells(GUIDE / "tasks.md", "Options of a task")
        assert told == _defaults(TaskSettings)
        assert [name for name, _ in told] == list(TaskOptions.__annotations__)


class TestKinds:
    def test_every_reason_to_bury_is_documented(self) -> None:
        told = first_cells(GUIDE / "retrying.md", "Why a job is buried")
        assert told == [(f"BuryReason.{each.name}", each.value) for each in BuryReason]

    def test_every_event_is_documented(self) -> None:
        told = first_cells(GUIDE / "events.md", "Kinds")
        assert told == [(f"EventKind.{each.name}", each.value) for each in EventKind]

    def test_every_state_of_a_job_and_all_that_it_tells_is_documented(self) -> None:
        told = first_cells(GUIDE / "watching-and-stopping.md", "What a job tells")
        names = [name for cell, _ in told for name in cell.replace("`", "").split(", ")]
        states = [f"JobState.{each.name}" for each in JobState]
        assert names[: len(states)] == states
        assert sorted(names[len(states) :]) == sorted(
            {*JobInfo.__struct_fields__} - {"id", "state"}
        )

    def test_every_answer_to_a_cancel_is_documented(self) -> None:
        told = first_cells(GUIDE / "watching-and-stopping.md", "Cancel a job")
        assert [name for name, _ in told] == [f"CancelState.{each.name}" for each in CancelState]

    def test_every_outcome_is_documented(self) -> None:
        told = first_cells(GUIDE / "producing.md", "When an add raises")
        assert [name for name, _ in told] == [f"Verdict.{each.name}" for each in Verdict]

    def test_every_count_is_documented(self) -> None:
        told = first_cells(GUIDE / "producing.md", "Counting")
        assert [name for name, _ in told] == list(Counts.__struct_fields__)

    def test_every_count_of_a_schedule_is_documented(self) -> None:
        told = first_cells(GUIDE / "scheduling.md", "List and remove")
        assert [name for name, _ in told] == list(ScheduleCounts.__struct_fields__)

    def test_every_fact_for_metrics_is_documented(self) -> None:
        told = first_cells(GUIDE / "handling.md", "Metrics")
        assert [name for name, _ in told] == [kind.__name__ for kind in _structs(facts)]

    def test_every_scheduler_event_is_documented_with_its_level(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        told = first_cells(GUIDE / "scheduler-events.md", "Observers")
        caplog.set_level(logging.DEBUG, "tampu.scheduler")
        for kind in _structs(events):
            if kind not in BASES:
                needed = [field for field in msgspec.structs.fields(kind) if field.required]
                LogObserver().on_event(kind(**{field.name: 0 for field in needed}))  # type: ignore[arg-type]
        logged = [(log.message.partition(" ")[0], log.levelname.lower()) for log in caplog.records]
        assert told == logged

    def test_every_reason_to_skip_an_occurrence_is_documented(self) -> None:
        told = first_cells(GUIDE / "scheduler-policies.md", "Why an occurrence does not run")
        assert [name for name, _ in told] == [f"SkipReason.{each.name}" for each in SkipReason]
