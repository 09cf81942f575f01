"""Tables fit into 80 columns, and cut only what may be cut."""

from datetime import UTC, datetime, timedelta

from rich.console import Console, RenderableType

from tampu import BuryReason, Counts, Cron, DeadLetter, Every, Failure, Schedule
from tampu.admin.health import Finding, Grade
from tampu.admin.queues import QueueSummary
from tampu.admin.rates import QueueRates, Rates
from tampu.admin.workers import WorkerInfo, WorkerState
from tampu.cli.acts.bench import percentile
from tampu.cli.acts.events import event_line
from tampu.cli.show.tables import (
    findings_table,
    flow_line,
    flow_table,
    letter_page,
    letters_table,
    queue_page,
    queues_table,
    schedules_table,
)
from tampu.events import JobEvent

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
COUNTS = Counts(waiting=1_000_000, active=100, delayed=20_000, dead=3000, schedules=12)
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
OVERVIEW = QueueSummary(
    queue="a-queue-with-quite-a-long-name-as-people-have-them",
    group="default",
    at=NOW,
    counts=COUNTS,
    oldest_waiting_at=NOW - timedelta(seconds=90),
    next_due_at=NOW - timedelta(seconds=3),
    workers=[ALIVE, GONE],
)


def printed(view: RenderableType, width: int = 80) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(view)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


def letter(number: int, **more: object) -> DeadLetter:
    facts = {
        "dead_id": f"179475114468{number}-0",
        "buried_at": NOW - timedelta(hours=2),
        "name": "send [bold]mail[/bold] to everybody who ever asked for it",
        "reason": BuryReason.RETRIES_EXHAUSTED,
        "detail": None,
        "failure": Failure("ValueError", "no such\naddress " * 20, "Traceback ...\n"),
        "attempt": 25,
        "worker": "t-x",
        "job_id": "j",
        "data": {"to": "ada"},
        "raw": b"",
        "source_id": "1794751144680-0",
    }
    return DeadLetter(**(facts | more))  # type: ignore[arg-type]


def test_numbers_are_never_cut_however_long_a_queues_name() -> None:
    head, row = printed(queues_table([OVERVIEW]))
    assert head.split()[1:] == [
        *("waiting", "active", "delayed", "dead", "schedules", "workers", "oldest"),
    ]
    assert row.split()[1:] == ["1000000", "100", "20000", "3000", "12", "1", "1m30s"]
    assert row.startswith("a-queue-")
    assert row.split()[0].endswith("…")


def test_a_narrow_terminal_shows_names_and_leaves_out_what_is_at_the_right() -> None:
    lines = printed(queues_table([OVERVIEW]), width=40)
    assert lines[0].split() == ["queue", "waiting", "active", "delayed", "dead"]
    assert lines[1].split()[:2] == ["a-queue…", "1000000"]


def test_a_queues_page_tells_ages_and_workers_in_full() -> None:
    lines = printed(queue_page(OVERVIEW))
    assert "waiting    1000000, the oldest for 1m30s" in lines
    assert "delayed    20000, the next due 3s ago" in lines
    assert "workers    1 alive" in lines
    alive, gone = lines[-2:]
    assert alive.startswith(f"{ALIVE.id}  alive  ")
    assert alive.split()[-3:] == ["4000000", "3/100", "3d4h"]
    assert gone.split() == [GONE.id, "gone", "-", "-", "3/-", "-"]


def test_a_flow_is_a_row_or_a_line() -> None:
    flow = QueueRates(
        queue="emails", at=NOW, counts=COUNTS, rates=Rates(1.25, 100_000, None), workers=[ALIVE]
    )
    assert printed(flow_table([flow]))[1].split() == [
        *("emails", "1000000", "100", "20000", "3000", "1.2", "100000", "-", "1"),
    ]
    assert flow_line(flow) == (
        "2026-11-15 12:00:00Z emails waiting=1000000 active=100 delayed=20000 dead=3000 "
        "added/s=1.2 done/s=100000 failed/s=- workers=1"
    )


def test_dead_letters_keep_their_ids_and_reasons_and_cut_the_rest() -> None:
    odd = letter(2, failure=None, detail="odd", reason="stalled", attempt=None, name="")
    lines = printed(letters_table([letter(1), odd], 7, NOW))
    assert lines[1].startswith("1794751144681-0   2h  send [bo")
    assert "retries_exhausted    25  ValueErr" in lines[1]
    assert lines[2].split() == ["1794751144682-0", "2h", "stalled", "-", "odd"]
    assert lines[-1] == "2 of 7: 1 retries_exhausted, 1 stalled"
    assert printed(letters_table([], 0, NOW)) == ["There are no dead letters."]
    assert printed(letters_table([], 7, NOW)) == ["There are no more."]


def test_a_dead_letter_that_cannot_be_read_tells_its_size() -> None:
    lines = printed(letter_page(letter(1, job_id=None, raw=b"\xc1\xc1", failure=None)))
    assert "data         cannot be read; 2 bytes" in lines


def test_a_schedules_key_is_there_to_the_last_character() -> None:
    key = "a-report-with-a-long-name::cron:0 9 * * 1-5:Europe/Berlin"
    schedules = [
        Schedule(key=key, raw_key=b"", name="report", rule=Cron("0 9 * * 1-5"), next_at=NOW),
        Schedule(key="t", raw_key=b"t", name="t", rule=Every(90), next_at=NOW, paused=True),
        Schedule(key="bad", raw_key=b"bad", problem="spec cannot be decoded: it is too short."),
    ]
    lines = printed(schedules_table(schedules, NOW - timedelta(seconds=30)))
    shown = "".join(line[:40].split("  ")[0] for line in lines[1:-2])
    assert shown.replace(" ", "") == key.replace(" ", "")
    assert lines[-2].split() == ["t", "t", "paused", "0", "every", "1m30s"]
    assert "spec cannot be" in lines[-1]


def test_findings_wrap_instead_of_being_cut() -> None:
    sentence = " ".join(["word"] * 40)
    lines = printed(findings_table([Finding("memory", Grade.FAIL, sentence)]))
    assert " ".join(" ".join(lines).split()) == f"fail memory {sentence}"


def test_an_event_is_one_line_with_its_fields_by_name() -> None:
    event = JobEvent("5-0", "odd", "", "", NOW, None, {"reason": "a\nb" + "x" * 100, "attempt": 2})
    line = event_line(event)
    assert line.startswith("2026-11-15T12:00:00.000Z 5-0 odd id=- name=- attempt=2 reason=a bxxx")
    assert line.endswith("x…")


def test_a_percentile_is_one_of_the_values() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, p) for p in (50, 99, 100)] == [50, 99, 100]
    assert [percentile([7.0], p) for p in (1, 50, 99)] == [7, 7, 7]
