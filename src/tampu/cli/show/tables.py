"""What people see: plain tables that fit into 80 columns, without frames."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tampu.admin.dead import DeadLetter
from tampu.admin.health import Finding, Grade
from tampu.admin.jobs import JobInfo, JobState
from tampu.admin.queues import Overview
from tampu.admin.rates import QueueRates
from tampu.admin.workers import WorkerInfo, WorkerState, alive
from tampu.cli.show.grid import cut, facts, table, whole
from tampu.cli.show.plain import as_json
from tampu.cli.show.text import NOTHING, clock, rate, span
from tampu.schedules.model import Schedule
from tampu.timing import Cron, Every
from tampu.wire.dead import BuryReason

_GRADES = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}
_STATES = {WorkerState.ALIVE: "green", WorkerState.GONE: "red", WorkerState.UNKNOWN: "yellow"}


# --- queues -------------------------------------------------------------------------------------


def queues_table(overviews: Sequence[Overview]) -> RenderableType:
    """Many queues, one a line."""
    if not overviews:
        return Text("There are no queues.")
    numbers = ("waiting", "active", "delayed", "dead", "schedules", "workers", "oldest")
    made = table("queue", *numbers, numbers=numbers, folds=("queue",))
    for each in overviews:
        counts = each.counts
        made.add_row(
            cut(each.queue),
            *map(str, (counts.waiting, counts.active, counts.delayed, counts.dead)),
            str(counts.schedules),
            str(alive(each.workers)),
            _age(each.oldest_waiting_at, each.at),
        )
    return made


def queue_page(overview: Overview) -> RenderableType:
    """One queue in full."""
    counts, now = overview.counts, overview.at
    oldest = _age(overview.oldest_waiting_at, now)
    due = overview.next_due_at
    page: list[RenderableType] = [
        facts(
            [
                ("queue", overview.queue),
                ("group", overview.group),
                ("waiting", f"{counts.waiting}{_behind(', the oldest for ', oldest)}"),
                ("active", counts.active),
                ("delayed", f"{counts.delayed}{_behind(', the next due ', _due(due, now))}"),
                ("dead", counts.dead),
                ("schedules", counts.schedules),
                ("workers", f"{alive(overview.workers)} alive"),
            ]
        )
    ]
    if overview.workers:
        page += [Text(""), workers_table(overview.workers, now)]
    return Group(*page)


def workers_table(workers: Sequence[WorkerInfo], now: datetime) -> Table:
    """The workers of a queue."""
    columns = ("worker", "state", "host", "pid", "active", "up")
    made = table(*columns, numbers=("pid", "active", "up"), folds=("host",))
    for each in workers:
        room = NOTHING if each.concurrency is None else str(each.concurrency)
        made.add_row(
            whole(each.id),
            Text(each.state.value, style=_STATES[each.state]),
            cut(each.host or NOTHING),
            NOTHING if each.pid is None else str(each.pid),
            f"{each.active}/{room}",
            _age(each.started_at, now),
        )
    return made


def flow_table(flows: Sequence[QueueRates]) -> Table:
    """Queues as they change."""
    numbers = ("waiting", "active", "delayed", "dead", "added/s", "done/s", "failed/s", "workers")
    made = table("queue", *numbers, numbers=numbers, folds=("queue",))
    for each in flows:
        counts, rates = each.counts, each.rates
        made.add_row(
            cut(each.queue),
            *map(str, (counts.waiting, counts.active, counts.delayed, counts.dead)),
            *map(rate, (rates.added, rates.done, rates.failed)),
            str(alive(each.workers)),
        )
    return made


def flow_line(flow: QueueRates) -> str:
    """The same in one line, for where there is no terminal."""
    counts, rates = flow.counts, flow.rates
    return (
        f"{clock(flow.at)} {flow.queue} waiting={counts.waiting} active={counts.active} "
        f"delayed={counts.delayed} dead={counts.dead} added/s={rate(rates.added)} "
        f"done/s={rate(rates.done)} failed/s={rate(rates.failed)} workers={alive(flow.workers)}"
    )


# --- jobs ---------------------------------------------------------------------------------------


def letters_table(letters: Sequence[DeadLetter], total: int, now: datetime) -> RenderableType:
    """Dead letters, one a line, and how many of each reason."""
    if not letters:
        return Text("There are no dead letters." if not total else "There are no more.")
    columns = ("id", "age", "name", "reason", "runs", "error")
    made = table(*columns, numbers=("age", "runs"), folds=("name", "error"))
    for each in letters:
        made.add_row(
            each.dead_id,
            _age(each.buried_at, now),
            cut(each.name),
            whole(reason_of(each)),
            NOTHING if each.attempt is None else str(each.attempt),
            cut(error_of(each)),
        )
    reasons = Counter(reason_of(each) for each in letters)
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return Group(made, Text(""), whole(f"{len(letters)} of {total}: {told}"))


def letter_page(letter: DeadLetter) -> RenderableType:
    """One dead letter in full."""
    page: list[RenderableType] = [
        facts(
            [
                ("dead letter", letter.dead_id),
                ("buried at", clock(letter.buried_at)),
                ("job", letter.job_id or NOTHING),
                ("name", letter.name or NOTHING),
                ("reason", reason_of(letter)),
                ("runs", NOTHING if letter.attempt is None else letter.attempt),
                ("worker", letter.worker or NOTHING),
                ("error", error_of(letter) or NOTHING),
                ("data", _data(letter)),
            ]
        )
    ]
    if letter.failure is not None and letter.failure.traceback:
        page += [Text(""), whole(letter.failure.traceback.rstrip("\n"))]
    return Group(*page)


def job_page(job: JobInfo) -> RenderableType:
    """A job in full."""
    pairs: list[tuple[str, object]] = [("job", job.id), ("state", job.state.value)]
    if job.state is JobState.DONE:
        pairs.append(("result", as_json(job.result, indent=None)))
        return facts(pairs)
    pairs += [("name", job.name or NOTHING), ("added at", clock(job.created_at))]
    if job.due_at is not None:
        pairs.append(("due at", clock(job.due_at)))
    if job.worker is not None:
        pairs.append(("worker", job.worker))
    pairs += [("runs", job.attempt if job.attempt is not None else NOTHING)]
    if job.dead is not None:
        pairs += [
            ("dead letter", job.dead.dead_id),
            ("reason", reason_of(job.dead)),
            ("error", error_of(job.dead) or NOTHING),
        ]
    pairs.append(("data", as_json(job.data, indent=None)))
    return facts(pairs)


def reason_of(letter: DeadLetter) -> str:
    """Why a job was buried, as it is spelled on the wire."""
    return letter.reason.value if isinstance(letter.reason, BuryReason) else letter.reason


def error_of(letter: DeadLetter) -> str:
    """What its last attempt raised, or what else is told."""
    if letter.failure is None:
        return letter.detail or ""
    return f"{letter.failure.error_type}: {letter.failure.message}"


# --- schedules and findings ---------------------------------------------------------------------


def schedules_table(schedules: Sequence[Schedule], now: datetime) -> RenderableType:
    """Schedules, one a line; a long key goes on in the next, since it is what others take."""
    if not schedules:
        return Text("There are no schedules.")
    columns = ("key", "job", "next", "fired", "rule")
    made = table(*columns, numbers=("next", "fired"), folds=("key", "job", "rule"))
    for each in schedules:
        made.add_row(
            whole(each.key),
            cut(each.name),
            "paused" if each.paused else _due(each.next_at, now),
            str(each.counts.fired),
            cut(_rule(each)),
        )
    return made


def findings_table(findings: Sequence[Finding]) -> Table:
    """What was looked at, and what to do."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for each in findings:
        grade = Text(each.grade.value, style=_GRADES[each.grade])
        made.add_row(grade, each.check, whole(each.sentence))
    return made


def _rule(schedule: Schedule) -> str:
    rule = schedule.rule
    if isinstance(rule, Cron):
        return f"{rule.text} {rule.tz or 'UTC'}"
    if isinstance(rule, Every):
        return f"every {span(rule.interval_ms / 1000)}"
    return schedule.problem or NOTHING


def _data(letter: DeadLetter) -> str:
    if letter.job_id is None:
        return f"cannot be read; {len(letter.raw)} bytes"
    return as_json(letter.data, indent=None)


def _age(since: datetime | None, now: datetime) -> str:
    return NOTHING if since is None else span(max(0.0, (now - since).total_seconds()))


def _due(due: datetime | None, now: datetime) -> str:
    if due is None:
        return NOTHING
    in_s = (due - now).total_seconds()
    return f"in {span(in_s)}" if in_s > 0 else f"{span(-in_s)} ago"


def _behind(words: str, told: str) -> str:
    return "" if told == NOTHING else words + told
