"""Options of a worker, and its health."""

from dataclasses import dataclass
from typing import TypedDict

from msgspec import Struct

from tampu.backoff import DEFAULT_BACKOFF, Backoff
from tampu.consumer.handler import Isolation, KeptResults, check_policy
from tampu.errors import OptionError
from tampu.metrics.alerts import Alert, check_alerts
from tampu.metrics.facts import MetricsSink, check_sink
from tampu.metrics.telemetry import Telemetries, check_telemetry
from tampu.services.notify import Notifier, Notify, check_notify
from tampu.util.clock import Duration, to_ms, to_positive_ms
from tampu.util.options import at_least, check_flag, check_type
from tampu.wire.names import check_name


class WorkerOptions(TypedDict, total=False):
    """Options of a `Worker`, as keywords."""

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
    cancel_grace: Duration
    promote: bool
    schedule: bool
    group: str
    name: str | None
    raw: bool
    metrics: MetricsSink | None
    history: bool
    version: str
    telemetry: Telemetries | None
    alerts: list[Alert] | tuple[Alert, ...]
    notify: Notify


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Options of a `Worker`, validated."""

    concurrency: int = 100  # how many handlers run at the same time
    attempts: int = 25  # unless the job or its handler has its own number
    backoff: Backoff = DEFAULT_BACKOFF
    timeout: Duration | None = None  # time limit of one attempt
    isolation: Isolation = None
    store_results: bool = False
    result_ttl: Duration = "1h"
    events: bool = True
    events_max_len: int = 100_000
    dead_max_len: int | None = None  # None: keep every dead letter
    max_payload: int = 1_048_576  # a job with more bytes is buried
    lease: Duration = 30
    grace: Duration = 25  # how long running handlers may take when the worker stops
    cancel_grace: Duration = 5  # how long a handler may go on after its job was cancelled
    promote: bool = True  # move delayed jobs to the stream when they are due
    schedule: bool = True  # fire the queue's schedules
    group: str = "default"
    name: str | None = None  # becomes a part of the worker's id
    raw: bool = False  # handlers get payloads as bytes, not decoded
    metrics: MetricsSink | None = None
    history: bool = True  # keep counts and times of each task on the server
    version: str = ""  # of your program, shown with its workers
    telemetry: Telemetries | None = None  # is told about runs
    alerts: list[Alert] | tuple[Alert, ...] = ()
    notify: Notify = ()  # where it is told that one of them has fired or resolved

    def __post_init__(self) -> None:
        for option in ("concurrency", "events_max_len", "max_payload"):
            at_least(option, getattr(self, option), 1)
        if self.dead_max_len is not None:
            at_least("dead_max_len", self.dead_max_len, 1)
        for option in ("store_results", "events", "promote", "schedule", "raw", "history"):
            check_flag(option, getattr(self, option))
        at_least("attempts", self.attempts, 1)
        if not isinstance(self.backoff, Backoff):
            raise OptionError(
                "backoff", self.backoff, "expected Backoff.fixed(...) or Backoff.exponential(...)"
            )
        check_policy(self.attempts, self.backoff, timeout=self.timeout, isolation=self.isolation)
        check_name("group", self.group)
        if self.name is not None:
            check_name("name", self.name)
        to_positive_ms("result_ttl", self.result_ttl)
        to_ms("grace", self.grace)
        to_ms("cancel_grace", self.cancel_grace)
        if to_ms("lease", self.lease) < 500:
            raise OptionError("lease", self.lease, "must be at least half a second")
        check_sink("metrics", self.metrics)
        check_type("version", self.version, str, accepted="text")
        check_telemetry(self.telemetry)
        check_alerts(self.alerts)
        if self.notifiers and not self.alerts:
            raise OptionError("notify", self.notify, "there are no alerts to tell of")

    @property
    def notifiers(self) -> tuple[Notifier, ...]:
        """What tells of alerts; `OptionError` if something given is no notifier."""
        return check_notify(self.notify)

    def kept_results(self, own_ttl: Duration | None = None) -> KeptResults:
        """What is kept of results, if the handler has a time of its own or none."""
        ttl = self.result_ttl if self.store_results else 0
        return KeptResults.of(ttl if own_ttl is None else own_ttl)


class WorkerHealth(Struct, frozen=True):
    """How many handlers run now, and how long ago the last successful heartbeat was sent."""

    running: int
    heartbeat_age_s: float

    def combine(self, other: "WorkerHealth") -> "WorkerHealth":
        """The health of two workers as one: all handlers, the older heartbeat."""
        age_s = max(self.heartbeat_age_s, other.heartbeat_age_s)
        return WorkerHealth(self.running + other.running, age_s)
