"""The tables of queues and workers fit into 80 columns."""

from datetime import UTC, datetime, timedelta

from msgspec import structs

from tampu import Counts
from tampu.admin.queues import QueueSummary
from tampu.admin.workers import WorkerInfo, WorkerState
from tampu.cli.inspect import queue_page, queues_table
from tampu.server.gates import GateState
from tests.unit.cli.tables import print_view

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
GONE = WorkerInfo(id="t-01M7FR28PV0SZ7PZH2F7DR0C04", state=WorkerState.GONE, active=3, idle_ms=9)
ALIVE = WorkerInfo(
    id="t-01M7FR28PV0SZ7PZH2F7DR0C05",
    state=WorkerState.ALIVE,
    active=3,
    idle_ms=9,
    host="a-host-with-a-long-name.in.some.data.center.example",
    pid=4_000_000,
    started_at=NOW - timedelta(days=3, hours=4),
    concurrency=100,
)
SUMMARY = QueueSummary(
    queue="a-queue-with-quite-a-long-name-as-people-have-them",
    group="default",
    at=NOW,
    counts=Counts(waiting=1_000_000, active=100, delayed=20_000, dead=3000, schedules=12),
    oldest_waiting_at=NOW - timedelta(seconds=90),
    next_due_at=NOW - timedelta(seconds=3),
    paused=False,
    workers=[ALIVE, GONE],
)


def test_numbers_are_never_cut_however_long_the_name_of_a_queue() -> None:
    head, row = print_view(queues_table([SUMMARY]))
    assert head.split()[1:] == [
        *("Waiting", "Active", "Delayed", "Dead", "Schedules", "Workers", "Oldest"),
    ]
    assert row.split()[1:] == ["1000000", "100", "20000", "3000", "12", "1", "1m30s"]
    assert row.startswith("a-queue-")
    assert row.split()[0].endswith("…")


def test_a_narrow_terminal_cuts_columns_off_at_the_right() -> None:
    lines = print_view(queues_table([SUMMARY]), width=40)
    assert lines[0].split() == ["Queue", "Waiting", "Active", "Delayed", "Dead"]
    assert lines[1].split()[:2] == ["a-queue…", "1000000"]


def test_the_page_of_a_queue_shows_ages_and_workers() -> None:
    lines = print_view(queue_page(SUMMARY, "redis://here:6379/0"))
    assert "Waiting    1000000, the oldest for 1m30s" in lines
    assert "Delayed    20000, the next due 3s ago" in lines
    assert "Workers    1 alive" in lines
    assert not any(line.startswith(("In lines", "Dropped")) for line in lines)
    alive, gone = lines[-2:]
    assert alive.startswith(f"{ALIVE.id}  alive  ")
    assert alive.split()[-3:] == ["4000000", "3/100", "3d4h"]
    assert gone.split() == [GONE.id, "gone", "-", "-", "3/-", "-"]


def test_a_queue_with_flow_control_tells_of_lines_and_dropped_jobs() -> None:
    summary = structs.replace(SUMMARY, gate=GateState(waiting=12, room=0, dropped=3))
    lines = print_view(queue_page(summary, "redis://here:6379/0"))
    assert "In lines   12 of those that wait" in lines
    assert "Dropped    3, for a newer job or because a line was full" in lines
