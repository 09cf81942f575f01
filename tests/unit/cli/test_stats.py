"""What `tampu stats` prints of a history fits into 80 columns and says what it means."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tampu.cli.screen import format_bytes, format_duration, format_pace, sparkline
from tampu.cli.stats import figures_json, stats_json
from tampu.cli.stats_view import QueueStats, stats_pages, stats_table
from tampu.metrics.history import (
    Bucket,
    FailureGroup,
    Figures,
    Histogram,
    History,
    Mark,
    ProcessInfo,
    Span,
    bucket_of,
)
from tampu.wire.history import Gauges
from tests.unit.cli.tables import print_view

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
TIMES = Histogram({bucket_of(1_500): 90, bucket_of(250_000): 10}, 2_635_000)
LONG = "a-task-with-quite-a-long-name-as-people-have-them"


def stats(
    tasks: dict[str, Figures] | None = None, *, span: Span = Span.HOUR, unknown: int = 0
) -> QueueStats:
    first_ms = round((NOW - timedelta(seconds=span.steps * span.step_s)).timestamp() * 1000)
    buckets = [Bucket(first_ms + number * span.step_s * 1000) for number in range(span.steps)]
    if tasks:
        gauges = Gauges(waiting=3), Gauges(waiting=1234)
        buckets[-1] = Bucket(buckets[-1].at_ms, tasks, *gauges)
    return QueueStats(
        queue="emails",
        span=span,
        at=NOW,
        history=History("emails", span.step_s, buckets),
        now=Gauges(waiting=3, active=2, delayed=5, dead=7, oldest_ms=1500, slots=10, busy=2),
        failures=[],
        processes=[],
        marks=[],
        unknown=unknown,
    )


BUSY = Figures(done=90, failed=10, retried=9, dead=1, run=TIMES, wait=TIMES)


def test_a_page_shows_each_task_and_all_of_them() -> None:
    page = print_view(stats_pages([stats({"send": BUSY, "welcome": Figures(done=60, snoozed=4)})]))
    assert page[0] == "emails: the last hour, 1m a mark"
    assert f"Done     {'▁' * 59}█ 150" in page
    assert f"Failed   {'▁' * 59}█ 10" in page
    assert f"Backlog  {' ' * 59}█ max 1234" in page
    assert "Now      3 waiting, the oldest for 1.5s, 2 active, 5 delayed, 7 dead" in page
    rows = [line.split() for line in page]
    head = ["Task", "Rate", "Done", "Failed", "Retried", "Dead", "Snoozed", "Fail", "%"]
    assert head in rows, "nothing was cancelled, so there is no column for it"
    assert ["send", "1.5/s", "90", "10", "9", "1", "0", "10.0"] in rows
    assert ["welcome", "1.0/s", "60", "0", "0", "0", "4", "0.0"] in rows
    assert ["(all)", "2.5/s", "150", "10", "9", "1", "4", "6.2"] in rows
    times = next(row for row in rows if row[:1] == ["send"] and "ms" in row[1])
    assert times[1:6] == ["1.6ms", "240ms", "240ms", "1.6ms", "240ms"]


@pytest.mark.parametrize("span", list(Span))
def test_no_line_is_longer_than_80_columns_however_long_the_names(span: Span) -> None:
    large = Figures(10**7, 10**7, 10**7, 10**7, 10**7, 10**7, TIMES, TIMES)
    found = stats({LONG: large, "b": BUSY}, span=span)
    page = print_view(stats_pages([found]))
    assert any("10000000" in line for line in page)
    print_view(stats_table([found]))


def test_a_queue_without_history_says_so_and_still_shows_what_is_now() -> None:
    page = print_view(stats_pages([stats()]))
    assert page[0] == "emails: no job ended in the last hour."
    assert any(line.startswith("Now") for line in page)


def test_one_task_alone_has_its_own_failures_and_no_total() -> None:
    group = FailureGroup(
        fingerprint="f",
        error_type="ValueError",
        message="boom\nsecond line",
        count=12,
        first_at=NOW,
        last_at=NOW - timedelta(minutes=3),
        task="send",
        job_id="1",
        traceback="",
    )
    both = stats({"send": BUSY, "welcome": BUSY})
    whole = replace(both, failures=[group])
    page = print_view(stats_pages([whole.of_task("send")]))
    assert "   12  3m ago  send  ValueError: boom second line" in page
    assert not any("welcome" in line or "(all)" in line for line in page)
    other = print_view(stats_pages([whole.of_task("welcome")]))
    assert not any("ValueError" in line for line in other)


def test_more_tasks_than_fit_are_counted_at_the_end() -> None:
    many = {f"t{number}": Figures(done=number + 1) for number in range(23)}
    page = print_view(stats_pages([stats(many)]))
    assert "... and 3 more tasks. --task NAME shows one, --json all." in page
    assert any(line.startswith("(all)") and " 276 " in line for line in page)


def test_processes_and_marks_are_shown() -> None:
    process = ProcessInfo(
        worker="t-01M7FR28PV0SZ7PZH2F7DR0C05",
        at=NOW,
        host="a-host-with-a-long-name.in.some.data.center.example",
        pid=4_000_000,
        rss_bytes=57_000_000,
        cpu=0.5,
        lag_ms=3.9,
        slots=100,
        busy=2,
        running=[],
        version="1",
        python="3.13",
        app_version="",
    )
    marks = [Mark(NOW - timedelta(minutes=5), "v1.4")]
    whole = replace(stats({"send": BUSY}), processes=[process], marks=marks)
    page = print_view(stats_pages([whole]))
    assert "Marks    v1.4 (5m ago)" in page
    row = next(line for line in page if line.startswith(process.worker))
    assert row.split()[-6:] == ["4000000", "2/100", "50%", "57", "MB", "3.9ms"]


def test_counts_that_are_not_known_are_told_in_one_sentence() -> None:
    for view in (stats_table, stats_pages):
        text = " ".join(print_view(view([stats({"send": BUSY}, unknown=12)])))
        assert "12 jobs may be missing in the counts" in text
        assert "missing" not in " ".join(print_view(view([stats({"send": BUSY})])))


def test_a_table_of_queues_has_one_line_for_each() -> None:
    lines = print_view(stats_table([stats({"send": BUSY}), stats()]))
    assert lines[0] == "The last hour. Trend shows jobs done."
    assert lines[3].split() == [
        *("emails", "▁▁▁▁▁▁▁▁▁█", "90", "10", "10.0", "240ms", "240ms", "3", "1.5s")
    ]
    assert lines[4].split() == ["emails", "▁" * 10, "0", "0", "-", "-", "-", "3", "1.5s"]
    assert print_view(stats_table([])) == ["There are no queues."]


def test_json_has_every_step_and_seconds() -> None:
    told = stats_json(stats({"send": BUSY}))
    assert len(told["steps"]) == 60  # type: ignore[arg-type]
    last = told["steps"][-1]  # type: ignore[index]
    assert (last["done"], last["gauges"]["waiting"]) == (90, 3)
    figures = figures_json(BUSY)
    assert (figures["done"], figures["failure_rate"]) == (90, 0.1)
    assert figures["run_s"]["p50"] == pytest.approx(0.0015, rel=0.1)  # type: ignore[index]
    assert figures_json(Figures())["wait_s"] == {
        "mean": None,
        "p50": None,
        "p95": None,
        "p99": None,
    }


def test_a_sparkline_has_a_mark_for_each_value() -> None:
    assert sparkline([0, 1, 50, 100, None]) == "▁▂▅█ "
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
    assert sparkline([0.1] * 3) == "███"
    assert {sparkline([value, 21])[0] for value in range(1, 22)} == set("▂▃▄▅▆▇█")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0us"),
        (0.00025, "250us"),
        (0.0015, "1.5ms"),
        (0.0123, "12ms"),
        (1.5, "1.5s"),
    ],
)
def test_short_times_have_short_units(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"), [(20, "20/s"), (1, "1.0/s"), (0.05, "3.0/min"), (0.001, "3.6/h"), (0, "0/h")]
)
def test_a_pace_has_the_unit_in_which_it_is_above_one(per_s: float, text: str) -> None:
    assert format_pace(per_s) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(800, "1 kB"), (45_300_000, "45 MB"), (1_500_000_000, "1.5 GB"), (9e15, "9000 TB")],
)
def test_sizes_are_short(size: float, text: str) -> None:
    assert format_bytes(int(size)) == text
