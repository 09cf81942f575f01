"""What was recorded, as charts and tables need it. The only module that knows the recorder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from tampu.admin.history import read_marks, read_steps, read_unknown
from tampu.dashboard.charts import ChartMark, Frame
from tampu.metrics.history import (
    DAY_S,
    NO_FIGURES,
    RESOLUTIONS,
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

_SAID: Final = {Span.HOUR: "last hour", Span.DAY: "last 24 hours", Span.MONTH: "last 30 days"}
_MOST_STEPS: Final = 150  # that a chart has room for
_GROUPED: Final = {Span.HOUR: 1, Span.DAY: 1, Span.MONTH: 6}
"""How many recorded steps of a whole span make one of a chart."""
_KEPT_S: Final = {each.seconds: each.kept_s for each in RESOLUTIONS}
_FRESH_S: Final = 4.0  # workers record every ten seconds
_STILL_CHANGING: Final = 2
"""Steps, counted from the last, that workers may still add to; the others are read once."""
_STEPS_A_CALL: Final = 48
_RECENT_STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class Period:
    """The time that charts show: a span that ends now, or the seconds that a visitor chose."""

    span: Span
    grouped: int = 1  # recorded steps that make one of a chart
    chosen: range | None = None  # seconds since 1970

    @classmethod
    def of(cls, span: Span) -> Period:
        """A whole span, up to now."""
        return cls(span, _GROUPED[span])

    @classmethod
    def choose(cls, chosen: range, now_s: int) -> Period:
        """Chosen seconds, in the finest steps that are kept for so long and that fit a chart."""
        for span in Span:
            is_kept = chosen.start >= now_s - _KEPT_S[span.step_s]
            if is_kept and len(chosen) <= _MOST_STEPS * span.step_s:
                return cls(span, chosen=chosen)
        return cls(Span.MONTH, _GROUPED[Span.MONTH], chosen)

    @property
    def step_s(self) -> int:
        """Seconds of one step of a chart."""
        return self.span.step_s * self.grouped

    @property
    def said(self) -> str:
        """The time in words."""
        return "chosen time" if self.chosen else _SAID[self.span]

    @property
    def query(self) -> dict[str, str | int | None]:
        """The parameters of a link to another page with the same time."""
        if self.chosen is None:
            return {"span": str(self.span), "from": None, "to": None}
        return {"span": None, "from": self.chosen.start, "to": self.chosen.stop}

    def numbers(self, now_s: int) -> range:
        """Its steps, numbered since 1970."""
        if self.chosen is not None:
            return range(self.chosen.start // self.step_s, -(-self.chosen.stop // self.step_s))
        last = now_s // self.step_s
        return range(last - self.span.steps // self.grouped + 1, last + 1)


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
    in_lines: int | None = None  # at most, of those waiting
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
            max((each.in_lines for each in highest), default=None),
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
            _sum(self.in_lines, other.in_lines),
            max(_without_gaps((self.oldest_ms, other.oldest_ms)), default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A queue, several queues or a task over a span, in equal steps, the oldest first."""

    period: Period
    steps: Sequence[TrendStep]
    total: TaskTrend
    tasks: Sequence[TaskTrend] = ()  # the busiest first
    marks: Sequence[ChartMark] = ()

    @property
    def frame(self) -> Frame:
        """What its charts have in common."""
        times = [instant(step.at_ms) for step in self.steps]
        is_short = len(self.steps) * self.period.step_s <= 2 * DAY_S
        return Frame(times=times, clock=is_short, marks=self.marks)

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
    def in_lines(self) -> list[float | None]:
        """The part of the backlog that flow control holds, for each step."""
        return [step.in_lines for step in self.steps]

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


async def read_trends(source: DataSource, queues: Sequence[str], period: Period) -> Trends:
    """What was recorded about these queues."""
    found = await run_all(read_trend(source, QueueKeys(name), period) for name in queues)
    by_queue = dict(zip(queues, found, strict=True))
    if found:
        together = zip(*(trend.steps for trend in found), strict=False)
        steps = [reduce(TrendStep.__add__, each) for each in together]
        marks = found[0].marks
    else:
        steps, marks = [], []
    return Trends(total=make_trend(steps, period, marks=marks, by_task=False), by_queue=by_queue)


async def read_trend(source: DataSource, keys: QueueKeys, period: Period) -> Trend:
    """What was recorded about one queue."""

    async def read() -> Trend:
        steps = await _read_steps(source, keys, period)
        return make_trend(steps, period, marks=await _read_marks(source, period, steps))

    return await source.cache(("trend", keys.name, period), _FRESH_S, read)


async def read_task(source: DataSource, keys: QueueKeys, task: str, *, period: Period) -> Trend:
    """What was recorded about one task of a queue."""
    trend = await read_trend(source, keys, period)
    steps = [TrendStep(step.at_ms, {}, step.tasks.get(task, NO_FIGURES)) for step in trend.steps]
    return make_trend(steps, period, marks=trend.marks, by_task=False)


async def read_unknown_counts(source: DataSource, queues: Sequence[str]) -> int:
    """How many jobs of these queues may be missing in the counts since recording began."""

    async def read(keys: QueueKeys) -> int:
        return await read_unknown(await source.lane(keys), keys)

    return sum(
        await run_all(
            source.cache(("unknown", name), _FRESH_S, partial(read, QueueKeys(name)))
            for name in queues
        )
    )


async def read_now_s(source: DataSource) -> int:
    """The server's clock, in seconds since 1970."""
    return await server_time_ms(await source.lane(MARKS)) // 1000


async def _read_steps(source: DataSource, keys: QueueKeys, period: Period) -> list[TrendStep]:
    """The steps of a chart. Those of a span that no longer change are read once and remembered."""
    grouped = period.grouped
    lane = await source.lane(keys)
    now_s = await server_time_ms(lane) // 1000
    wanted, last = period.numbers(now_s), now_s // period.step_s
    final: dict[int, TrendStep] = {}
    if period.chosen is None:
        final = source.memory("steps", keys.name, period.span)
    for number in [number for number in final if number not in wanted]:
        del final[number]
    known = dict(final)
    missing = [number for number in wanted if number not in known]
    groups_a_call = _STEPS_A_CALL // grouped
    for start in range(0, len(missing), groups_a_call):
        part = missing[start : start + groups_a_call]
        # They are neighbours, since what was read before are the oldest.
        numbers = range(part[0] * grouped, (part[-1] + 1) * grouped)
        buckets = (await read_steps(lane, keys, period.span, numbers=numbers)).buckets
        for place, number in enumerate(range(part[0], part[-1] + 1)):
            known[number] = TrendStep.of(buckets[place * grouped : (place + 1) * grouped])
    final.update((each, known[each]) for each in missing if each <= last - _STILL_CHANGING)
    return [known[number] for number in wanted]


async def _read_marks(
    source: DataSource, period: Period, steps: Sequence[TrendStep]
) -> list[ChartMark]:
    end = instant(steps[-1].at_ms + period.step_s * 1000)

    async def read() -> list[ChartMark]:
        found = await read_marks(await source.lane(MARKS), steps[0].at_ms)
        return [ChartMark(each.at, each.text) for each in found if each.at < end]

    return await source.cache(("marks", period), _FRESH_S, read)


# --- computing ----------------------------------------------------------------------------------


def make_trend(
    steps: Sequence[TrendStep],
    period: Period,
    *,
    marks: Sequence[ChartMark] = (),
    by_task: bool = True,
) -> Trend:
    """A trend from its steps."""
    names = {name for step in steps for name in step.tasks} if by_task else set()
    tasks = [
        _sum_up(name, [step.tasks.get(name, NO_FIGURES) for step in steps], period)
        for name in names
    ]
    return Trend(
        period=period,
        steps=steps,
        total=_sum_up("", [step.total for step in steps], period),
        tasks=sorted(tasks, key=lambda each: (-each.figures.attempts, each.name)),
        marks=marks,
    )


def _sum_up(name: str, steps: Sequence[Figures], period: Period) -> TaskTrend:
    figures = sum_figures(each for each in steps if each is not NO_FIGURES)
    first = next((place for place, each in enumerate(steps) if each.attempts), len(steps) - 1)
    elapsed_s = (len(steps) - first) * period.step_s
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
    known = _without_gaps(parts)
    return sum(known) if known else None


def _without_gaps(parts: Iterable[int | None]) -> list[int]:
    return [each for each in parts if each is not None]
