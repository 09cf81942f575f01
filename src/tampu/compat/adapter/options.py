"""What a worker of chasquimq may be told, as tampu takes it."""

from dataclasses import dataclass
from datetime import timedelta

from tampu.compat.adapter.integers import non_negative, positive, unsigned, unused
from tampu.consumer.options import WorkerOptions, WorkerSettings

_LEAST_LEASE_MS = 500
_GRACE_S = 30


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
        WorkerSettings(**self.for_tampu())  # what tampu refuses, it refuses here

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
