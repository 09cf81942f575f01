"""Schedules of a queue: what a user says of one, and what is told of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict

from msgspec import Struct

from tampu.backoff import Backoff, check_retrying
from tampu.errors import OptionError
from tampu.timing import Cron, Every, Missed, Overlap, Rule, TimeWindow
from tampu.util.clock import Duration, instant_ms, to_positive_ms
from tampu.util.options import at_least, check_type
from tampu.wire.keys import check_schedule_key

_MISSED: Final = "Missed.SKIP, Missed.ONCE or Missed.all(...)"


class ScheduleOptions(TypedDict, total=False):
    """What may be said of a schedule besides its job and its rule."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """The options of a schedule, checked."""

    key: str | None = None  # None: made of the job's name and the rule
    missed: Missed = Missed.SKIP
    overlap: Overlap = Overlap.ALLOW
    window: TimeWindow | None = None  # instants outside of it do not fire
    limit: int | None = None  # so many fires, then the schedule is removed
    start: datetime | None = None  # no instant before it fires
    end: datetime | None = None  # no instant after it fires; then the schedule is removed
    jitter: Duration | None = None  # each fire is late by less than this
    attempts: int | None = None  # of the jobs that it fires, as the two below
    backoff: Backoff | None = None
    timeout: Duration | None = None

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
        if self.timeout is not None:
            to_positive_ms("timeout", self.timeout)

    def _check_bounds(self) -> None:
        for option in ("start", "end"):
            moment = getattr(self, option)
            if moment is not None and instant_ms(option, moment) < 0:
                raise OptionError(option, moment, "must not lie before 1970")
        if self.start is not None and self.end is not None and self.end < self.start:
            raise OptionError("end", self.end, "must not lie before start")

    def _check_overlap(self) -> None:
        if self.overlap is Overlap.CANCEL_RUNNING:
            accepted = (
                "cannot be had on a queue, where a running job is another worker's: "
                "ALLOW, SKIP and QUEUE_ONE can"
            )
            raise OptionError("overlap", self.overlap, accepted)
        if self.jitter is None:
            return
        to_positive_ms("jitter", self.jitter)
        if self.overlap is not Overlap.ALLOW:
            accepted = f"cannot be given along with overlap={self.overlap.name}"
            raise OptionError("jitter", self.jitter, accepted)


def check_rule(rule: Rule, settings: ScheduleSettings) -> Every | Cron:
    """The rule, if a queue can keep it and the jitter does not go past its next instant."""
    given: object = rule
    if not isinstance(given, Every | Cron):
        accepted = "expected Every(...) or Cron(...); for single instants there is add(at=...)"
        raise OptionError("rule", rule, accepted)
    jitter = settings.jitter
    if jitter is None or isinstance(given, Cron):
        return given
    if to_positive_ms("jitter", jitter) > given.interval_ms:
        raise OptionError("jitter", jitter, "must not be longer than the interval")
    return given


class ScheduleCounts(Struct, frozen=True, kw_only=True):
    """How many instants of a schedule fired, and why others did not."""

    fired: int = 0
    missed: int = 0  # too late, by the missed policy
    overlapped: int = 0  # the job of an earlier one was not done
    outside: int = 0  # of the window
    paused: int = 0  # told when it is resumed


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule as it is stored on a queue.

    One that cannot be read has a `problem`, and nothing but its key and its place.
    """

    key: str
    raw_key: bytes  # the same, byte for byte
    name: str = ""
    rule: Rule | None = None
    data: object = None
    next_at: datetime | None = None  # for a paused one: the first instant that it was paused for
    paused: bool = False
    counts: ScheduleCounts = ScheduleCounts()
    settings: ScheduleSettings = ScheduleSettings()
    problem: str | None = None

    def __repr__(self) -> str:
        state = "unreadable" if self.problem else "paused" if self.paused else repr(self.rule)
        return f"<Schedule {self.key!r} {state}>"
