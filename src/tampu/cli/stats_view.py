"""What `tampu stats` prints: a line for each queue, or a page with marks and tables."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from tampu.cli.output import escape_controls
from tampu.cli.screen import (
    NOTHING,
    count_of,
    details,
    format_age,
    format_bytes,
    format_duration,
    format_pace,
    format_span,
    full_text,
    grid,
    short_text,
    sparkline,
)
from tampu.metrics.history import (
    FailureGroup,
    Figures,
    History,
    Mark,
    ProcessInfo,
    Span,
    sum_figures,
)
from tampu.util.clock import instant
from tampu.wire.history import Gauges

COUNTS: Final = ("done", "failed", "retried", "dead", "snoozed", "cancelled")
SPAN_NAMES: Final = {Span.HOUR: "hour", Span.DAY: "24 hours", Span.MONTH: "30 days"}
_MOST_TASKS: Final = 20
_MOST_FAILURES: Final = 5
_MOST_MARKS: Final = 5
_MARKS_A_LINE: Final = 60
_MARKS_A_CELL: Final = 10


class QueueStats(Struct, frozen=True, kw_only=True):
    """What is known of a queue: what happened in a span, and what is now."""

    queue: str
    span: Span
    at: datetime  # by the server's clock
    history: History
    now: Gauges
    failures: list[FailureGroup]
    processes: list[ProcessInfo]
    marks: list[Mark]
    unknown: int

    def of_task(self, name: str) -> "QueueStats":
        """The same for the jobs of one task."""
        buckets = [
            replace(each, tasks={task: own for task, own in each.tasks.items() if task == name})
            for each in self.history.buckets
        ]
        failures = [each for each in self.failures if each.task == name]
        return replace(self, history=replace(self.history, buckets=buckets), failures=failures)

    @property
    def covered_s(self) -> float:
        """Seconds since the first step in which something happened."""
        first = next((each for each in self.history.buckets if each.tasks), None)
        since = self.at if first is None else instant(first.at_ms)
        return max(1.0, (self.at - since).total_seconds())


def stats_table(found: Sequence[QueueStats]) -> RenderableType:
    """Many queues, one a line."""
    if not found:
        return Text("There are no queues.")
    numbers = ("Done", "Failed", "Fail %", "Run p95", "Wait p95", "Waiting", "Oldest")
    table = grid("Queue", "Trend", *numbers, numbers=numbers, shrink=("Queue",))
    for each in found:
        total = each.history.total
        table.add_row(
            short_text(each.queue),
            _trend([bucket.total for bucket in each.history.buckets], _MARKS_A_CELL),
            *map(str, (total.done, total.failed)),
            _percent(total.failure_rate),
            *(format_duration(times.quantile(0.95)) for times in (total.run, total.wait)),
            str(each.now.waiting),
            format_duration(each.now.oldest_ms / 1000) if each.now.waiting else NOTHING,
        )
    title = Text(f"The last {SPAN_NAMES[found[0].span]}. Trend shows jobs done.")
    return Group(title, Text(""), table, *_notes(found))


def stats_pages(found: Sequence[QueueStats]) -> RenderableType:
    """Each queue in full."""
    parts: list[RenderableType] = []
    for each in found:
        parts += [Text("")] if parts else []
        parts += stats_page(each)
    return Group(*parts, *_notes(found))


def stats_page(stats: QueueStats) -> list[RenderableType]:
    """One queue in full."""
    tasks = _busiest_first(stats.history.tasks)
    if not tasks:
        name = f"{stats.queue}: no job ended in the last {SPAN_NAMES[stats.span]}."
        page: list[RenderableType] = [_title(name), Text(""), details(_now(stats))]
    else:
        mark = format_span(stats.history.step_s * _steps_a_mark(stats.history, _MARKS_A_LINE))
        title = f"{stats.queue}: the last {SPAN_NAMES[stats.span]}, {mark} a mark"
        page = [_title(title), Text(""), details(_lines(stats) + _now(stats)), Text("")]
        page += [_counts_table(tasks, stats), Text(""), _times_table(tasks, stats)]
        if len(tasks) > _MOST_TASKS:
            more = f"{len(tasks) - _MOST_TASKS} more tasks. --task NAME shows one, --json all."
            page += [Text(f"... and {more}")]
    for table in (_failures_table(stats), _processes_table(stats)):
        page += [] if table is None else [Text(""), table]
    return page


def _notes(found: Sequence[QueueStats]) -> list[RenderableType]:
    unknown = sum(each.unknown for each in found)
    if not unknown:
        return []
    text = (
        f"Since recording began, {count_of(unknown, 'job')} may be missing in the counts: the "
        "connection broke while they were counted."
    )
    return [Text(""), Text(text)]


def _busiest_first(tasks: dict[str, Figures]) -> list[tuple[str, Figures]]:
    return sorted(tasks.items(), key=lambda each: (-each[1].attempts, each[0]))


def _lines(stats: QueueStats) -> list[tuple[str, object]]:
    """A line of marks for what ended, and for what waited."""
    history, total = stats.history, stats.history.total
    steps = [each.total for each in history.buckets]
    lines: list[tuple[str, object]] = [("Done", f"{_trend(steps, _MARKS_A_LINE)} {total.done}")]
    if total.failed:
        marks = _trend(steps, _MARKS_A_LINE, count="failed")
        lines.append(("Failed", f"{marks} {total.failed}"))
    waiting = [None if each.highest is None else each.highest.waiting for each in history.buckets]
    if any(waiting):
        most = max(each for each in waiting if each is not None)
        lines.append(("Backlog", f"{sparkline(_fold_highest(history, waiting))} max {most}"))
    if stats.marks:
        ages = [
            f"{each.text} ({format_age(each.at, stats.at)} ago)"
            for each in stats.marks[-_MOST_MARKS:]
        ]
        lines.append(("Marks", ", ".join(reversed(ages))))
    return lines


def _now(stats: QueueStats) -> list[tuple[str, object]]:
    now = stats.now
    lined = f" ({now.in_lines} in lines)" if now.in_lines else ""
    oldest = f", the oldest for {format_duration(now.oldest_ms / 1000)}" if now.waiting else ""
    jobs = f"{now.waiting} waiting{lined}{oldest}, {now.active} active, {now.delayed} delayed"
    return [
        ("Now", f"{jobs}, {now.dead} dead"),
        ("Workers", f"{now.workers}, with {now.busy} of {count_of(now.slots, 'slot')} busy"),
    ]


def _counts_table(tasks: Sequence[tuple[str, Figures]], stats: QueueStats) -> RenderableType:
    shown = list(COUNTS[:4])
    shown += [each for each in COUNTS[4:] if any(getattr(found, each) for _, found in tasks)]
    numbers = ["Rate", *(each.title() for each in shown), "Fail %"]
    table = grid("Task", *numbers, numbers=numbers, shrink=("Task",))
    for name, figures in _with_total(tasks):
        table.add_row(
            short_text(name),
            format_pace(figures.done / stats.covered_s),
            *(str(getattr(figures, each)) for each in shown),
            _percent(figures.failure_rate),
        )
    return table


def _times_table(tasks: Sequence[tuple[str, Figures]], stats: QueueStats) -> RenderableType:
    numbers = ("Run p50", "p95", "p99", "Wait p50", "p95 ")
    table = grid("Task", *numbers, "Trend", numbers=numbers, shrink=("Task",))
    for name, figures in _with_total(tasks):
        steps = [
            each.tasks.get(name, Figures()) if name in stats.history.tasks else each.total
            for each in stats.history.buckets
        ]
        run = [figures.run.quantile(share) for share in (0.5, 0.95, 0.99)]
        wait = [figures.wait.quantile(share) for share in (0.5, 0.95)]
        table.add_row(
            short_text(name), *map(format_duration, run + wait), _trend(steps, 2 * _MARKS_A_CELL)
        )
    return table


def _with_total(tasks: Sequence[tuple[str, Figures]]) -> list[tuple[str, Figures]]:
    """The first tasks, and all of them together."""
    rows = list(tasks[:_MOST_TASKS])
    return rows if len(tasks) == 1 else [*rows, ("(all)", sum_figures(each for _, each in tasks))]


def _failures_table(stats: QueueStats) -> RenderableType | None:
    if not stats.failures:
        return None
    table = grid("Count", "Last", "Task", "Failure", numbers=("Count",), shrink=("Failure",))
    for each in stats.failures[:_MOST_FAILURES]:
        text = f"{each.error_type}: {each.message}"
        ago = f"{format_age(each.last_at, stats.at)} ago"
        table.add_row(str(each.count), ago, short_text(each.task), short_text(text))
    return table


def _processes_table(stats: QueueStats) -> RenderableType | None:
    if not stats.processes:
        return None
    numbers = ("Pid", "Busy", "CPU", "Memory", "Lag")
    table = grid("Process", "Host", *numbers, numbers=numbers, shrink=("Host",))
    for each in stats.processes:
        table.add_row(
            full_text(each.worker),
            short_text(each.host),
            str(each.pid),
            f"{each.busy}/{each.slots}",
            f"{each.cpu:.0%}",
            format_bytes(each.rss_bytes),
            format_duration(each.lag_ms / 1000),
        )
    return table


def _title(text: str) -> Text:
    return Text(escape_controls(text), style="bold")


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share * 100:.1f}"


def _steps_a_mark(history: History, marks: int) -> int:
    return -(-len(history.buckets) // marks)


def _trend(steps: Sequence[Figures], marks: int, *, count: str = "done") -> str:
    """How a count changed, in at most so many marks."""
    size = -(-len(steps) // marks)
    numbers = [getattr(each, count) for each in steps]
    return sparkline([sum(numbers[at : at + size]) for at in range(0, len(numbers), size)])


def _fold_highest(history: History, values: Sequence[int | None]) -> list[int | None]:
    size = _steps_a_mark(history, _MARKS_A_LINE)
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    return [max((each for each in part if each is not None), default=None) for part in parts]
