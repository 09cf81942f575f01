"""What a producer may be told besides its queue's name: checked once, when it is made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from tampu.errors import OptionError
from tampu.producer.batch import MAX_JOBS
from tampu.producer.batcher import CallOptions
from tampu.producer.request import JobRules
from tampu.server.scripts.adding import PRODUCER_MEMORY_MS
from tampu.server.streams import Copies
from tampu.util.clock import Duration, to_ms, to_positive_ms, to_s
from tampu.util.options import at_least, check_flag

MAX_PAYLOAD_CAP: Final = 64 * 1024 * 1024
JOBS_A_CALL: Final = 350
"""Of an `add_many`: in one call of 1000 the server waits for us, then we for it (-20 %)."""
OnFull = Literal["raise", "wait"]
Durability = Literal["memory", "fsync", "replica"]
_ON_FULL: Final = ("raise", "wait")
_COPIES: Final = {"memory": None, "fsync": Copies.FSYNC, "replica": Copies.REPLICA}


class QueueOptions(TypedDict, total=False):
    """What may be said of a producer besides the queue's name and where its server is."""

    max_len: int | None
    on_full: OnFull
    max_payload: int
    durability: Durability
    unique_for: Duration
    max_delay: Duration
    time_limit: Duration
    events: bool
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How a producer adds."""

    max_len: int | None = None  # the queue takes no job that would make it longer
    on_full: OnFull = "raise"  # what an add does then
    max_payload: int = 1024 * 1024  # bytes that the data of a job may take
    durability: Durability = "memory"  # where a job must be before add returns
    unique_for: Duration = "1h"  # how long a job_id stays taken behind the job's due time
    max_delay: Duration = "30d"
    time_limit: Duration = 30.0  # how long an add may take before it fails
    events: bool = False  # tell listeners of what was added
    group: str = "default"  # the workers whose jobs count as active

    def __post_init__(self) -> None:
        if self.max_len is not None:
            at_least("max_len", self.max_len, 1)
        at_least("max_payload", self.max_payload, 1)
        if self.max_payload > MAX_PAYLOAD_CAP:
            accepted = f"must be at most {MAX_PAYLOAD_CAP} bytes"
            raise OptionError("max_payload", self.max_payload, accepted)
        _check_choice("on_full", self.on_full, _ON_FULL)
        _check_choice("durability", self.durability, tuple(_COPIES))
        to_positive_ms("unique_for", self.unique_for)
        to_ms("max_delay", self.max_delay)
        if to_positive_ms("time_limit", self.time_limit) > PRODUCER_MEMORY_MS:
            accepted = f"must be at most {PRODUCER_MEMORY_MS // 1000} seconds"
            raise OptionError("time_limit", self.time_limit, accepted)
        check_flag("events", self.events)
        _check_text("group", self.group)

    @property
    def rules(self) -> JobRules:
        """What holds for each job."""
        return JobRules(
            max_payload=self.max_payload,
            max_delay_ms=to_ms("max_delay", self.max_delay),
            unique_ms=to_positive_ms("unique_for", self.unique_for),
        )

    @property
    def calls(self) -> CallOptions:
        """What holds for each call to the server."""
        return CallOptions(
            max_len=self.max_len or 0,
            limit_s=to_s("time_limit", self.time_limit),
            copies=_COPIES[self.durability],
        )

    @property
    def jobs_a_call(self) -> int:
        """How many jobs of one `add_many` go in one call.

        With a length limit, as many as can be: all of them are added or none. Who waits for room
        takes it in small parts instead: a thousand places are hardly ever free at once.
        """
        if self.max_len is None:
            return JOBS_A_CALL
        if self.on_full == "raise":
            return MAX_JOBS
        return max(1, min(JOBS_A_CALL, self.max_len // 4))


def _check_choice(option: str, given: object, choices: Sequence[str]) -> None:
    if not isinstance(given, str) or given not in choices:
        raise OptionError(option, given, f"expected one of {', '.join(choices)}")


def _check_text(option: str, given: object) -> None:
    if not isinstance(given, str) or not given:
        raise OptionError(option, given, "expected a text that is not empty")
