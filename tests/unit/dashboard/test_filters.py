"""Which jobs a filter matches, what happened to a job, and how dead letters are grouped."""

from datetime import UTC, datetime, timedelta

import pytest

from tampu.admin.browsing import JobPlace
from tampu.dashboard.access import Redaction
from tampu.dashboard.bulk import came_at_ms
from tampu.dashboard.filters import JobFilter
from tampu.dashboard.page import RequestRefused
from tampu.dashboard.pages.dead import group_letters
from tampu.dashboard.pages.job import timeline
from tampu.job import JobEvent, JobInfo, JobState
from tampu.wire.dead import Failure
from tampu.wire.event import EventKind

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB = JobInfo(
    id="job-1",
    state=JobState.DEAD,
    name="send",
    data={"to": "Ada", "password": "hunter2", "n": [{"deep": 4711}]},
    headers={"x-request": "r-1"},
    failure=Failure("ValueError", "no route"),
    reason="retries_exhausted",
    key="k 1",
)


@pytest.mark.parametrize(
    ("parts", "is_meant"),
    [
        ({}, True),
        ({"task": "send"}, True),
        ({"task": "sen"}, False),
        ({"error": "ValueError"}, True),
        ({"error": "KeyError"}, False),
        ({"q": "ada"}, True),
        ({"q": "4711"}, True),
        ({"q": "deep"}, True),
        ({"q": "R-1"}, True),
        ({"q": "no route"}, True),
        ({"q": "job-1"}, True),
        ({"q": "hunter2"}, False),
        ({"q": "ada", "task": "bill"}, False),
        ({"key": "k 1"}, True),
        ({"key": "k"}, False),
        ({"key": "k 1", "task": "bill"}, False),
    ],
)
def test_a_filter_matches_by_task_error_and_visible_text(
    parts: dict[str, str],
    is_meant: bool,  # noqa: FBT001
) -> None:
    chosen = JobFilter.parse("emails", JobPlace.DEAD, parts)
    assert chosen.matcher(Redaction())(JOB) is is_meant
    assert JobFilter.parse("emails", JobPlace.DEAD, chosen.params) == chosen


def test_a_filter_is_a_link_and_a_sentence() -> None:
    chosen = JobFilter(queue="a&b", place=JobPlace.DEAD, task="x y", error="E", text='"')
    assert chosen.link == "jobs?queue=a%26b&state=dead&task=x+y&error=E&q=%22"
    assert chosen.describe() == 'dead jobs of a&b of the task x y with the error E with """ in them'
    assert chosen.at(JobPlace.WAITING).error == ""
    assert (
        chosen.with_key("k")
        .describe()
        .endswith('of the task x y of the key k with the error E with """ in them')
    )
    with pytest.raises(RequestRefused, match="at most 500"):
        JobFilter.parse("a", JobPlace.DEAD, {"task": "x" * 501})


def test_rows_of_lines_are_rows_of_waiting_jobs_only() -> None:
    row = f"{'0a' * 8}:any id"
    assert JobFilter(queue="a").select([row, "1-1", row]).rows == (row, "1-1")
    for place, wrong in (
        (JobPlace.ACTIVE, row),
        (JobPlace.DEAD, row),
        (JobPlace.WAITING, "0" * 16),
        (JobPlace.WAITING, "x"),
    ):
        with pytest.raises(RequestRefused, match="row must be"):
            JobFilter(queue="a", place=place).select([wrong])


def test_a_job_came_when_its_entry_was_written_or_its_last_attempt_failed() -> None:
    at = NOON.timestamp() * 1000
    assert came_at_ms(JobInfo(id="a", state=JobState.WAITING, entry_id="17-3")) == 17
    assert came_at_ms(JobInfo(id="a", state=JobState.DEAD, dead_id="18-3")) == 18
    later = NOON + timedelta(seconds=1)
    delayed = JobInfo(id="a", state=JobState.RETRYING, created_at=NOON, failed_at=(later,))
    assert came_at_ms(delayed) == at + 1000


def event(kind: EventKind, seconds: int, **fields: int | str) -> JobEvent:
    attempt = fields.get("attempt")
    number = attempt if isinstance(attempt, int) else None
    return JobEvent("1-1", kind, "a", "send", NOON + timedelta(seconds=seconds), number, fields)


def test_a_timeline_joins_events_with_what_the_job_carries() -> None:
    info = JobInfo(
        id="a",
        state=JobState.RETRYING,
        created_at=NOON,
        attempt=2,
        failed_at=(NOON + timedelta(seconds=10), NOON + timedelta(seconds=60)),
        due_at=NOON + timedelta(seconds=90),
    )
    events = [
        event(EventKind.FAILED, 60, attempt=2, reason="no route", duration_us=1500),
        event(EventKind.RETRY_SCHEDULED, 60, backoff_ms=30_000),
        event(EventKind.PROGRESS, 61, progress=5),
    ]
    told = [(each.title, each.detail) for each in timeline(info, events)]
    assert told == [
        ("Added", ""),
        ("Attempt 1 failed", ""),
        ("Attempt 2 failed", "took 1.5ms, no route"),
        ("To be tried again", "in 30s"),
        ("Due", "for its next attempt"),
    ]


def test_the_timeline_of_a_dead_job_without_events_ends_with_its_burial() -> None:
    info = JobInfo(
        id="a",
        state=JobState.DEAD,
        created_at=NOON,
        attempt=1,
        schedule_key="daily",
        reason="unknown_handler",
        ended_at=NOON + timedelta(seconds=5),
    )
    told = [(each.title, each.detail) for each in timeline(info, [])]
    assert told == [("Added", "by the schedule daily"), ("Buried", "unknown handler")]


def test_dead_letters_are_grouped_by_task_and_error() -> None:
    def letter(name: str, error: str, seconds: int) -> JobInfo:
        failure = Failure(error, f"at {seconds}") if error else None
        ended_at = NOON + timedelta(seconds=seconds)
        return JobInfo(
            id="x",
            state=JobState.DEAD,
            name=name,
            failure=failure,
            reason="expired",
            ended_at=ended_at,
        )

    newest_first = [
        letter("a", "E", 9),
        letter("b", "", 8),
        letter("a", "E", 2),
        letter("b", "E", 1),
    ]
    groups = group_letters("emails", newest_first)
    assert [(each.chosen.task, each.chosen.error, each.count) for each in groups] == [
        ("a", "E", 2),
        ("b", "expired", 1),
        ("b", "E", 1),
    ]
    assert groups[0].message == "at 9"
    assert groups[0].first_at == NOON + timedelta(seconds=2)
