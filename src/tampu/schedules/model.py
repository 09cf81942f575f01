"""A queue's schedules as users see them: their options, counts and current state."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict

from msgspec import Struct

from tampu.backoff import Backoff, check_retrying
from tampu.errors import OptionError
from tampu.limits.model import AnyLimit
from tampu.limits.placing import FlowOptions, check_options
from tampu.timing import Cron, Every, Missed, Overlap, Rule, TimeWindow
from tampu.util.clock import Duration, instant_ms, to_positive_ms
from tampu.util.options import at_least, check_type
from tampu.wire.names import check_schedule_key

_FLOW: Final = ("priority", "weight", "limits", "ordered", "cost")
_MISSED: Final = "Missed.SKIP, Missed.ONCE or Missed.all(...)"


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule, besides its job and its rule."""

    key: str | None
    missed: Missed
    overlap: Overlap
    window: TimeWindow | None
    limit: int | None
    start: datetime | None
    end: datetime | None
    jitter: Duration | None
    attempts: int | None
    backoff: Backoff | None
    timeout: Duration | None
    expires: Duration | None
    priority: int | None
    job_key: str | int | None
    weight: float | None
    limits: Sequence[AnyLimit]
    ordered: bool | None
    cost: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """Options of a schedule, validated."""

    key: str | None = None  # None: derived from the job's name and the rule
    missed: Missed = Missed.SKIP
    overlap: Overlap = Overlap.ALLOW
    window: TimeWindow | None = None  # instants outside the window do not fire
    limit: int | None = None  # the schedule is removed after this many fires
    start: datetime | None = None  # instants before this do not fire
    end: datetime | None = None  # instants after this do not fire; the schedule is removed
    jitter: Duration | None = None  # each fire is delayed by up to this much
    attempts: int | None = None  # this and all that follow are options of the fired jobs
    backoff: Backoff | None = None
    timeout: Duration | None = None
    expires: Duration | None = None
    priority: int | None = None
    job_key: str | int | None = None  # the option `key` of its jobs
    weight: float | None = None
    limits: Sequence[AnyLimit] = ()
    ordered: bool | None = None
    cost: int | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            check_schedule_key(self.key)
        check_type("missed", self.missed, Missed, accepted=_MISSED)
        check_type("overlap", self.overlap, Overlap, accepted="a member of Overlap")
        if self.window is not None:
            check_type("window", self.window, TimeWindow, accepted="a TimeWindow")
        if self.limit is not None:
            at_least("limit", self.limit, 1)
        self._check_bounds()
        self._check_overlap()
        check_retrying(self.attempts, self.backoff)
        for option in ("timeout", "expires"):
            given = getattr(self, option)
            if given is not None:
                to_positive_ms(option, given)
        check_options(self.flow)

    @property
    def flow(self) -> FlowOptions:
        """Where its jobs wait."""
        return FlowOptions(
            priority=self.priority,
            key=self.job_key,
            weight=self.weight,
            limits=self.limits or None,
            ordered=self.ordered,
            cost=self.cost,
        )

    def _check_bounds(self) -> None:
        for option in ("start", "end"):
            moment = getattr(self, option)
            if moment is not None and instant_ms(option, moment) < 0:
                raise OptionError(option, moment, "must not be before 1970")
        if self.start is not None and self.end is not None and self.end < self.start:
            raise OptionError("end", self.end, "must not be before start")

    def _check_overlap(self) -> None:
        if self.overlap is Overlap.CANCEL_RUNNING:
            problem = "not supported for a queue's schedules; use ALLOW, SKIP or QUEUE_ONE"
            raise OptionError("overlap", self.overlap, problem)
        if self.jitter is None:
            return
        to_positive_ms("jitter", self.jitter)
        if self.overlap is not Overlap.ALLOW:
            problem = f"cannot be combined with overlap={self.overlap.name}"
            raise OptionError("jitter", self.jitter, problem)


def flow_options(options: ScheduleOptions) -> dict[str, object]:
    """Those options of a schedule that decide where its jobs wait, as options of the jobs."""
    found = {name: options[name] for name in _FLOW if name in options}
    return found | ({"key": options["job_key"]} if "job_key" in options else {})


def check_rule(rule: Rule, settings: ScheduleSettings) -> Every | Cron:
    """Return a rule that a queue can store, with a jitter shorter than its interval."""
    given: object = rule
    if not isinstance(given, Every | Cron):
        problem = "expected Every(...) or Cron(...); use add(at=...) for single instants"
        raise OptionError("rule", rule, problem)
    jitter = settings.jitter
    if jitter is None or isinstance(given, Cron):
        return given
    if to_positive_ms("jitter", jitter) > given.interval_ms:
        raise OptionError("jitter", jitter, "must not be longer than the interval")
    return given


class ScheduleCounts(Struct, frozen=True, kw_only=True):
    """How many instants of a schedule fired, and why others did not."""

    fired: int = 0
    missed: int = 0  # skipped by the missed policy
    overlapped: int = 0  # skipped because an earlier job was not done
    outside: int = 0  # outside the window
    paused: int = 0  # passed while paused; counted when it is resumed


class Schedule(Struct, frozen=True, kw_only=True):
    """A stored schedule.

    If it cannot be read, `problem` says why, and only `key`, `next_at` and `paused` are set.
    """

    key: str
    raw_key: bytes  # the exact bytes of the key
    name: str = ""
    rule: Rule | None = None
    data: object = None
    next_at: datetime | None = None  # if paused: the first instant that did not fire
    paused: bool = False
    counts: ScheduleCounts = ScheduleCounts()
    settings: ScheduleSettings = ScheduleSettings()
    declared_by: str | None = None  # the task of an app that declares it; None: stored by hand
    problem: str | None = None

    def __repr__(self) -> str:
        state = "unreadable" if self.problem else "paused" if self.paused else repr(self.rule)
        return f"<Schedule {self.key!r} {state}>"
