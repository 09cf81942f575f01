"""Carries out settlements in batches, and reports them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, assert_never

from msgspec import Struct

from tampu.consumer.batch_sender import BatchSender
from tampu.consumer.intake import BuryEntry
from tampu.consumer.settle import (
    Ack,
    AckWithResult,
    ReleaseEntry,
    RetryEntry,
    plain_ack_outcome,
    release,
    settle,
    settle_lost_result,
)
from tampu.outcome import Done, Failed, UnrecoverableFailure, failure_of
from tampu.server.scripts.settling import (
    BuriedEntry,
    Claim,
    DeadTarget,
    FinishedEntry,
    ResultTarget,
    RetriedEntry,
    bury,
    finish,
    retry,
)
from tampu.server.streams import MAX_ACKS, ack
from tampu.wire.dead import encode_dead
from tampu.wire.entry import join_member
from tampu.wire.extras import append_raw_extras
from tampu.wire.keys import QueueKeys
from tampu.wire.result import encode_failure, encode_notice

if TYPE_CHECKING:
    from tampu.consumer.intake import Delivery
    from tampu.consumer.leases import WorkerLease
    from tampu.consumer.reporter import Reporter
    from tampu.consumer.settle import (
        Settlement,
        SettleRules,
    )
    from tampu.outcome import Outcome
    from tampu.server.lane import Lane

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_A_CALL: Final = 500
_MOST_BYTES: Final = 4_194_304
_SETTLED: Final = ord("1")


class SettleTarget(Struct, frozen=True, kw_only=True):
    """Where a worker settles entries: its queue, its group, its own name, and what is kept."""

    keys: QueueKeys
    group: bytes
    consumer: bytes
    dead_max_len: int


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
    ) -> None:
        self._rules = rules
        self._reporter = reporter
        self._is_silent = reporter.is_silent
        self._plain_ack = plain_ack_outcome(rules)
        calls = _Calls(lane, target, lease=lease, reporter=reporter)
        self._acks = calls.sender("acks", calls.send_acks, most=MAX_ACKS)
        self._results = calls.sender("results", calls.send_results, awaited=True)
        self._retries = calls.sender("retries", calls.send_retries)
        self._burials = calls.sender("burials", calls.send_burials, awaited=True)
        self._senders = (self._retries, self._acks, self._results, self._burials)
        self.start = reporter.report_start if reporter.wants_starts else None

    def open(self) -> None:
        """Begin to send."""
        for sender in self._senders:
            sender.start()

    def __len__(self) -> int:
        return len(self._acks) + len(self._results) + len(self._retries) + len(self._burials)

    def entry_ids(self) -> Iterator[bytes]:
        """The ids of entries whose settlement the server has not taken yet."""
        yield from (each.entry_id for each in self._acks.items)
        yield from (each.delivery.entry_id for each in self._results.items)
        yield from (each.delivery.entry_id for each in self._retries.items)
        yield from (each.entry_id for each in self._burials.items)

    def put(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        """Settle an entry soon, given the outcome of its attempt."""
        if type(outcome) is self._plain_ack:  # hot path: what `settle` decides, without the call
            if not self._is_silent:
                self._reporter.report_end(delivery, outcome, duration_ns)
            self._acks.put(delivery)
            return
        settlement = self._decide(delivery, outcome)
        if type(settlement) is AckWithResult:
            if not self._is_silent:
                self._reporter.report_end(delivery, outcome, duration_ns)
            if settlement.lost is not None:
                self._reporter.log_lost_result(delivery, settlement.lost)
            self._results.put(settlement)
            return
        if isinstance(settlement, BuryEntry) and type(outcome) is Done:
            assert settlement.failure is not None  # noqa: S101 - its result cannot be stored
            outcome = UnrecoverableFailure(settlement.failure)
        self._reporter.report_end(delivery, outcome, duration_ns)
        if isinstance(outcome, Failed | UnrecoverableFailure):
            self._reporter.log_failure(delivery, outcome.failure, settlement)
        self._send(settlement)

    def release(self, delivery: Delivery) -> None:
        """Let another worker run a job that has not started; it does not count as an attempt."""
        self._retries.put(release(delivery))

    def bury(self, burial: BuryEntry) -> None:
        """Bury an entry that intake refused."""
        self._burials.put(burial)

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
            logger.exception("the result of job %s cannot be encoded", delivery.job.id)
            return settle_lost_result(delivery, failure_of(error), self._rules)

    def _send(self, settlement: Settlement) -> None:
        match settlement:
            case Ack(delivery):
                self._acks.put(delivery)
            case AckWithResult():
                self._results.put(settlement)
            case RetryEntry() | ReleaseEntry():
                self._retries.put(settlement)
            case BuryEntry():
                self._burials.put(settlement)
            case _:
                assert_never(settlement)


class _Calls:
    """The calls that settle batches of entries, one for each kind of settlement."""

    def __init__(
        self, lane: Lane, target: SettleTarget, *, lease: WorkerLease, reporter: Reporter
    ) -> None:
        self._lane = lane
        self._target = target
        self._lease = lease
        self._reporter = reporter

    def sender(
        self,
        name: str,
        send: Callable[[list[T]], Awaitable[None]],
        *,
        most: int = _MOST_A_CALL,
        awaited: bool = False,
    ) -> BatchSender[T]:
        """A sender of batches that logs its trouble under a name."""
        trouble = self._lane.server.outage.part(f"{name} of queue {self._target.keys.name!r}")
        return BatchSender(name, send, trouble=trouble, most=most, awaited=awaited)

    async def send_acks(self, batch: list[Delivery]) -> None:
        """Acknowledge entries whose jobs are done."""
        claim = self._claim(batch)
        ids = [each.entry_id for each in batch]
        if not claim.owner:
            await ack(self._lane, ids, stream=claim.stream, group=claim.group)
            return
        notices = self._target.keys.notices
        entries = [FinishedEntry(each, b"", notices) for each in ids]
        nothing = ResultTarget(notices=notices, notice=b"", ttl_s=1)
        await finish(self._lane, claim, entries, target=nothing)

    async def send_results(self, batch: list[AckWithResult]) -> None:
        """Acknowledge entries and store the results of their jobs."""
        for ttl_s, same in _by_ttl(batch, lambda each: each.ttl_s):
            for part in parts_of(same, lambda each: len(each.result)):
                await self._send_results(part, ttl_s)

    async def _send_results(self, part: list[AckWithResult], ttl_s: int) -> None:
        keys = self._target.keys
        deliveries = [each.delivery for each in part]
        ids = [each.job.id for each in deliveries]
        entries = [
            FinishedEntry(each.delivery.entry_id, each.result, key)
            for each, key in zip(part, self._result_keys(part, ids), strict=True)
        ]
        results = ResultTarget(notices=keys.notices, notice=encode_notice(ids), ttl_s=ttl_s)
        await finish(self._lane, self._claim(deliveries), entries, target=results)

    def _result_keys(self, part: list[AckWithResult], ids: list[str]) -> list[bytes]:
        keys = self._target.keys
        found = keys.results(ids)
        for number, each in enumerate(part):
            if each.lost is not None:
                found[number] = keys.failure(ids[number])
        return found

    async def send_retries(self, batch: list[RetryEntry | ReleaseEntry]) -> None:
        """Run jobs again, now or later; report those whose attempt counted."""
        keys = self._target.keys
        for part in parts_of(batch, lambda each: len(each.envelope)):
            claim = self._claim([each.delivery for each in part])
            entries = [_retried_entry(each) for each in part]
            flags = await retry(
                self._lane, claim, entries, delayed=keys.delayed, wakeup=keys.wakeup
            )
            for each, flag in zip(part, flags, strict=True):
                if flag == _SETTLED and isinstance(each, RetryEntry) and each.counted:
                    self._reporter.report_retry(each)

    async def send_burials(self, batch: list[BuryEntry]) -> None:
        """Move entries to the dead letters, and report them."""
        for ttl_s, same in _by_ttl(batch, lambda each: each.failure_ttl_s):
            encoded = [(each, self._buried_entry(each)) for each in same]
            for part in parts_of(encoded, lambda pair: sum(map(len, pair[1].fields))):
                await self._send_burials(part, ttl_s)

    async def _send_burials(self, part: list[tuple[BuryEntry, BuriedEntry]], ttl_s: int) -> None:
        target = self._target
        dead = DeadTarget(
            dead=target.keys.dead,
            notices=target.keys.notices,
            max_len=target.dead_max_len,
            ttl_s=ttl_s or 1,
        )
        burials, entries = zip(*part, strict=True)
        ids = [each.job_id for each, entry in part if entry.failure]
        notice = encode_notice(ids) if ids else b""
        claim = self._claim(burials)
        flags = await bury(self._lane, claim, entries, target=dead, notice=notice)
        for each, flag in zip(burials, flags, strict=True):
            if flag == _SETTLED:
                self._reporter.report_burial(each)

    def _buried_entry(self, burial: BuryEntry) -> BuriedEntry:
        entry_id, job_id, fields = burial.entry_id, burial.job_id, encode_dead(burial.dead)
        if not burial.failure_ttl_s or not job_id:
            return BuriedEntry(entry_id, fields)
        failure = encode_failure(burial.reason, burial.failure)
        return BuriedEntry(entry_id, fields, failure, self._target.keys.failure(job_id))

    def _claim(self, entries: Sequence[Delivery] | Sequence[BuryEntry]) -> Claim:
        """How to settle: the script checks that we still own an entry only if a lease may lapse."""
        target = self._target
        owner = b"" if self._lease.are_valid(entries) else target.consumer
        return Claim(target.keys.stream, target.group, owner)


def _retried_entry(each: RetryEntry | ReleaseEntry) -> RetriedEntry:
    delivery, wait_ms = each.delivery, each.wait_ms if isinstance(each, RetryEntry) else None
    if wait_ms is None:
        name, extras = delivery.raw_name, delivery.extras
        return RetriedEntry(delivery.entry_id, None, each.envelope, name, extras)
    body = append_raw_extras(each.envelope, delivery.extras)
    return RetriedEntry(delivery.entry_id, wait_ms, join_member(delivery.raw_name, body))


def _by_ttl(items: Iterable[T], ttl_s: Callable[[T], int]) -> Iterable[tuple[int, list[T]]]:
    """The items by their time to live: one call has one for all of its entries."""
    groups: dict[int, list[T]] = {}
    for item in items:
        groups.setdefault(ttl_s(item), []).append(item)
    return groups.items()


def parts_of(items: Iterable[T], weigh: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in order, in parts for one call each: of at most 4 MiB, or of one item."""
    part: list[T] = []
    weight = 0
    for item in items:
        weight += weigh(item)
        if part and weight > _MOST_BYTES:
            yield part
            part, weight = [], weigh(item)
        part.append(item)
    if part:
        yield part
