"""Carries settlements to the server in batches, and tells of them."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from tampu.consumer.batch_sender import BatchSender
from tampu.consumer.intake import Delivery, Rejected
from tampu.consumer.leases import Leases
from tampu.consumer.reporter import Reporter
from tampu.consumer.settle import (
    Ack,
    AckWithResult,
    BuryEntry,
    RetryEntry,
    Settlement,
    SettleRules,
    settle,
)
from tampu.outcome import Done, Failed, Outcome, Released, UnrecoverableFailure, failure_of
from tampu.server.lane import Lane
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
from tampu.wire.dead import BuryReason, Failure, encode_dead
from tampu.wire.entry import join_member
from tampu.wire.extras import append_raw_extras
from tampu.wire.keys import QueueKeys
from tampu.wire.result import encode_failure, encode_notice

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_A_CALL: Final = 500
_MOST_BYTES: Final = 4_194_304
_STORED: Final = ord("1")


class Grave(Struct, frozen=True):
    """What is needed to bury one entry and to tell of it."""

    entry_id: bytes
    fields: list[bytes]
    job_id: str
    name: str
    reason: BuryReason
    failure: Failure | None
    attempt: int
    read_at: float


class QueuePosition(Struct, frozen=True, kw_only=True):
    """Where a worker settles: its queue, its group, itself; how long results are kept."""

    keys: QueueKeys
    group: bytes
    consumer: bytes
    result_ttl_s: int | None  # None: results are not kept
    dead_max_len: int


class Settler:
    """Decides with `settle` and carries it out; each kind of settlement in batches of its own.

    So what is wrong with one kind, such as a delayed set that is none, does not stop the others.
    """

    def __init__(
        self,
        lane: Lane,
        place: QueuePosition,
        *,
        rules: SettleRules,
        leases: Leases,
        telling: Reporter,
    ) -> None:
        self._lane = lane
        self._place = place
        self._rules = rules
        self._leases = leases
        self._telling = telling
        self._silent = telling.silent
        self._keeps_nothing = rules.max_result is None
        self._acks: BatchSender[Delivery] = BatchSender("acks", self._send_acks, most=MAX_ACKS)
        self._keeps: BatchSender[AckWithResult] = BatchSender(
            "results", self._send_keeps, most=_MOST_A_CALL, awaited=True
        )
        self._again: BatchSender[RetryEntry] = BatchSender(
            "retries", self._send_again, most=_MOST_A_CALL
        )
        self._graves: BatchSender[Grave] = BatchSender(
            "burials", self._send_graves, most=_MOST_A_CALL, awaited=True
        )
        self.start = telling.started if telling.wants_starts else None

    def open(self) -> None:
        """Begin to send."""
        for outlet in (self._acks, self._keeps, self._again, self._graves):
            outlet.start()

    def __len__(self) -> int:
        return len(self._acks) + len(self._keeps) + len(self._again) + len(self._graves)

    def held(self) -> Iterator[bytes]:
        """The ids of entries that are decided but not settled yet."""
        yield from (each.entry_id for each in self._acks.items)
        yield from (each.delivery.entry_id for each in self._keeps.items)
        yield from (each.delivery.entry_id for each in self._again.items)
        yield from (each.entry_id for each in self._graves.items)

    def put(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        """Take what a run ended in; it is settled soon."""
        if self._keeps_nothing and type(outcome) is Done:
            if not self._silent:
                self._telling.ended(delivery, outcome, duration_ns)
            self._acks.put(delivery)
            return
        settlement = self._settled(delivery, outcome)
        if type(settlement) is AckWithResult:
            if not self._silent:
                self._telling.ended(delivery, outcome, duration_ns)
            self._keeps.put(settlement)
            return
        if isinstance(settlement, BuryEntry) and type(outcome) is Done:
            outcome = UnrecoverableFailure(settlement.failure)  # its result cannot be kept
        self._telling.ended(delivery, outcome, duration_ns)
        if isinstance(outcome, Failed | UnrecoverableFailure):
            self._telling.failed(delivery.job, outcome.failure)
        self._send_soon(settlement)

    def _settled(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        try:
            return settle(delivery, outcome, self._rules)
        except Exception as error:  # border: a result may be anything, also while it is encoded
            logger.exception("an outcome cannot be settled as it is")
            return settle(delivery, UnrecoverableFailure(failure_of(error)), self._rules)

    def _send_soon(self, settlement: Settlement) -> None:
        match settlement:
            case Ack(delivery):
                self._acks.put(delivery)
            case AckWithResult() as keep:
                self._keeps.put(keep)
            case RetryEntry() as reschedule:
                self._again.put(reschedule)
            case BuryEntry(delivery, letter, reason, failure):
                job = delivery.job
                self._graves.put(
                    Grave(
                        delivery.entry_id,
                        encode_dead(letter),
                        job.id,
                        job.name,
                        reason,
                        failure,
                        job.attempt,
                        delivery.read_at,
                    )
                )

    def hand_back(self, delivery: Delivery) -> None:
        """Give back an entry that was not started; it counts as no attempt."""
        settlement = settle(delivery, Released(), self._rules)
        assert isinstance(settlement, RetryEntry)  # noqa: S101 - that is what it means
        self._again.put(settlement)

    def reject(self, rejected: Rejected, *, read_at: float) -> None:
        """Take an entry that cannot be run."""
        letter = rejected.letter
        reason = letter.reason
        assert isinstance(reason, BuryReason)  # noqa: S101 - intake knows no others
        failure = None if letter.detail is None else Failure("", letter.detail)
        self._graves.put(
            Grave(
                rejected.entry_id,
                encode_dead(letter),
                rejected.job_id,
                letter.name,
                reason,
                failure,
                rejected.attempt,
                read_at,
            )
        )

    async def drain(self, limit_s: float) -> bool:
        """Settle all that is decided; False if that was not done in time."""
        outlets = (self._again, self._acks, self._keeps, self._graves)
        return all([await outlet.drain(limit_s) for outlet in outlets])

    async def close(self) -> None:
        """Stop sending."""
        for outlet in (self._acks, self._keeps, self._again, self._graves):
            await outlet.close()

    async def _send_acks(self, batch: list[Delivery]) -> None:
        claim = self._claim(batch)
        ids = [each.entry_id for each in batch]
        if not claim.owner:
            await ack(self._lane, ids, stream=claim.stream, group=claim.group)
            return
        unkept = [FinishedEntry(each, b"", self._place.keys.notices) for each in ids]
        shelf = ResultTarget(notices=self._place.keys.notices, notice=b"", ttl_s=1)
        await finish(self._lane, claim, unkept, shelf=shelf)

    async def _send_keeps(self, batch: list[AckWithResult]) -> None:
        for part in parts_of(batch, lambda keep: len(keep.result)):
            deliveries = [each.delivery for each in part]
            claim = self._claim(deliveries)
            keys, ids = self._place.keys, [each.job.id for each in deliveries]
            entries = [
                FinishedEntry(each.delivery.entry_id, each.result, key)
                for each, key in zip(part, keys.results(ids), strict=True)
            ]
            shelf = ResultTarget(
                notices=keys.notices,
                notice=encode_notice(ids),
                ttl_s=self._place.result_ttl_s or 1,
            )
            await finish(self._lane, claim, entries, shelf=shelf)

    async def _send_again(self, batch: list[RetryEntry]) -> None:
        keys = self._place.keys
        for part in parts_of(batch, lambda each: len(each.envelope)):
            claim = self._claim([each.delivery for each in part])
            entries = [_entry_again(each) for each in part]
            letters = await retry(self._lane, claim, entries, delayed=keys.delayed, bell=keys.bell)
            for each, letter in zip(part, letters, strict=True):
                if letter == _STORED and each.counted:
                    self._telling.rescheduled(each)

    async def _send_graves(self, batch: list[Grave]) -> None:
        place = self._place
        graveyard = DeadTarget(
            dead=place.keys.dead,
            notices=place.keys.notices,
            max_len=place.dead_max_len,
            ttl_s=place.result_ttl_s or 1,
        )
        for part in parts_of(batch, lambda each: sum(map(len, each.fields))):
            claim = self._claim(part)
            entries = [self._entry_buried(each) for each in part]
            told = [each.job_id for each, entry in zip(part, entries, strict=True) if entry.failure]
            notice = encode_notice(told) if told else b""
            letters = await bury(self._lane, claim, entries, graveyard=graveyard, notice=notice)
            for each, letter in zip(part, letters, strict=True):
                if letter == _STORED:
                    self._telling.buried(
                        each.job_id, name=each.name, reason=each.reason, attempt=each.attempt
                    )

    def _entry_buried(self, grave: Grave) -> BuriedEntry:
        if self._place.result_ttl_s is None or not grave.job_id:
            return BuriedEntry(grave.entry_id, grave.fields)
        failure = encode_failure(grave.reason, grave.failure)
        key = self._place.keys.failure(grave.job_id)
        return BuriedEntry(grave.entry_id, grave.fields, failure, key)

    def _claim(self, held: Sequence[Delivery] | Sequence[Grave]) -> Claim:
        """In our name; checked, entry by entry, only where a lease may have lapsed."""
        place = self._place
        owner = b"" if self._leases.hold(held) else place.consumer
        return Claim(place.keys.stream, place.group, owner)


def _entry_again(each: RetryEntry) -> RetriedEntry:
    delivery = each.delivery
    if each.wait_ms is None:
        name, extras = delivery.raw_name, delivery.extras
        return RetriedEntry(delivery.entry_id, None, each.envelope, name, extras)
    body = append_raw_extras(each.envelope, delivery.extras)
    return RetriedEntry(delivery.entry_id, each.wait_ms, join_member(delivery.raw_name, body))


def parts_of(items: Iterable[T], weigh: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in order, in parts that one call can carry: of at most 4 MiB, or of one item."""
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
