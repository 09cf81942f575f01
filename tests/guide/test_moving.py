"""The tables of the pages about moving: what stands on our side of them is ours."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import tampu
import tampu.scheduler
from tampu import ScheduleSettings
from tampu.consumer.options import WorkerOptions
from tampu.job import JobOptions
from tampu.producer.options import QueueOptions
from tampu.scheduler import ScheduledTask
from tampu.tasks.settings import TaskOptions
from tests.guide.pages import GUIDE

PAGES = sorted(GUIDE.glob("moving-from-*.md"))
OPTIONS = {
    *JobOptions.__annotations__,
    *WorkerOptions.__annotations__,
    *QueueOptions.__annotations__,
    *TaskOptions.__annotations__,
    *(field.name for field in fields(ScheduleSettings)),
    *(field.name for field in fields(ScheduledTask)),
    *("lifespan", "worker", "default_queue"),  # of App
    *("tz", "max", "after", "error"),  # of Cron, Missed.all and Backoff, Retry, Bury
    *("args", "task", "on_complete"),  # of app.schedule, queue.pause and app.batch
    *("days", "anchor"),  # of TimeWindow and Every
    *("timezone", "store", "guard", "grace"),  # of Scheduler
}


def our_code(page: Path) -> list[str]:
    """The code in the last cells of the table of names; commands are left out."""
    section = page.read_text("utf-8").split("\n## Names\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    found = [code for row in rows[1:] for code in re.findall(r"`([^`]+)`", row[-1])]
    return [code for code in found if not code.startswith(("tampu ", "--"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_names_on_our_side_are_public(page: Path) -> None:
    named = {name for code in our_code(page) for name in re.findall(r"\b[A-Z][a-z]\w+\b", code)}
    texts = {"Europe", "Berlin", "True"}
    assert "Queue" in named or "App" in named
    assert named - texts - {*tampu.__all__, *tampu.scheduler.__all__} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_keywords_on_our_side_are_options(page: Path) -> None:
    named = {name for code in our_code(page) for name in re.findall(r"\b([a-z_]+)=", code)}
    assert "attempts" in named or "timeout" in named
    assert named - OPTIONS == set()
