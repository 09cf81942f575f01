"""How a worker serves one queue: its settings, and the values that follow from them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tampu.consumer.intake import Intake
from tampu.consumer.leases import WorkerLease
from tampu.consumer.runners.traced import trace_plans
from tampu.consumer.settle import SettleRules
from tampu.consumer.settlement_calls import SettleTarget
from tampu.outcome import MAX_RESULT_BYTES
from tampu.server.scripts.workers import Membership
from tampu.services.reaper import LeaseTerms
from tampu.util.clock import now_ms, to_ms
from tampu.util.ids import new_id
from tampu.wire.holders import CONSUMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tampu.consumer.gate import GateRoom
    from tampu.consumer.handler import HandlerPlan
    from tampu.consumer.options import WorkerSettings
    from tampu.job import Host
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys


class QueueConfig:
    """How a worker serves one queue."""

    def __init__(
        self,
        keys: QueueKeys,
        consumer: bytes,
        settings: WorkerSettings,
        *,
        plans: Mapping[str | None, HandlerPlan],
    ) -> None:
        self.keys = keys
        self.consumer = consumer
        self.settings = settings
        self.plans = plans
        self.terms = LeaseTerms(to_ms("lease", settings.lease))
        self.member = Membership(
            stream=keys.stream,
            group=settings.group.encode(),
            consumer=consumer,
            key=keys.worker(consumer),
            gate=keys.gate,
        )
        self.lease = WorkerLease(self.member, self.terms, concurrency=settings.concurrency)

    def settle_target(self, gate: GateRoom) -> SettleTarget:
        """Where it settles entries."""
        return SettleTarget(
            keys=self.keys,
            group=self.settings.group.encode(),
            consumer=self.consumer,
            dead_max_len=self.settings.dead_max_len or 0,
            gate=gate,
        )

    @property
    def rules(self) -> SettleRules:
        """What decides about its settlements."""
        kept = [plan.results for plan in self.plans.values()]
        stores = any(each.ttl_s or each.none_ttl_s for each in kept)
        return SettleRules(
            max_result=MAX_RESULT_BYTES if stores else None,
            streams=any(plan.streams for plan in self.plans.values()),
            worker=self.consumer.decode(),
            rng=Random(),  # noqa: S311 - spreads retries, guards nothing
        )

    def make_intake(self, host: Host, lane: Lane) -> Intake:
        """The intake for its jobs, which call `host`."""
        queue, worker, settings = self.keys.name, self.consumer.decode(), self.settings
        return Intake(
            trace_plans(self.plans, settings, lane=lane, queue=queue, worker=worker),
            max_payload=settings.max_payload,
            worker=worker,
            host=host,
            raw=settings.raw,
            failure_ttl_s=settings.kept_results().ttl_s,
        )


def new_consumer(name: str | None) -> bytes:
    """The name of a new consumer: unique, even if several workers have the same name."""
    own = new_id(now_ms())
    return CONSUMER_PREFIX + (own if name is None else f"{name}-{own}").encode()
