"""The tables of the guide name exactly what there is: what is new and not told of fails here."""

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

import msgspec

from tampu import (
    BuryReason,
    EventKind,
    Handler,
    NewJob,
    Overlap,
    ScheduleCounts,
    ScheduleSettings,
    Verdict,
)
from tampu.admin.counts import Counts
from tampu.backoff import DEFAULT_BACKOFF
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.job import JobOptions
from tampu.metrics import facts
from tampu.queue_options import QueueOptions, QueueSettings
from tampu.tasks.task import TaskOptions, TaskSettings
from tests.guide.pages import GUIDE, first_cells

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SHOWN: dict[object, str] = {
    DEFAULT_BACKOFF: "Backoff.exponential(0.1, jitter=0.1)",
    Overlap.ALLOW: "Overlap.ALLOW",
}


def _defaults(kind: "type[DataclassInstance]") -> list[tuple[str, str]]:
    return [
        (field.name, SHOWN.get(field.default) or repr(field.default).replace("'", '"'))
        for field in fields(kind)
        if field.default is not MISSING
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

    def test_of_a_task(self) -> None:
        told = first_cells(GUIDE / "tasks.md", "Options of a task")
        assert told == _defaults(TaskSettings)
        assert [name for name, _ in told] == list(TaskOptions.__annotations__)


class TestKinds:
    def test_every_reason_of_a_burial_is_told_of(self) -> None:
        told = first_cells(GUIDE / "retrying.md", "Why a job is buried")
        assert told == [(f"BuryReason.{each.name}", each.value) for each in BuryReason]

    def test_every_kind_of_event_is_told_of(self) -> None:
        told = first_cells(GUIDE / "events.md", "Kinds")
        assert told == [(f"EventKind.{each.name}", each.value) for each in EventKind]

    def test_every_verdict_is_told_of(self) -> None:
        told = first_cells(GUIDE / "producing.md", "When an add raises")
        assert [name for name, _ in told] == [f"Verdict.{each.name}" for each in Verdict]

    def test_every_count_is_told_of(self) -> None:
        told = first_cells(GUIDE / "producing.md", "Counting")
        assert [name for name, _ in told] == list(Counts.__struct_fields__)

    def test_every_count_of_a_schedule_is_told_of(self) -> None:
        told = first_cells(GUIDE / "scheduling.md", "Looking")
        assert [name for name, _ in told] == list(ScheduleCounts.__struct_fields__)

    def test_every_fact_for_metrics_is_told_of(self) -> None:
        told = first_cells(GUIDE / "handling.md", "Measuring")
        assert [name for name, _ in told] == [
            kind.__name__
            for kind in vars(facts).values()
            if isinstance(kind, type)
            and issubclass(kind, msgspec.Struct)
            and kind is not msgspec.Struct
        ]
