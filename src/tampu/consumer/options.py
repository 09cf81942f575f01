"""Options of a worker, and what it says of its health."""

from dataclasses import dataclass
from typing import TypedDict

from msgspec import Struct

from tampu.backoff import DEFAULT_BACKOFF, Backoff
from tampu.consumer.handler import Isolation, check_policy
from tampu.errors import OptionError
from tampu.metrics.sinks import MetricsSink
from tampu.util.clock import Duration, to_ms, to_positive_ms
from tampu.util.options import at_least, check_flag
from tampu.wire.keys import check_name


class WorkerOptions(TypedDict, total=False):
    """What a worker may be told."""

    concurrency: int
    attempts: int
    backoff: Backoff
    timeout: Duration | None
    isolation: Isolation
    store_results: bool
    result_ttl: Duration
    events: bool
    events_max_len: int
    dead_max_len: int | None
    max_payload: int
    lease: Duration
    grace: Duration
    promote: bool
    schedule: bool
    group: str
    name: str | None
    raw: bool
    metrics: MetricsSink | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The options of a worker, checked."""

    concurrency: int = 100  # handlers at a time
    attempts: int = 25  # runs a job has, unless it or its handler says otherwise
    backoff: Backoff = DEFAULT_BACKOFF
    timeout: Duration | None = None  # the longest that one attempt may take
    isolation: Isolation = None
    store_results: bool = False
    result_ttl: Duration = "1h"
    events: bool = True
    events_max_len: int = 100_000
    dead_max_len: int | None = None  # None: no dead letter is ever dropped
    max_payload: int = 1_048_576  # a larger job is buried unread
    lease: Duration = 30
    grace: Duration = 25  # what running handlers get when the worker stops
    promote: bool = True  # whether it moves due jobs to the stream
    schedule: bool = True  # whether it fires schedules
    group: str = "default"
    name: str | None = None  # stands in its id, for people to know it by
    raw: bool = False  # handlers get the bytes of a payload, not what they stand for
    metrics: MetricsSink | None = None

    def __post_init__(self) -> None:
        for option in ("concurrency", "events_max_len", "max_payload"):
            at_least(option, getattr(self, option), 1)
        if self.dead_max_len is not None:
            at_least("dead_max_len", self.dead_max_len, 1)
        for option in ("store_results", "events", "promote", "schedule", "raw"):
            check_flag(option, getattr(self, option))
        self._check_policy()
        check_name("group", self.group)
        if self.name is not None:
            check_name("name", self.name)
        to_positive_ms("result_ttl", self.result_ttl)
        to_ms("grace", self.grace)
        if to_ms("lease", self.lease) < 500:
            raise OptionError("lease", self.lease, "must be at least half a second")
        if self.metrics is not None and not callable(getattr(self.metrics, "record", None)):
            raise OptionError(
                "metrics", self.metrics, "expected a sink: an object with record(facts)"
            )

    def _check_policy(self) -> None:
        """As of a handler, but there is nobody else to leave something open to."""
        at_least("attempts", self.attempts, 1)
        backoff: object = self.backoff
        if backoff is None:
            raise OptionError("backoff", backoff, "cannot be left open")
        check_policy(self)


class WorkerHealth(Struct, frozen=True):
    """Handlers that run now, and how long ago the server took the last sign of life."""

    running: int
    silent_s: float

    def joined(self, other: "WorkerHealth") -> "WorkerHealth":
        """Both as one: all that runs, and the longer silence."""
        return WorkerHealth(self.running + other.running, max(self.silent_s, other.silent_s))
