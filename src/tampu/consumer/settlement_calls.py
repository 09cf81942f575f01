"""The calls that settle entries: batches of them, one script for each kind of settlement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from tampu.consumer.batch_sender import BatchSender, SendSteps
from tampu.consumer.breakers import Breakers
from tampu.consumer.gate import GateRoom
from tampu.consumer.settle import ReleaseEntry
from tampu.errors import DecodeError
from tampu.server.scripts.settling import (
    CANCELLED_TTL_S,
    BuriedEntry,
    Claim,
    ClosedEntry,
    DeadTarget,
    FinishedEntry,
    ResultTarget,
    RetriedEntry,
    ack,
    all_markers,
    bury,
    close,
    finish,
    load_settling,
    retry,
    unique_marker,
)
from tampu.server.streams import MAX_ACKS, ack_plainly
from tampu.util.ids import is_own_id
from tampu.wire.dead import encode_dead
from tampu.wire.entry import join_member
from tampu.wire.extras import NO_EXTRAS, append_raw_extras, decode_extras
from tampu.wire.flow import awaited_id
from tampu.wire.keys import QueueKeys
from tampu.wire.lines import HALTED, ORDERED, limit_of, parse_line
from tampu.wire.output import run_of
from tampu.wire.result import encode_cancelled, encode_failure, encode_notice

if TYPE_CHECKING:
    from tampu.consumer.cancellations import Cancellations
    from tampu.consumer.intake import BuryEntry, Delivery
    from tampu.consumer.leases import WorkerLease
    from tampu.consumer.reporter import Reporter
    from tampu.consumer.settle import AckWithResult, CloseEntry, RetryEntry
    from tampu.server.lane import Lane
    from tampu.wire.extras import Extras

T = TypeVar("T")
_MOST_A_CALL: Final = 500
_MOST_BYTES: Final = 4_194_304
_SETTLED: Final = ord("1")
_INDEX_S: Final = (
    3600  # a job that waits for its next attempt is found by its id for so much longer
)


class SettleTarget(Struct, frozen=True, kw_only=True):
    """Where a worker settles entries: its queue, its group, its own name, and what is kept."""

    keys: QueueKeys
    group: bytes
    consumer: bytes
    dead_max_len: int
    gate: GateRoom


class SettlementCalls:
    """The calls that settle batches of entries, one for each kind of settlement."""

    def __init__(
        self,
        lane: Lane,
        target: SettleTarget,
        *,
        lease: WorkerLease,
        reporter: Reporter,
        cancellations: Cancellations,
    ) -> None:
        self._lane = lane
        self._target = target
        self._lease = lease
        self._reporter = reporter
        self._cancellations = cancellations
        self.breakers = Breakers(lane, target.keys)

    @property
    def lane(self) -> Lane:
        """The lane to the queue."""
        return self._lane

    @property
    def reporter(self) -> Reporter:
        """Reports what was settled."""
        return self._reporter

    def sender(
        self,
        name: str,
        send: Callable[[list[T]], Awaitable[None]],
        *,
        most: int = _MOST_A_CALL,
        awaited: bool = False,
        before: Callable[[list[T]], None] | None = None,
    ) -> BatchSender[T]:
        """A sender of batches that logs its trouble under a name."""
        trouble = self._lane.server.outage.part(f"{name} of queue {self._target.keys.name!r}")
        steps = SendSteps(send, prepare=self.breakers.tell, before=before, limit=self._limit)
        return BatchSender(name, steps, trouble=trouble, most=most, awaited=awaited)

    def _limit(self) -> int:
        """A call lets at most 512 through at a gate: if it settled more, ever fewer would run."""
        return _MOST_A_CALL if self._target.gate.is_open else MAX_ACKS

    async def load(self) -> None:
        """Let the server know the scripts, so that each call leaves together with its count."""
        await load_settling(self._lane)

    async def send_acks(self, batch: list[Delivery]) -> None:
        """Acknowledge entries whose jobs are done."""
        claim = self.claim(batch)
        ids = [each.entry_id for each in batch]
        if claim.owner or self._target.gate.is_open:
            await ack(self._lane, claim, ids)
        else:
            await ack_plainly(self._lane, ids, stream=claim.stream, group=claim.group)

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
        await finish(self._lane, self.claim(deliveries), entries, target=results)

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
            claim = self.claim([each.delivery for each in part])
            entries = [self._retried_entry(each) for each in part]
            flags = await retry(self._lane, claim, entries, keys=keys)
            for each, flag in zip(part, flags, strict=True):
                if flag == _SETTLED and each.counted:
                    self._reporter.report_retry(each.delivery, each.wait_ms or 0)

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
        ids = [awaited_id(each.job_id) for each, entry in part if entry.failure]
        notice = encode_notice(ids) if ids else b""
        claim = self.claim(burials)
        flags = await bury(self._lane, claim, entries, target=dead, notice=notice)
        for each, flag in zip(burials, flags, strict=True):
            if flag == _SETTLED:
                self._reporter.report_burial(each)

    async def send_closings(self, batch: list[CloseEntry]) -> None:
        """Settle entries of jobs that hold a unique key or were cancelled; report the latter."""
        for ttl_s, same in _by_ttl(batch, _kept_s):
            for part in parts_of(same, lambda each: len(_value_of(each))):
                await self._send_closings(part, ttl_s)

    async def _send_closings(self, part: list[CloseEntry], ttl_s: int) -> None:
        keys = self._target.keys
        told = [awaited_id(each.delivery.job.id) for each in part if _value_of(each)]
        notice = encode_notice(told) if told else b""
        results = ResultTarget(notices=keys.notices, notice=notice, ttl_s=ttl_s)
        entries = [self._closed_entry(each) for each in part]
        claim = self.claim([each.delivery for each in part])
        flags = await close(self._lane, claim, entries, target=results, requests=keys.cancelled)
        for each, flag in zip(part, flags, strict=True):
            if flag == _SETTLED and each.cancelled:
                self._reporter.report_cancelled(each.delivery)

    def _closed_entry(self, each: CloseEntry) -> ClosedEntry:
        delivery, keys = each.delivery, self._target.keys
        job = delivery.job
        run = stream_run(delivery)
        if not each.cancelled:
            return ClosedEntry(
                delivery.entry_id,
                job.id,
                each.result,
                keys.result(job.id),
                unique_marker(keys, job.extras),
                run=run,
            )
        request = self._cancellations.of(delivery)
        return ClosedEntry(
            delivery.entry_id,
            job.id,
            encode_cancelled(),
            keys.failure(awaited_id(job.id)),
            all_markers(keys, job.id, job.extras),
            b"" if request is None else request.member,
            run,
            failed=True,
        )

    def _retried_entry(self, each: RetryEntry | ReleaseEntry) -> RetriedEntry:
        delivery, keys = each.delivery, self._target.keys
        entry_id, job_id = delivery.entry_id, delivery.job.id
        index_s: int | None = None
        own: tuple[bytes, ...] = ()
        if not is_own_id(job_id) or delivery.job.extras.unique is not None:
            # A user chose the id, or its key may be wanted: the job stays easy to find.
            index_s = (each.wait_ms or 0) // 1000 + _INDEX_S
            own = (keys.index(job_id), keys.marker(job_id))
        if each.wait_ms is None:
            place = (each.envelope, delivery.raw_name, each.extras)
            refunds = isinstance(each, ReleaseEntry) and each.refunds
            return RetriedEntry(entry_id, None, *place, index_s, own, refunds=refunds)
        member = join_member(delivery.raw_name, append_raw_extras(each.envelope, each.extras))
        closes = "|".join(each.closes).encode()
        return RetriedEntry(
            entry_id, each.wait_ms, member, index_s=index_s, keys=own, closes=closes
        )

    def _buried_entry(self, burial: BuryEntry) -> BuriedEntry:
        entry_id, job_id, fields = burial.entry_id, burial.job_id, encode_dead(burial.dead)
        if not job_id:
            return BuriedEntry(entry_id, fields)
        keys, extras = self._target.keys, extras_of(burial)
        has_failure = burial.failure_ttl_s > 0
        return BuriedEntry(
            entry_id,
            fields,
            encode_failure(burial.reason, burial.failure) if has_failure else b"",
            keys.failure(awaited_id(job_id)) if has_failure else b"",
            job_id,
            all_markers(keys, job_id, extras),
            halted_by(extras),
        )

    def claim(self, entries: Sequence[Delivery | BuryEntry]) -> Claim:
        """How to settle: the script checks that we still own an entry only if a lease may lapse."""
        target = self._target
        owner = b"" if self._lease.are_valid(entries) else target.consumer
        return Claim(target.keys.stream, target.group, target.keys.gate, owner)


def _value_of(each: CloseEntry) -> bytes:
    return encode_cancelled() if each.cancelled else each.result


def _kept_s(each: CloseEntry) -> int:
    return CANCELLED_TTL_S if each.cancelled else each.ttl_s


def stream_run(delivery: Delivery) -> bytes:
    """The run of a job that may have a stream; b"" for any other."""
    if not delivery.plan.streams:
        return b""
    return b"%d" % run_of(delivery.entry_id, delivery.job.attempt)


def halted_by(extras: Extras) -> bytes:
    """What is closed when this job is buried: nothing, unless it stops its key."""
    if extras.line is None or f"|{HALTED}:" not in extras.line:
        return b""
    resources = parse_line(extras.line).resources
    return next(each.encode() for each in resources if limit_of(each)[0] == ORDERED)


def extras_of(burial: BuryEntry) -> Extras:
    """The extras of a job that is buried."""
    try:
        return decode_extras(burial.dead.extras)
    except DecodeError:
        return NO_EXTRAS


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
