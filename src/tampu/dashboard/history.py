"""What was recorded, as charts and tables need it. The only module that knows the recorder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from tampu.admin.history import read_marks, read_steps
from tampu.dashboard.charts import ChartMark, Frame
from tampu.metrics.history import (
    NO_FIGURES,
    STEPS_A_DOUBLING,
    Bucket,
    Figures,
    Histogram,
    Span,
    sum_figures,
)
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.util.lifecycle import run_all
from tampu.wire.keys import MARKS, QueueKeys

if TYPE_CHECKING:
    from tampu.dashboard.source import DataSource

SAID: Final = {Span.HOUR: "last hour", Span.DAY: "last 24 hours", Span.MONTH: "last 30 days"}
_GROUPED: Final = {Span.HOUR: 1, Span.DAY: 1, Span.MONTH: 6}
"""How many recorded steps make one of a chart, which has room for about 150."""
_FRESH_S: Final = 4.0  # workers record every ten seconds
_STILL_CHANGING: Final = 2
"""Steps, counted from the last, that workers may still add to; the others are read once."""
_STEPS_A_CALL: Final = 48
_RECENT_STEPS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Times in seconds that half, 95 % and 99 % of the jobs stayed below; None if there is none."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, times: Histogram) -> Quantiles:
        """The quantiles of a histogram."""
        p50, p95, p99 = (times.quantile(share) for share in (0.5, 0.95, 0.99))
        return cls(p50=p50, p95=p95, p99=p99)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTrend:
    """What happened to the jobs of a task, or of a whole queue, in a span."""

    name: str
    figures: Figures
    per_s: float  # attempts that ended, since the first of the span
    run: Quantiles
    wait: Quantiles
    ended: Sequence[float | None]  # attempts that ended, for each step

    @property
    def done(self) -> int:
        """Attempts that ended well."""
        return self.figures.done

    @property
    def failed(self) -> int:
        """Attempts that failed."""
        return self.figures.failed

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed."""
        return self.figures.failure_rate


@dataclass(frozen=True, slots=True)
class TrendStep:
    """One step of a chart: of one queue, or of several added up."""

    at_ms: int
    tasks: Mapping[str, Figures]
    total: Figures
    waiting: int | None = None  # at most, in this step
    left: int | None = None  # waiting at its end
    oldest_ms: int | None = None

    @classmethod
    def of(cls, buckets: Sequence[Bucket]) -> TrendStep:
        """Neighbouring steps of a history as one."""
        tasks: dict[str, Figures] = {}
        for bucket in buckets:
            for name, figures in bucket.tasks.items():
                tasks[name] = tasks.get(name, NO_FIGURES) + figures
        highest = [each.highest for each in buckets if each.highest is not None]
        last = [each.last for each in buckets if each.last is not None]
        return cls(
            buckets[0].at_ms,
            tasks,
            sum_figures(tasks.values()),
            max((each.waiting for each in highest), default=None),
            last[-1].waiting if last else None,
            max((each.oldest_ms for each in highest), default=None),
        )

    def __add__(self, other: TrendStep) -> TrendStep:
        """The same step of two queues. Their tasks are left out: names may be the same."""
        return TrendStep(
            self.at_ms,
            {},
            self.total + other.total,
            _sum(self.waiting, other.waiting),
            _sum(self.left, other.left),
            max(_known((self.oldest_ms, other.oldest_ms)), default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A queue, several queues or a task over a span, in equal steps, the oldest first."""

    span: Span
    steps: Sequence[TrendStep]
    total: TaskTrend
    tasks: Sequence[TaskTrend] = ()  # the busiest first
    marks: Sequence[ChartMark] = ()

    @property
    def step_s(self) -> int:
        """Seconds of one step."""
        return self.span.step_s * _GROUPED[self.span]

    @property
    def frame(self) -> Frame:
        """What its charts have in common."""
        times = [instant(step.at_ms) for step in self.steps]
        return Frame(times=times, clock=self.span is not Span.MONTH, marks=self.marks)

    @property
    def done(self) -> list[float | None]:
        """Attempts that ended well, for each step."""
        return [step.total.done for step in self.steps]

    @property
    def failed(self) -> list[float | None]:
        """Attempts that failed, for each step."""
        return [step.total.failed for step in self.steps]

    @property
    def wait(self) -> list[Quantiles]:
        """How long jobs waited, for each step."""
        return [Quantiles.of(step.total.wait) for step in self.steps]

    @property
    def run(self) -> list[Quantiles]:
        """How long attempts took, for each step."""
        return [Quantiles.of(step.total.run) for step in self.steps]

    @property
    def run_powers(self) -> list[dict[int, int]]:
        """For each step, attempts by the power of two, in microseconds, that they stayed below."""
        return [fold(step.total.run) for step in self.steps]

    @property
    def waiting(self) -> list[float | None]:
        """The backlog, for each step."""
        return [step.waiting for step in self.steps]

    @property
    def oldest_s(self) -> list[float | None]:
        """How long the oldest waiting job had waited, for each step."""
        return [None if step.oldest_ms is None else step.oldest_ms / 1000 for step in self.steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """Several queues over a span: each for itself, and all together."""

    total: Trend
    by_queue: Mapping[str, Trend]


# --- reading ------------------------------------------------------------------------------------


async def read_trends(source: DataSource, queues: Sequence[str], span: Span) -> Trends:
    """What was recorded about these queues."""
    found = await run_all(read_trend(source, QueueKeys(name), span) for name in queues)
    by_queue = dict(zip(queues, found, strict=True))
    if found:
        together = zip(*(trend.steps for trend in found), strict=False)
        steps = [reduce(TrendStep.__add__, each) for each in together]
        marks = found[0].marks
    else:
        steps, marks = [], []
    return Trends(total=make_trend(steps, span, marks=marks, by_task=False), by_queue=by_queue)


async def read_trend(source: DataSource, keys: QueueKeys, span: Span) -> Trend:
    """What was recorded about one queue."""

    async def read() -> Trend:
        steps = await _read_steps(source, keys, span)
        return make_trend(steps, span, marks=await _read_marks(source, span, steps))

    return await source.cached(("trend", keys.name, span), _FRESH_S, read)


async def read_task(source: DataSource, keys: QueueKeys, task: str, *, span: Span) -> Trend:
    """What was recorded about one task of a queue."""
    trend = await read_trend(source, keys, span)
    steps = [TrendStep(step.at_ms, {}, step.tasks.get(task, NO_FIGURES)) for step in trend.steps]
    return make_trend(steps, span, marks=trend.marks, by_task=False)


async def _read_steps(source: DataSource, keys: QueueKeys, span: Span) -> list[TrendStep]:
    """The steps of a chart. Those that no longer change are read once and remembered."""
    grouped = _GROUPED[span]
    lane = await source.lane(keys)
    last = await server_time_ms(lane) // 1000 // span.step_s // grouped
    wanted = range(last - span.steps // grouped + 1, last + 1)
    final: dict[int, TrendStep] = source.memory("steps", keys.name, span)
    for number in [number for number in final if number not in wanted]:
        del final[number]
    known = dict(final)
    missing = [number for number in wanted if number not in known]
    groups_a_call = _STEPS_A_CALL // grouped
    for start in range(0, len(missing), groups_a_call):
        part = missing[start : start + groups_a_call]
        # They are neighbours, since what was read before are the oldest.
        numbers = range(part[0] * grouped, (part[-1] + 1) * grouped)
        buckets = (await read_steps(lane, keys, span, numbers=numbers)).buckets
        for place, number in enumerate(range(part[0], part[-1] + 1)):
            known[number] = TrendStep.of(buckets[place * grouped : (place + 1) * grouped])
    final.update((each, known[each]) for each in missing if each <= last - _STILL_CHANGING)
    return [known[number] for number in wanted]


async def _read_marks(
    source: DataSource, span: Span, steps: Sequence[TrendStep]
) -> list[ChartMark]:
    async def read() -> list[ChartMark]:
        found = await read_marks(await source.lane(MARKS), steps[0].at_ms)
        return [ChartMark(each.at, each.text) for each in found]

    return await source.cached(("marks", span), _FRESH_S, read)


# --- computing ----------------------------------------------------------------------------------


def make_trend(
    steps: Sequence[TrendStep],
    span: Span,
    *,
    marks: Sequence[ChartMark] = (),
    by_task: bool = True,
) -> Trend:
    """A trend from its steps."""
    names = {name for step in steps for name in step.tasks} if by_task else set()
    tasks = [
        _sum_up(name, [step.tasks.get(name, NO_FIGURES) for step in steps], span) for name in names
    ]
    return Trend(
        span=span,
        steps=steps,
        total=_sum_up("", [step.total for step in steps], span),
        tasks=sorted(tasks, key=lambda each: (-each.figures.attempts, each.name)),
        marks=marks,
    )


def _sum_up(name: str, steps: Sequence[Figures], span: Span) -> TaskTrend:
    figures = sum_figures(each for each in steps if each is not NO_FIGURES)
    first = next((place for place, each in enumerate(steps) if each.attempts), len(steps) - 1)
    elapsed_s = (len(steps) - first) * span.step_s * _GROUPED[span]
    return TaskTrend(
        name=name,
        figures=figures,
        per_s=figures.attempts / max(1, elapsed_s),
        run=Quantiles.of(figures.run),
        wait=Quantiles.of(figures.wait),
        ended=[each.attempts for each in steps],
    )


def fold(times: Histogram) -> dict[int, int]:
    """A histogram with one bucket for each power of two of a microsecond."""
    folded: dict[int, int] = {}
    for bucket, count in times.counts.items():
        power = -(-bucket // STEPS_A_DOUBLING)
        folded[power] = folded.get(power, 0) + count
    return folded


def drain_s(trend: Trend, waiting: int) -> float | None:
    """How long the backlog will last if it goes on shrinking as it did; None if it does not."""
    if not waiting:
        return 0.0
    known = [step for step in trend.steps if step.left is not None][-_RECENT_STEPS:]
    if len(known) < 2:
        return None
    shrunk = (known[0].left or 0) - waiting
    took_s = (known[-1].at_ms - known[0].at_ms) / 1000
    return waiting / shrunk * took_s if shrunk > 0 else None


def _sum(*parts: int | None) -> int | None:
    known = _known(parts)
    return sum(known) if known else None


def _known(parts: Iterable[int | None]) -> list[int]:
    return [each for each in parts if each is not None]
