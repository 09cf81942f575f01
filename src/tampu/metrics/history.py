"""The history of a queue as values: counts, times and gauges, step by step. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce
from typing import Final

from msgspec import Struct

from tampu.errors import OptionError
from tampu.util.options import Word
from tampu.wire.history import Gauges, PackedFigures

STEPS_A_DOUBLING: Final = 4
"""Buckets of a histogram between a time and twice that time: a quantile is off by 9 % at most."""
_LARGEST_BUCKET: Final = 148  # 38 hours
_BOUNDS_US: Final = [2 ** (number / STEPS_A_DOUBLING) for number in range(_LARGEST_BUCKET)]
MICROSECONDS: Final = 1_000_000


def bucket_of(micros: float) -> int:
    """The bucket of a time: number i is above 2^((i-1)/4) microseconds and up to 2^(i/4)."""
    return bisect_left(_BOUNDS_US, micros)


def bound_s(bucket: int) -> float:
    """The longest time that falls into a bucket."""
    return float(2 ** (bucket / STEPS_A_DOUBLING)) / MICROSECONDS


class Histogram(Struct, frozen=True):
    """How often times of which length occurred."""

    counts: dict[int, int] = {}
    sum_us: int = 0

    @classmethod
    def unpack(cls, flat: list[int], sum_us: int) -> "Histogram":
        """A histogram from buckets and counts in turns."""
        return cls(dict(zip(flat[::2], flat[1::2], strict=False)), sum_us)

    @property
    def count(self) -> int:
        """How many times it holds."""
        return sum(self.counts.values())

    @property
    def mean_s(self) -> float | None:
        """The mean; None without any time."""
        count = self.count
        return self.sum_us / count / MICROSECONDS if count else None

    def quantile(self, share: float) -> float | None:
        """The time in seconds below which this share of the times is; None without any."""
        left = share * self.count
        if not self.counts:
            return None
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                break
        # The middle of the bucket, as a ratio. The lowest one holds all times up to 1 us.
        return bound_s(bucket) / 2 ** (0.5 / STEPS_A_DOUBLING) if bucket else bound_s(0)

    def __add__(self, other: "Histogram") -> "Histogram":
        merged = dict(self.counts)
        for bucket, count in other.counts.items():
            merged[bucket] = merged.get(bucket, 0) + count
        return Histogram(merged, self.sum_us + other.sum_us)


NO_TIMES: Final = Histogram()


class Figures(Struct, frozen=True):
    """What happened to the jobs of a task in a stretch of time.

    Counts are exact. Times of tasks with more than about 1000 jobs a second are a sample, scaled up
    to all of them.
    """

    done: int = 0
    failed: int = 0  # attempts
    retried: int = 0
    dead: int = 0
    snoozed: int = 0
    cancelled: int = 0
    run: Histogram = NO_TIMES
    wait: Histogram = NO_TIMES

    @classmethod
    def unpack(cls, packed: PackedFigures) -> "Figures":
        """The figures that the server holds."""
        counts = (packed.done, packed.failed, packed.retried)
        others = (packed.dead, packed.snoozed, packed.cancelled)
        run = Histogram.unpack(packed.run, packed.run_us)
        return cls(*counts, *others, run, Histogram.unpack(packed.wait, packed.wait_us))

    @property
    def attempts(self) -> int:
        """Attempts that ended well or badly."""
        return self.done + self.failed

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed; None without any attempt."""
        return self.failed / self.attempts if self.attempts else None

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(
            self.done + other.done,
            self.failed + other.failed,
            self.retried + other.retried,
            self.dead + other.dead,
            self.snoozed + other.snoozed,
            self.cancelled + other.cancelled,
            self.run + other.run,
            self.wait + other.wait,
        )


NO_FIGURES: Final = Figures()


def sum_figures(parts: Iterable[Figures]) -> Figures:
    """All figures together."""
    return reduce(Figures.__add__, parts, NO_FIGURES)


class Bucket(Struct, frozen=True):
    """One step of a history."""

    at_ms: int  # when it begins
    tasks: Mapping[str, Figures] = {}
    last: Gauges | None = None
    highest: Gauges | None = None
    missed: Mapping[str, int] = {}  # instants by schedule, in minutes only; "": of further ones
    fires: Mapping[str, int] = {}  # the same for those that fired

    @property
    def total(self) -> Figures:
        """All tasks together."""
        return sum_figures(self.tasks.values())


class History(Struct, frozen=True):
    """The steps of a queue, oldest first; a step without data is an empty bucket."""

    queue: str
    step_s: int
    buckets: list[Bucket]

    @property
    def tasks(self) -> dict[str, Figures]:
        """The figures of each task over the whole time."""
        names = {name for bucket in self.buckets for name in bucket.tasks}
        return {
            name: sum_figures(b.tasks[name] for b in self.buckets if name in b.tasks)
            for name in sorted(names)
        }

    @property
    def total(self) -> Figures:
        """All tasks over the whole time."""
        return sum_figures(self.tasks.values())


class Totals(Struct, frozen=True):
    """The figures of each task since recording began.

    `unknown` counts jobs that were settled, but whose count may or may not have arrived. `dead`
    are the buried jobs by reason, and `missed` the instants of schedules that did not fire because
    no worker was there in time.
    """

    tasks: dict[str, Figures]
    unknown: int = 0
    dead: dict[str, int] = {}
    missed: int = 0


class Resolution(Struct, frozen=True):
    """Seconds of one step of history, and how long such steps are kept."""

    seconds: int
    kept_s: int


HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
KEPT_S: Final = 400 * DAY_S
"""How long counts and totals are kept after the last of them."""
RESOLUTIONS: Final = (
    Resolution(60, DAY_S),
    Resolution(600, DAY_S + HOUR_S),
    Resolution(HOUR_S, 31 * DAY_S),
    Resolution(DAY_S, KEPT_S),
)


class Span(Word):
    """How far back to look, and in which steps."""

    HOUR = "1h"
    DAY = "24h"
    MONTH = "30d"

    @property
    def step_s(self) -> int:
        """Seconds of one step."""
        return {Span.HOUR: 60, Span.DAY: 600, Span.MONTH: HOUR_S}[self]

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return {Span.HOUR: HOUR_S, Span.DAY: DAY_S, Span.MONTH: 30 * DAY_S}[self] // self.step_s


def parse_span(option: str, given: Span | str) -> Span:
    """A span, or the text of one."""
    known = {each.value: each for each in Span}
    found = given if isinstance(given, Span) else known.get(given)
    if found is None:
        raise OptionError(option, given, f"expected one of {', '.join(known)}")
    return found


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Failed attempts with the same error at the same place, and the latest of them."""

    fingerprint: str
    error_type: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    task: str
    job_id: str
    traceback: str


class SlowAttempt(Struct, frozen=True, kw_only=True):
    """An attempt that ran long."""

    job_id: str
    attempt: int
    took_s: float
    ended_at: datetime
    failed: bool


class RunningJob(Struct, frozen=True, kw_only=True):
    """A job that runs now."""

    id: str
    name: str
    attempt: int
    started_at: datetime


class ProcessInfo(Struct, frozen=True, kw_only=True):
    """How the process of a worker was doing at its last report."""

    worker: str
    at: datetime
    host: str
    pid: int
    rss_bytes: int
    cpu: float  # of one core
    lag_ms: float  # the longest delay of its event loop in the last ten seconds
    slots: int
    busy: int
    running: list[RunningJob]  # the oldest, at most 50
    version: str
    python: str
    app_version: str


class Mark(Struct, frozen=True):
    """A moment that charts show as a line, such as a deployment."""

    at: datetime
    text: str
