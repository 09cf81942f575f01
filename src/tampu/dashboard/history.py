"""What was recorded, as charts and tables need it. The only module that knows the recorder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tampu.dashboard.charts import ChartMark, Frame
from tampu.util.clock import now_ms
from tampu.util.options import Word
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from tampu.dashboard.source import DataSource


class Span(Word):
    """How far back a page looks."""

    HOUR = "1h"
    DAY = "24h"
    MONTH = "30d"


_STEPS: Final = {Span.HOUR: (60, 60), Span.DAY: (144, 600), Span.MONTH: (120, 21_600)}
_RECENT_STEPS: Final = 5
SAID: Final = {Span.HOUR: "last hour", Span.DAY: "last 24 hours", Span.MONTH: "last 30 days"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Times in seconds that half, 95 % and 99 % of the jobs stayed below; None if there is none."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


NO_TIMES: Final = Quantiles()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTrend:
    """What happened to the jobs of a task, or of a whole queue, in a span."""

    name: str = ""
    done: int = 0
    failed: int = 0
    per_s: float = 0.0  # attempts that ended
    failure_rate: float | None = None
    run: Quantiles = NO_TIMES
    wait: Quantiles = NO_TIMES
    ended: Sequence[float | None] = ()  # attempts that ended, for each step


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A queue, several queues or a task over a span, in equal steps, the oldest first."""

    span: Span
    step_s: int
    times: Sequence[datetime]
    total: TaskTrend
    tasks: Sequence[TaskTrend] = ()  # the busiest first
    done: Sequence[float | None]
    failed: Sequence[float | None]
    wait: Sequence[Quantiles]
    run: Sequence[Quantiles]
    run_buckets: Sequence[Mapping[int, int]]  # run times by powers of two of a microsecond
    waiting: Sequence[float | None]
    oldest_s: Sequence[float | None]
    marks: Sequence[ChartMark] = ()

    @property
    def frame(self) -> Frame:
        """What its charts have in common."""
        return Frame(times=self.times, clock=self.span is not Span.MONTH, marks=self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """Several queues over a span: each for itself, and all together."""

    total: Trend
    by_queue: Mapping[str, Trend]


async def read_trends(source: DataSource, queues: Sequence[str], span: Span) -> Trends:
    """What was recorded about these queues."""
    trends = {name: await read_trend(source, QueueKeys(name), span) for name in queues}
    return Trends(total=empty_trend(span, now_ms()), by_queue=trends)


async def read_trend(source: DataSource, keys: QueueKeys, span: Span) -> Trend:
    """What was recorded about one queue."""
    del source, keys
    return empty_trend(span, now_ms())


async def read_task(source: DataSource, keys: QueueKeys, task: str, *, span: Span) -> Trend:
    """What was recorded about one task of a queue."""
    del task
    return await read_trend(source, keys, span)


def drain_s(trend: Trend, waiting: int) -> float | None:
    """How long the backlog will last if it goes on shrinking as it did; None if it does not."""
    if not waiting:
        return 0.0
    known = [
        (at.timestamp(), value)
        for at, value in zip(trend.times, trend.waiting, strict=True)
        if value is not None
    ][-_RECENT_STEPS:]
    if len(known) < 2:
        return None
    shrunk = known[0][1] - waiting
    took_s = known[-1][0] - known[0][0] + trend.step_s
    return waiting / shrunk * took_s if shrunk > 0 else None


def empty_trend(span: Span, at_ms: int) -> Trend:
    """A span in which nothing was recorded."""
    count, step_s = _STEPS[span]
    last = at_ms // 1000 // step_s * step_s
    starts = [last - place * step_s for place in range(count - 1, -1, -1)]
    return Trend(
        span=span,
        step_s=step_s,
        times=[datetime.fromtimestamp(start, UTC) for start in starts],
        total=TaskTrend(),
        done=[None] * count,
        failed=[None] * count,
        wait=[NO_TIMES] * count,
        run=[NO_TIMES] * count,
        run_buckets=[{}] * count,
        waiting=[None] * count,
        oldest_s=[None] * count,
    )
