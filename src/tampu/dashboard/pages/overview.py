"""The first page, with all queues at a glance, and the list of queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tampu.admin.workers import count_alive
from tampu.dashboard.charts import Series, line_chart, sparkline, stacked_bars
from tampu.dashboard.history import (
    Period,
    Quantiles,
    TaskTrend,
    Trend,
    read_now_s,
    read_trends,
    read_unknown_counts,
)
from tampu.dashboard.page import Nav, Page, View, bad_request
from tampu.dashboard.pages.alerts import alert_text, alerts_of, is_active
from tampu.dashboard.render import age_s, format_count, format_seconds
from tampu.metrics.history import HOUR_S, Span
from tampu.timing.rule import interval_words
from tampu.util.options import Word

if TYPE_CHECKING:
    from tampu.admin.queues import QueueSummary

_OLD_S: Final = 300.0  # a job that waits for longer than this deserves a look
_LEAST_S: Final = 300  # that can be zoomed to
_MOST_ROWS: Final = 25  # of the overview


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue in the table."""

    summary: QueueSummary
    trend: Trend

    @property
    def oldest_s(self) -> float | None:
        """How long the oldest waiting job has waited."""
        return age_s(self.summary.oldest_waiting_at, self.summary.at)

    @property
    def workers(self) -> int:
        """How many workers are alive."""
        return count_alive(self.summary.workers)

    @property
    def is_late(self) -> bool:
        """Whether its oldest job waits for long."""
        return (self.oldest_s or 0) > _OLD_S

    @property
    def spark(self) -> object:
        """Its attempts over the span."""
        return task_spark(self.summary.queue, self.trend.total)

    @property
    def due_in_s(self) -> float | None:
        """How long until the next delayed job is due."""
        due, now = self.summary.next_due_at, self.summary.at
        return None if due is None else max(0.0, (due - now).total_seconds())


@dataclass(frozen=True, slots=True)
class Sums:
    """All queues together."""

    waiting: int
    active: int
    delayed: int
    dead: int
    workers: int
    oldest_s: float | None

    @classmethod
    def of(cls, rows: Sequence[QueueRow]) -> Sums:
        """Add up the rows."""
        counts = [row.summary.counts for row in rows]
        return cls(
            waiting=sum(each.waiting for each in counts),
            active=sum(each.active for each in counts),
            delayed=sum(each.delayed for each in counts),
            dead=sum(each.dead for each in counts),
            workers=len({each.id for row in rows for each in row.summary.workers}),
            oldest_s=max((row.oldest_s for row in rows if row.oldest_s is not None), default=None),
        )


class QueueOrder(Word):
    """What the table of queues is sorted by; most first, except for names."""

    NAME = "name"
    WAITING = "waiting"
    OLDEST = "oldest"
    DEAD = "dead"
    FAILED = "failed"

    def sort(self, rows: Sequence[QueueRow]) -> list[QueueRow]:
        """The rows in this order; they are sorted by name already."""
        keys: dict[QueueOrder, Callable[[QueueRow], float]] = {
            QueueOrder.WAITING: lambda row: row.summary.counts.waiting,
            QueueOrder.OLDEST: lambda row: row.oldest_s or 0.0,
            QueueOrder.DEAD: lambda row: row.summary.counts.dead,
            QueueOrder.FAILED: lambda row: row.trend.total.failure_rate or 0.0,
        }
        key = keys.get(self)
        return list(rows) if key is None else sorted(rows, key=key, reverse=True)


async def load(view: View) -> Mapping[str, object]:
    """All queues that the visitor may see, and a table of all of them or of some."""
    period, names = await choose_period(view), await view.queues()
    most = _MOST_ROWS if view.path == "" else len(names)
    # Where not all fit, the first ones are those with the longest backlog.
    usual = QueueOrder.NAME if len(names) <= most else QueueOrder.WAITING
    order = view.choice("sort", usual)
    summaries = await view.source.summaries(names)
    trends = await read_trends(view.source, names, period)
    rows = [QueueRow(each, trends.by_queue[each.queue]) for each in summaries]
    return {
        "alerts": [
            (each, alert_text(each)) for each in await alerts_of(view, names) if is_active(each)
        ],
        "rows": order.sort(rows)[:most],
        "all": len(rows),
        "orders": [
            (str(each).capitalize(), view.here(sort=str(each)), each is order)
            for each in QueueOrder
        ],
        "sums": Sums.of(rows),
        "trend": trends.total,
        "charts": queue_charts(trends.total),
        "unknown": await read_unknown_counts(view.source, names),
        **period_choices(view, trends.total),
        "server": (await view.source.server()).name if view.access.sees_all else "",
    }


def task_spark(name: str, trend: TaskTrend) -> object:
    """Attempts over the span, without the last step, which is not over yet."""
    return sparkline(f"{name}, attempts", trend.ended[:-1])


async def choose_period(view: View) -> Period:
    """The time that the query names: a span, or the seconds between `from` and `to`."""
    if not view.text("from") and not view.text("to"):
        return Period.of(view.choice("span", Span.HOUR))
    now_s = await read_now_s(view.source)
    stop = view.number("to", now_s, most=now_s)
    start = view.number("from", stop - HOUR_S, most=now_s)
    if start >= stop:
        raise bad_request("from must be before to.")
    start = min(max(start, now_s - Span.MONTH.steps * Span.MONTH.step_s), now_s - _LEAST_S)
    return Period.choose(range(start, max(stop, start + _LEAST_S)), now_s)


def period_choices(view: View, trend: Trend) -> Mapping[str, object]:
    """The switch between spans, the links that zoom, and the time in words."""
    period = trend.period
    spans = [
        (str(each), view.here(**Period.of(each).query), period == Period.of(each)) for each in Span
    ]
    zooms = [
        (text, view.here(**Period(period.span, chosen=seconds).query), False)
        for text, seconds in zoom_steps(trend)
    ]
    return {"spans": spans, "zooms": zooms, "period": period, "said": period.said}


def zoom_steps(trend: Trend) -> list[tuple[str, range]]:
    """Where the links that zoom lead: what each is called, and its seconds."""
    if not trend.steps:
        return []
    start, stop = trend.steps[0].at_ms // 1000, trend.steps[-1].at_ms // 1000
    stop += trend.period.step_s
    half, quarter = (stop - start) // 2, (stop - start) // 4
    found = [("Earlier", range(start - half, stop - half))]
    if trend.period.chosen is not None:
        found += [("Later", range(start + half, stop + half))]
        found += [("Zoom out", range(start - half, stop + half))]
    if quarter >= _LEAST_S:
        found.append(("Zoom in", range(start + quarter, stop - quarter)))
    return found


def queue_charts(trend: Trend) -> list[object]:
    """Throughput, wait, backlog and age of queues over a span."""
    frame = trend.frame
    return [
        stacked_bars(
            f"Attempts per {interval_words(trend.period.step_s * 1000)}",
            frame,
            [Series("Done", "blue", trend.done), Series("Failed", "red", trend.failed)],
        ),
        wait_chart(trend),
        line_chart("Backlog", frame, _backlog_lines(trend), unit=format_count),
        line_chart(
            "Age of the oldest waiting job",
            frame,
            [Series("Oldest", "amber", trend.oldest_s)],
            unit=format_seconds,
        ),
    ]


def _backlog_lines(trend: Trend) -> list[Series]:
    """All waiting jobs, and those in lines if there were any."""
    lines = [Series("Waiting", "blue", trend.waiting)]
    lined = [Series("In lines", "violet", trend.in_lines)] if any(trend.in_lines) else []
    return lines + lined


def wait_chart(trend: Trend) -> object:
    """How long jobs wait."""
    lines = quantile_lines(trend.wait)
    return line_chart("Wait before a job starts", trend.frame, lines, unit=format_seconds)


def quantile_lines(quantiles: Sequence[Quantiles]) -> list[Series]:
    """The median and the 95th percentile as two lines."""
    return [
        Series("p50", "blue", [each.p50 for each in quantiles]),
        Series("p95", "violet", [each.p95 for each in quantiles]),
    ]


PAGES = (
    Page(
        path="",
        template="overview.html",
        load=load,
        nav=Nav("Overview", 0, "o"),
        live=("alerts", "tiles", "charts", "queues"),
    ),
    Page(
        path="queues",
        template="queues.html",
        load=load,
        nav=Nav("Queues", 10, "q"),
        live=("queues",),
    ),
)
