"""What alerts watch: conditions, and how each of them reads an observation. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct

from tampu.errors import duration_text
from tampu.metrics.history import Bucket, Figures, sum_figures
from tampu.wire.alerts import AlertKind
from tampu.wire.history import Gauges

MINUTE_MS: Final = 60_000
_NOEVICTION: Final = "noeviction"


# --- what is seen -------------------------------------------------------------------------------


class Need(Enum):
    """What an alert needs to know of its queue."""

    GAUGES = auto()
    WORKERS = auto()
    HISTORY = auto()
    SCHEDULES = auto()
    MEMORY = auto()
    PROCESSES = auto()


class ServerMemory(Struct, frozen=True):
    """The memory of a server in bytes, and what it does at its limit. A limit of 0: none."""

    used: int
    limit: int
    policy: str
    machine: int = 0  # all memory of its machine


class Observation(Struct, frozen=True, kw_only=True):
    """A queue and its server at one moment. None: nobody asked for it, or it is not known."""

    gauges: Gauges | None = None
    overdue: int = 0  # delayed jobs that are due, but not promoted
    workers: int | None = None
    minutes: Sequence[Bucket] | None = None  # oldest first; the last one is the present minute
    late: Mapping[str, int] | None = None  # schedules that should have fired: ms since then
    memory: ServerMemory | None = None
    lags: Mapping[str, float] | None = None  # longest delay of the event loop in ms, by worker


class Reading(Struct, frozen=True):
    """What an alert makes of an observation: a value, and whether it is beyond the limit."""

    value: float
    limit: float
    holds: bool
    text: str


# --- conditions ---------------------------------------------------------------------------------


class Oldest(Struct, frozen=True):
    """The oldest waiting job waits for longer than that."""

    kind: ClassVar = AlertKind.OLDEST
    needs: ClassVar = frozenset({Need.GAUGES})
    limit_ms: int

    def read(self, seen: Observation) -> Reading | None:
        """The oldest waiting job."""
        if seen.gauges is None:
            return None
        age_ms = seen.gauges.oldest_ms
        text = f"the oldest waiting job has waited {_ms(age_ms)}" if age_ms else "no job waits"
        limit = f"; the limit is {_ms(self.limit_ms)}"
        return Reading(age_ms / 1000, self.limit_ms / 1000, age_ms > self.limit_ms, text + limit)


class NoWorkers(Struct, frozen=True):
    """There are jobs, but no worker."""

    kind: ClassVar = AlertKind.NO_WORKERS
    needs: ClassVar = frozenset({Need.GAUGES, Need.WORKERS})

    def read(self, seen: Observation) -> Reading | None:
        """The jobs and the workers."""
        if seen.gauges is None or seen.workers is None:
            return None
        jobs, workers = seen.gauges.waiting + seen.gauges.active + seen.overdue, seen.workers
        text = f"{_count(jobs, 'job')} to run and {_count(workers, 'worker')}"
        return Reading(jobs, 0, bool(jobs) and not workers, text)


class DeadGrowing(Struct, frozen=True):
    """More than so many jobs became dead letters in that time."""

    kind: ClassVar = AlertKind.DEAD_GROWING
    needs: ClassVar = frozenset({Need.HISTORY})
    more_than: int
    within_ms: int

    def read(self, seen: Observation) -> Reading | None:
        """The jobs that were buried lately."""
        if seen.minutes is None:
            return None
        dead = sum_figures(each.total for each in _last(seen.minutes, self.within_ms)).dead
        text = f"{_count(dead, 'job')} became dead letters within {_ms(self.within_ms)}"
        limit = f"; the limit is {self.more_than}"
        return Reading(dead, self.more_than, dead > self.more_than, text + limit)


class FailureRate(Struct, frozen=True):
    """More than that share of the attempts failed in that time."""

    kind: ClassVar = AlertKind.FAILURE_RATE
    needs: ClassVar = frozenset({Need.HISTORY})
    task: str | None  # None: all jobs of the queue
    above: float
    within_ms: int
    at_least: int

    def read(self, seen: Observation) -> Reading | None:
        """The share of the latest attempts that failed. Few attempts say nothing: 0."""
        if seen.minutes is None:
            return None
        figures = self._figures(_last(seen.minutes, self.within_ms))
        rate = figures.failure_rate or 0.0
        who = "all jobs" if self.task is None else f"{self.task!r}"
        text = (
            f"{_share(rate)} of {_count(figures.attempts, 'attempt')} of {who} failed within "
            f"{_ms(self.within_ms)}; the limit is {_share(self.above)}"
        )
        holds = figures.attempts >= self.at_least and rate > self.above
        return Reading(rate, self.above, holds, text)

    def _figures(self, minutes: Sequence[Bucket]) -> Figures:
        if self.task is None:
            return sum_figures(each.total for each in minutes)
        return sum_figures(each.tasks[self.task] for each in minutes if self.task in each.tasks)


class ScheduleMissed(Struct, frozen=True):
    """A schedule should have fired longer ago than that, or has missed fires in that time."""

    kind: ClassVar = AlertKind.SCHEDULE_MISSED
    needs: ClassVar = frozenset({Need.SCHEDULES, Need.HISTORY})
    schedule: str | None  # None: any schedule of the queue
    by_ms: int
    within_ms: int

    def read(self, seen: Observation) -> Reading | None:
        """The schedule that is late for longest; if none is too late, that which missed most."""
        if seen.late is None:
            return None
        late = self._late(seen.late)
        return late if late.holds else self._count_missed(seen.minutes or ()) or late

    def _late(self, seen: Mapping[str, int]) -> Reading:
        late = {k: ms for k, ms in seen.items() if self.schedule in {None, k}}
        limit = f"; the limit is {_ms(self.by_ms)}"
        if not late:
            return Reading(0, self.by_ms / 1000, holds=False, text="no schedule is late" + limit)
        key = max(late, key=lambda each: late[each])
        text = f"schedule {key!r} should have fired {_ms(late[key])} ago" + limit
        return Reading(late[key] / 1000, self.by_ms / 1000, late[key] > self.by_ms, text)

    def _count_missed(self, minutes: Sequence[Bucket]) -> Reading | None:
        """The fires that its missed policy has skipped; None if there are none."""
        missed: Counter[str] = Counter()
        for minute in _last(minutes, self.within_ms):
            missed.update({k: n for k, n in minute.missed.items() if self.schedule in {None, k}})
        if not missed:
            return None
        ((key, count),) = missed.most_common(1)
        who = f"schedule {key!r}" if key else "a schedule"
        text = f"{who} missed {_count(count, 'fire')} within {_ms(self.within_ms)}"
        if len(missed) > 1:
            text += f", and {_count(len(missed) - 1, 'other schedule')} missed some too"
        return Reading(missed.total(), 0, holds=True, text=text)


class ServerMemoryAbove(Struct, frozen=True):
    """The server uses more than that share of its memory limit, or of its machine's memory."""

    kind: ClassVar = AlertKind.SERVER_MEMORY
    needs: ClassVar = frozenset({Need.MEMORY})
    above: float

    def read(self, seen: Observation) -> Reading | None:
        """The share of the memory that is used."""
        memory = seen.memory
        if memory is None or not (memory.limit or memory.machine):
            return None
        whose = "its memory limit" if memory.limit else "the memory of its machine"
        share = memory.used / (memory.limit or memory.machine)
        text = f"the server uses {_share(share)} of {whose}; the limit is {_share(self.above)}"
        return Reading(share, self.above, share > self.above, text)


class Eviction(Struct, frozen=True):
    """The server deletes keys, and so jobs, when it reaches its memory limit."""

    kind: ClassVar = AlertKind.EVICTION
    needs: ClassVar = frozenset({Need.MEMORY})

    def read(self, seen: Observation) -> Reading | None:
        """The eviction policy. Without a memory limit nothing is ever deleted."""
        memory = seen.memory
        if memory is None or not memory.policy:
            return None
        text = f"the eviction policy of the server is {memory.policy}"
        if memory.policy == _NOEVICTION or not memory.limit:
            return Reading(0, 0, holds=False, text=text)
        fix = f"; set maxmemory-policy {_NOEVICTION}, or it deletes jobs when it is full"
        return Reading(1, 0, holds=True, text=text + fix)


class LoopLag(Struct, frozen=True):
    """The event loop of a worker was blocked for longer than that."""

    kind: ClassVar = AlertKind.LOOP_LAG
    needs: ClassVar = frozenset({Need.PROCESSES})
    limit_ms: int

    def read(self, seen: Observation) -> Reading | None:
        """The worker whose loop was blocked for longest in the last ten seconds."""
        if seen.lags is None:
            return None
        limit = f"; the limit is {_ms(self.limit_ms)}"
        if not seen.lags:
            text = "no worker reports" + limit
            return Reading(0, self.limit_ms / 1000, holds=False, text=text)
        lags = seen.lags
        worker = max(lags, key=lambda each: lags[each])
        lag_ms = lags[worker]
        text = f"the event loop of worker {worker} was blocked for {_ms(lag_ms)}" + limit
        return Reading(lag_ms / 1000, self.limit_ms / 1000, lag_ms > self.limit_ms, text)


Condition: TypeAlias = (
    Oldest
    | NoWorkers
    | DeadGrowing
    | FailureRate
    | ScheduleMissed
    | ServerMemoryAbove
    | Eviction
    | LoopLag
)


def _last(minutes: Sequence[Bucket], within_ms: int) -> Sequence[Bucket]:
    """The present minute and as many before it as the time has."""
    return minutes[-minutes_in(within_ms) :]


def minutes_in(within_ms: int) -> int:
    """How many steps of a minute a time touches, the present one included."""
    return -(-within_ms // MINUTE_MS) + 1


def _ms(ms: float) -> str:
    return duration_text(round(ms / 1000, 1) if ms < MINUTE_MS else round(ms / 1000))


def _share(share: float) -> str:
    return f"{round(100 * share, 1):g} %"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
