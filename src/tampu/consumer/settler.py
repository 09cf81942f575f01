"""Carries out settlements in batches, and reports them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tampu.consumer.cancellations import Cancellations
from tampu.consumer.intake import BuryEntry
from tampu.consumer.members import entry_id_of, member_senders
from tampu.consumer.settle import (
    Ack,
    AckWithResult,
    AdvanceEntry,
    CloseEntry,
    EndedAttempt,
    EndMember,
    MemberEnd,
    ReleaseEntry,
    RetryEntry,
    cancel,
    park,
    plain_ack_outcome,
    release,
    settle,
    settle_lost_result,
    throttled_by,
)
from tampu.consumer.settlement_calls import SettlementCalls
from tampu.outcome import Done, Failed, Throttled, UnrecoverableFailure, failure_of
from tampu.server.streams import MAX_ACKS
from tampu.util.clock import now_ms
from tampu.wire.extras import NO_EXTRAS
from tampu.wire.flow import parse_member

if TYPE_CHECKING:
    from tampu.consumer.batch_sender import BatchSender
    from tampu.consumer.intake import Delivery
    from tampu.consumer.leases import WorkerLease
    from tampu.consumer.recorder import NoRecorder
    from tampu.consumer.reporter import Reporter
    from tampu.consumer.settle import Settlement, SettleRules
    from tampu.consumer.settlement_calls import SettleTarget
    from tampu.outcome import Outcome
    from tampu.server.lane import Lane
    from tampu.wire.control import CancelRequest

logger = logging.getLogger(__name__)
_FLOW_ID_SIZE: Final = 28  # of the shortest id of a job of a flow


class Settler:
    """Decides with `settle` and acts on it, with one batch sender for each kind of settlement.

    So an error of one kind, such as a delayed set of the wrong type, does not stop the others.
    """

    def __init__(
        self,
        lane: Lane,
        target: SettleTarget,
        *,
        rules: SettleRules,
        lease: WorkerLease,
        reporter: Reporter,
        recorder: NoRecorder,
    ) -> None:
        self._rules = rules
        self._recorder = recorder
        self._ack_times, self._result_times = recorder.ack_times, recorder.result_times
        self._member_times = recorder.member_times
        self._reporter = reporter
        self.cancellations = cancellations = Cancellations()
        self._is_silent = reporter.is_silent
        self.gate = target.gate
        self._plain_ack = plain_ack_outcome(rules)
        calls = SettlementCalls(
            lane, target, lease=lease, reporter=reporter, cancellations=cancellations
        )
        self._acks = calls.sender(
            "acks", calls.send_acks, most=MAX_ACKS, before=recorder.count_acks
        )
        self._results = calls.sender(
            "results", calls.send_results, awaited=True, before=recorder.count_results
        )
        self._retries = calls.sender("retries", calls.send_retries, before=recorder.count_retries)
        self._burials = calls.sender(
            "burials", calls.send_burials, awaited=True, before=recorder.count_burials
        )
        self._closings = calls.sender(
            "closings", calls.send_closings, awaited=True, before=recorder.count_closings
        )
        self._members, self._steps = member_senders(calls, target, recorder)
        self._load = calls.load
        self._by_kind: dict[type[Settlement], BatchSender[Any]] = {
            AckWithResult: self._results,
            RetryEntry: self._retries,
            ReleaseEntry: self._retries,
            BuryEntry: self._burials,
            CloseEntry: self._closings,
            EndMember: self._members,
            AdvanceEntry: self._steps,
        }
        self._senders = tuple(dict.fromkeys([*self._by_kind.values(), self._acks]))
        self._breakers = calls.breakers
        self.on_closed: Callable[[str, int], None] | None = None  # a job has closed a limit
        self.start = reporter.report_start if reporter.wants_starts else None

    async def prepare(self) -> None:
        """Let the server know what will be sent."""
        await self._load()

    def open(self) -> None:
        """Begin to send."""
        for sender in self._senders:
            sender.start()

    def __len__(self) -> int:
        return sum(map(len, self._senders))

    def entry_ids(self) -> Iterator[bytes]:
        """The ids of entries whose settlement the server has not taken yet."""
        yield from (each.entry_id for each in self._acks.items)
        yield from (each.delivery.entry_id for each in self._results.items)
        yield from (each.delivery.entry_id for each in self._retries.items)
        yield from (each.entry_id for each in self._burials.items)
        yield from (each.delivery.entry_id for each in self._closings.items)
        yield from map(entry_id_of, self._members.items)
        yield from (each.delivery.entry_id for each in self._steps.items)

    def put(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        """Settle an entry soon, given the outcome of its attempt."""
        job = delivery.job
        extras = job.extras
        is_short = len(job.id) < _FLOW_ID_SIZE  # an id of its own may be longer, too
        if type(outcome) is self._plain_ack and extras.unique is None and is_short:
            # Hot path: what `settle` decides, without the call.
            if extras is not NO_EXTRAS:
                self._breakers.note(delivery, outcome)
            if not self._is_silent:
                self._reporter.report_end(delivery, outcome, duration_ns)
            if self._ack_times is not None:
                self._ack_times.append(duration_ns)
            self._acks.put(delivery)
        else:
            self._put_settlement(delivery, outcome, duration_ns)

    def _put_settlement(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        outcome = self.cancellations.overrule(delivery, outcome)
        self._breakers.note(delivery, outcome)
        settlement = self._decide(delivery, outcome)
        if type(settlement) is AckWithResult:
            if not self._is_silent:
                self._reporter.report_end(delivery, outcome, duration_ns)
            if settlement.lost is not None:
                self._reporter.log_lost_result(delivery, settlement.lost)
            if self._result_times is not None:
                self._result_times.append(duration_ns)
            self._results.put(settlement)
        else:
            self._put_other(settlement, EndedAttempt(delivery, outcome, duration_ns))

    def _put_other(self, settlement: Settlement, attempt: EndedAttempt) -> None:
        delivery, outcome, duration_ns = attempt
        if isinstance(settlement, BuryEntry) and type(outcome) is Done:
            assert settlement.failure is not None  # noqa: S101 - its result cannot be stored
            outcome = UnrecoverableFailure(settlement.failure)
        self._reporter.report_end(delivery, outcome, duration_ns)
        if isinstance(outcome, Failed | UnrecoverableFailure):
            self._reporter.log_failure(delivery, outcome.failure, settlement)
        elif isinstance(outcome, Throttled) and self.on_closed is not None:
            for resource in throttled_by(settlement):
                self.on_closed(resource, outcome.after_ms)
        if type(settlement) is not EndMember or settlement.end is not MemberEnd.DONE:
            self._recorder.note_attempt(attempt._replace(outcome=outcome), settlement)
        elif self._member_times is not None:
            self._member_times.append(duration_ns)
        self._send(settlement)

    def release(self, delivery: Delivery, *, passed_gate: bool = True) -> None:
        """Let another worker run a job that has not started; it does not count as an attempt."""
        if self.cancellations.of(delivery) is not None:
            self.cancel(delivery)
        else:
            # An entry that was delivered before may have started there.
            self._retries.put(release(delivery, refunds=passed_gate and delivery.is_first))

    def cancel(self, delivery: Delivery) -> None:
        """Cancel a job that has not started."""
        self._send(cancel(delivery))

    def park(self, delivery: Delivery, request: CancelRequest) -> None:
        """Take out a job of a flow that has not started."""
        self._send(park(delivery, request, now_ms=now_ms()))

    def bury(self, burial: BuryEntry) -> None:
        """Bury an entry that intake refused."""
        self._send(burial)

    async def drain(self, limit_s: float) -> bool:
        """Send all settlements; False if a kind of them takes longer than the limit."""
        return all([await sender.drain(limit_s) for sender in self._senders])

    async def close(self) -> None:
        """Stop sending."""
        for sender in self._senders:
            await sender.stop()

    def _decide(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        try:
            return settle(delivery, outcome, self._rules)
        except Exception as error:  # border: encoding calls methods of the user's result
            job = delivery.job
            facts = {"job_id": job.id, "job_name": job.name}
            logger.exception("the result of job %s cannot be encoded", job.id, extra=facts)
            return settle_lost_result(delivery, failure_of(error), self._rules)

    def _send(self, settlement: Settlement) -> None:
        if isinstance(settlement, Ack):
            self._acks.put(settlement.delivery)
        elif isinstance(settlement, BuryEntry) and parse_member(settlement.job_id) is not None:
            self._members.put(settlement)
        else:
            self._by_kind[type(settlement)].put(settlement)
