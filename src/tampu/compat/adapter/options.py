"""What a worker of chasquimq may be told, as tampu takes it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tampu.compat.adapter.integers import non_negative, positive, unsigned, unused
from tampu.compat.adapter.kinds import instance, whole
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.errors import OptionError

_LEAST_LEASE_MS = 500
_GRACE_S = 30
_THEIRS: Final = {
    "attempts": "max_attempts",
    "name": "consumer_id",
    "lease": "claim_min_idle_ms",
    "max_payload": "max_payload_bytes",
    "dead_max_len": "dlq_max_stream_len",
    "result_ttl": "result_ttl_ms",
}
"""Options that tampu may refuse and calls otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options, checked as chasquimq checks them; None is its own default."""

    concurrency: int
    max_attempts: int
    group: str
    consumer_id: str | None
    read_block_ms: int | None
    read_count: int | None
    claim_min_idle_ms: int | None
    max_payload_bytes: int | None
    dlq_max_stream_len: int | None
    events_enabled: bool
    delayed_enabled: bool
    run_scheduler: bool
    scheduler_tick_ms: int | None
    store_results: bool
    result_ttl_ms: int | None

    def __post_init__(self) -> None:
        self._check_kinds()
        for name in ("concurrency", "max_attempts", "read_count", "max_payload_bytes"):
            unsigned(name, getattr(self, name))
        for name in (
            "read_block_ms",
            "claim_min_idle_ms",
            "dlq_max_stream_len",
            "scheduler_tick_ms",
        ):
            non_negative(name, getattr(self, name))
        positive("result_ttl_ms", self.result_ttl_ms)
        unused(
            "Worker",
            read_block_ms=self.read_block_ms,
            read_count=self.read_count,
            scheduler_tick_ms=self.scheduler_tick_ms,
        )
        self._check_with_tampu()

    def _check_kinds(self) -> None:
        for name in ("concurrency", "max_attempts"):
            whole(name, getattr(self, name))
        for name in ("events_enabled", "delayed_enabled", "run_scheduler", "store_results"):
            instance(name, getattr(self, name), bool)
        instance("group", self.group, str)
        if self.consumer_id is not None:
            instance("consumer_id", self.consumer_id, str)

    def _check_with_tampu(self) -> None:
        """Have tampu refuse now what it would refuse later, under the name that was given."""
        try:
            WorkerSettings(**self.for_tampu())
        except OptionError as refusal:
            name = _THEIRS.get(refusal.option, refusal.option)
            given = getattr(self, name, refusal.given)
            raise OptionError(name, given, refusal.problem) from None

    def for_tampu(self, *, raw: bool = False) -> WorkerOptions:
        """The same, in tampu's words."""
        options: WorkerOptions = {
            "concurrency": self.concurrency,
            "attempts": self.max_attempts,
            "group": self.group,
            "name": self.consumer_id or None,
            "events": self.events_enabled,
            "promote": self.delayed_enabled,
            "schedule": self.run_scheduler,
            "store_results": self.store_results,
            "grace": _GRACE_S,
            "raw": raw,
        }
        if self.claim_min_idle_ms is not None:
            lease_ms = max(self.claim_min_idle_ms, _LEAST_LEASE_MS)
            options["lease"] = timedelta(milliseconds=lease_ms)
        if self.max_payload_bytes is not None:
            options["max_payload"] = self.max_payload_bytes
        if self.dlq_max_stream_len is not None:
            options["dead_max_len"] = self.dlq_max_stream_len
        if self.result_ttl_ms is not None:
            options["result_ttl"] = timedelta(milliseconds=self.result_ttl_ms)
        return options
