"""What is known of queues as text for Prometheus. Pure.

The format is version 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from msgspec import Struct

from tampu.metrics.history import MICROSECONDS, STEPS_A_DOUBLING, Histogram, Totals
from tampu.wire.dead import BuryReason
from tampu.wire.history import Gauges
from tampu.wire.outbox import OutboxFigures

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LOWEST, _HIGHEST = 8, 34  # 256 us and 4.8 hours, as powers of two
# Always the same ones: a rate over a bucket that appears later would be wrong.
_BOUNDS: Final = [
    *(f"{2**power / MICROSECONDS:.6f}".rstrip("0") for power in range(_LOWEST, _HIGHEST + 1)),
    "+Inf",
]
_OUTCOMES: Final = ("done", "failed", "retried", "dead", "snoozed", "cancelled")
_NO_DEAD: Final = {reason.value: 0 for reason in BuryReason}  # the first one is an increase too
_STATES: Final = ("waiting", "active", "delayed", "dead")


class MetricFamily(Struct, frozen=True):
    """A metric: its name, its type, and what it tells."""

    name: str
    kind: str
    text: str


JOBS: Final = MetricFamily(
    "tampu_jobs_total",
    "counter",
    "What happened to jobs. done, failed, snoozed and cancelled are ways in which attempts end; "
    "each failed attempt is retried, or its job is dead.",
)
RUN: Final = MetricFamily(
    "tampu_job_run_seconds", "histogram", "How long attempts ran. Of busy tasks a sample."
)
WAIT: Final = MetricFamily(
    "tampu_job_wait_seconds",
    "histogram",
    "How long jobs waited until an attempt started, without deliberate delay.",
)
QUEUE_JOBS: Final = MetricFamily("tampu_queue_jobs", "gauge", "Jobs of a queue now.")
IN_LINES: Final = MetricFamily(
    "tampu_queue_in_lines", "gauge", "Waiting jobs in lines: flow control holds them."
)
OLDEST: Final = MetricFamily(
    "tampu_queue_oldest_seconds", "gauge", "How long the oldest waiting job has waited."
)
WORKERS: Final = MetricFamily("tampu_workers", "gauge", "Workers of a queue that are alive.")
SLOTS: Final = MetricFamily(
    "tampu_slots", "gauge", "Jobs that the workers of a queue can run at a time."
)
DEAD: Final = MetricFamily("tampu_dead_total", "counter", "Jobs that were buried.")
MISSED: Final = MetricFamily(
    "tampu_schedule_missed_total",
    "counter",
    "Instants of schedules that did not fire because no worker was there in time.",
)
UNKNOWN: Final = MetricFamily(
    "tampu_counts_unknown_total",
    "counter",
    "Jobs that were settled while the connection broke: they may be missing in the counts.",
)
OUTBOX_ROWS: Final = MetricFamily(
    "tampu_outbox_rows", "gauge", "Rows of an outbox that wait or were refused, up to 100000."
)
OUTBOX_OLDEST: Final = MetricFamily(
    "tampu_outbox_oldest_seconds", "gauge", "How long the oldest row of an outbox has waited."
)
OUTBOX_COUNTED: Final = MetricFamily(
    "tampu_outbox_counted_seconds", "gauge", "How long ago a relay has counted the rows."
)
OUTBOX_MOVED: Final = MetricFamily(
    "tampu_outbox_moved_total", "counter", "Rows that relays have moved to queues."
)
OUTBOX_DUPLICATES: Final = MetricFamily(
    "tampu_outbox_duplicates_total",
    "counter",
    "Of the moved rows, those whose jobs were there already: a relay had died.",
)
FAMILIES: Final = (
    *(JOBS, RUN, WAIT, QUEUE_JOBS, IN_LINES, OLDEST),
    *(WORKERS, SLOTS, DEAD, MISSED, UNKNOWN),
    *(OUTBOX_ROWS, OUTBOX_OLDEST, OUTBOX_COUNTED, OUTBOX_MOVED, OUTBOX_DUPLICATES),
)


class QueueMetrics(Struct, frozen=True):
    """What is known of one queue."""

    queue: str
    totals: Totals
    gauges: Gauges
    workers: int
    outboxes: dict[str, OutboxFigures] = {}  # of apps whose default queue it is


class MetricsText:
    """Collects the samples of queues. All samples of a metric have to stand together."""

    def __init__(self) -> None:
        self._lines: dict[MetricFamily, list[str]] = {family: [] for family in FAMILIES}

    def add(self, known: QueueMetrics) -> None:
        """Add the samples of a queue."""
        queue, totals = known.queue, known.totals
        for task, figures in sorted(totals.tasks.items()):
            labels = _labels(queue=queue, task=task)
            for outcome in _OUTCOMES:
                value = getattr(figures, outcome)
                self._add(JOBS, f'{labels},outcome="{outcome}"', value)
            self._lines[RUN] += _histogram_lines(RUN, labels, figures.run)
            self._lines[WAIT] += _histogram_lines(WAIT, labels, figures.wait)
        for reason, count in sorted((_NO_DEAD | totals.dead).items()):
            self._add(DEAD, _labels(queue=queue, reason=reason), count)
        own = _labels(queue=queue)
        self._add(MISSED, own, totals.missed)
        self._add(UNKNOWN, own, totals.unknown)
        self._add_gauges(own, known)
        for outbox, found in known.outboxes.items():
            self._add_outbox(_labels(queue=queue, outbox=outbox), found)

    def _add_outbox(self, own: str, found: OutboxFigures) -> None:
        self._add(OUTBOX_ROWS, f'{own},state="waiting"', found.waiting)
        self._add(OUTBOX_ROWS, f'{own},state="refused"', found.refused)
        self._add(OUTBOX_OLDEST, own, found.oldest_ms / 1000)
        self._add(OUTBOX_COUNTED, own, found.age_ms / 1000)
        self._add(OUTBOX_MOVED, own, found.moved)
        self._add(OUTBOX_DUPLICATES, own, found.duplicates)

    def _add_gauges(self, own: str, known: QueueMetrics) -> None:
        gauges = known.gauges
        for state in _STATES:
            self._add(QUEUE_JOBS, f'{own},state="{state}"', getattr(gauges, state))
        self._add(IN_LINES, own, gauges.in_lines)
        self._add(OLDEST, own, gauges.oldest_ms / 1000)
        self._add(WORKERS, own, known.workers)
        self._add(SLOTS, f'{own},state="busy"', gauges.busy)
        self._add(SLOTS, f'{own},state="free"', max(0, gauges.slots - gauges.busy))

    def _add(self, family: MetricFamily, labels: str, value: float) -> None:
        self._lines[family].append(f"{family.name}{{{labels}}} {value}")

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._all_lines())

    def _all_lines(self) -> Iterator[str]:
        for family, lines in self._lines.items():
            yield f"# HELP {family.name} {family.text}"
            yield f"# TYPE {family.name} {family.kind}"
            yield from lines


def metrics_text(queues: Iterable[QueueMetrics]) -> str:
    """The text for some queues."""
    text = MetricsText()
    for each in queues:
        text.add(each)
    return str(text)


def _labels(**labels: str) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    # A lone surrogate cannot be encoded, and a name with one must not make all others disappear.
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _histogram_lines(family: MetricFamily, labels: str, times: Histogram) -> Iterator[str]:
    counts = list(accumulate(fold(times.counts)))
    for bound, count in zip(_BOUNDS, counts, strict=True):
        yield f'{family.name}_bucket{{{labels},le="{bound}"}} {count}'
    yield f"{family.name}_sum{{{labels}}} {times.sum_us / MICROSECONDS}"
    yield f"{family.name}_count{{{labels}}} {counts[-1]}"


def fold(counts: Mapping[int, int]) -> list[int]:
    """The counts of a histogram by powers of two, with the longer ones at the end."""
    folded = [0] * len(_BOUNDS)
    for bucket, count in counts.items():
        power = -(-bucket // STEPS_A_DOUBLING)  # the next whole one
        folded[min(max(power, _LOWEST), _HIGHEST + 1) - _LOWEST] += count
    return folded
