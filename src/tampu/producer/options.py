"""Options of a queue."""

from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from tampu.errors import OptionError
from tampu.metrics.telemetry import Telemetries, check_telemetry
from tampu.producer.batch import MAX_JOBS, CallRules
from tampu.producer.request import JobRules
from tampu.server.scripts.adding import PRODUCER_MEMORY_MS
from tampu.server.streams import Copies
from tampu.util.clock import Duration, to_ms, to_positive_ms, to_s
from tampu.util.options import at_least, check_choice, check_flag

MAX_PAYLOAD_CAP: Final = 64 * 1024 * 1024
JOBS_A_CALL: Final = 350
"""For `add_many`. With 1000 in one call, the server and we wait for each other (-20 %)."""
OnFull = Literal["raise", "wait"]
Durability = Literal["memory", "fsync", "replica"]
_ON_FULL: Final = ("raise", "wait")
_COPIES: Final = {"memory": None, "fsync": Copies.FSYNC, "replica": Copies.REPLICA}


class QueueOptions(TypedDict, total=False):
    """Options of a `Queue`, as keywords; `QueueSettings` explains them."""

    max_len: int | None
    on_full: OnFull
    max_payload: int
    durability: Durability
    unique_for: Duration
    max_delay: Duration
    time_limit: Duration
    events: bool
    group: str
    telemetry: Telemetries | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Options of a `Queue`, validated."""

    max_len: int | None = None  # an add that would make the queue longer is refused
    on_full: OnFull = "raise"  # or "wait" until there is room
    max_payload: int = 1024 * 1024  # bytes of a job's data
    durability: Durability = "memory"  # where a job must be stored before `add` returns
    unique_for: Duration = "1h"  # how long a job_id stays taken after the job is due
    max_delay: Duration = "30d"
    time_limit: Duration = 30.0  # how long an add may take before it fails
    events: bool = False  # whether adds are written to the events stream
    group: str = "default"  # the consumer group whose jobs count as active
    telemetry: Telemetries | None = None  # is told about adds

    def __post_init__(self) -> None:
        if self.max_len is not None:
            at_least("max_len", self.max_len, 1)
        at_least("max_payload", self.max_payload, 1, most=MAX_PAYLOAD_CAP)
        check_choice("on_full", self.on_full, _ON_FULL)
        check_choice("durability", self.durability, _COPIES)
        to_positive_ms("unique_for", self.unique_for)
        to_ms("max_delay", self.max_delay)
        if to_positive_ms("time_limit", self.time_limit) > PRODUCER_MEMORY_MS:
            problem = f"must be at most {PRODUCER_MEMORY_MS // 1000} seconds"
            raise OptionError("time_limit", self.time_limit, problem)
        check_flag("events", self.events)
        group: object = self.group
        if not isinstance(group, str) or not group:
            raise OptionError("group", group, "expected the name of a consumer group")
        check_telemetry(self.telemetry)

    @property
    def job_rules(self) -> JobRules:
        """The limits of each job."""
        return JobRules(
            max_payload=self.max_payload,
            max_delay_ms=to_ms("max_delay", self.max_delay),
            unique_ms=to_positive_ms("unique_for", self.unique_for),
        )

    @property
    def call_rules(self) -> CallRules:
        """How calls to the server are made."""
        return CallRules(
            max_len=self.max_len or 0,
            limit_s=to_s("time_limit", self.time_limit),
            copies=_COPIES[self.durability],
        )

    @property
    def jobs_a_call(self) -> int:
        """How many jobs of one `add_many` go in one call.

        With `max_len`, as many as possible, because all jobs of a call are added or none. With
        `on_full="wait"` few, because room for a thousand jobs at once is rare.
        """
        if self.max_len is None:
            return JOBS_A_CALL
        if self.on_full == "raise":
            return MAX_JOBS
        return max(1, min(JOBS_A_CALL, self.max_len // 4))
