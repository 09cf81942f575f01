"""Intake: stream entries become deliveries, or are refused with a reason."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.consumer.handler import HandlerPlan
from tampu.errors import DecodeError
from tampu.job import Host, Job
from tampu.server.streams import RawEntry
from tampu.util.clock import now_ms
from tampu.wire.dead import BuryReason, DeadEntry, Failure
from tampu.wire.entry import Entry, decode_entry, pack_fields
from tampu.wire.envelope import (
    REFUSED,
    Envelope,
    decode_canonical,
    decode_envelope,
    encode_envelope,
)
from tampu.wire.extras import (
    LINE_ALONE,
    MAGIC,
    MAX_EXTRAS_BYTES,
    NO_EXTRAS,
    Extras,
    decode_extras,
    split_extras,
)
from tampu.wire.keys import UniqueUntil
from tampu.wire.msgpack import MAX_DEPTH
from tampu.wire.payload import (
    OwnPayloadFound,
    decode_data,
    decode_payload,
    decode_small,
    is_own_payload,
)
from tampu.wire.placeholders import Inputs, read_own_payload


class Delivery(Struct, frozen=True, gc=False):
    """A job to run, and what is needed to settle its entry.

    Not tracked by the garbage collector: it is short-lived and part of no cycle.
    """

    entry_id: bytes
    envelope: Envelope
    job: Job[Any]
    plan: HandlerPlan
    raw_name: bytes
    extras: bytes  # as they arrived, b"" for none
    read_at: float  # monotonic
    timeout_s: float | None

    @property
    def budget(self) -> int:
        """How many attempts the job has: its own number, else that of its handler."""
        override = self.envelope.retry
        if override is None or override.max_attempts is None:
            return self.plan.attempts
        return override.max_attempts

    @property
    def is_first(self) -> bool:
        """Whether its entry was delivered to no worker before."""
        return self.job.attempt == self.envelope.attempt + 1

    @property
    def frees_at_start(self) -> bool:
        """Whether the job holds a unique key until it starts."""
        held = self.job.extras.unique
        return held is not None and held.until is UniqueUntil.STARTED


class BuryEntry(Struct, frozen=True):
    """Bury the job: it was refused, or has failed for good."""

    entry_id: bytes
    job_id: str  # "" if the entry could not be decoded
    reason: BuryReason
    dead: DeadEntry
    read_at: float  # monotonic
    failure_ttl_s: int = 0  # how long waiting callers can read why; 0: it is not stored

    @property
    def failure(self) -> Failure | None:
        """What the last attempt raised, or why the entry was refused."""
        dead = self.dead
        return Failure("", dead.detail) if dead.failure is None and dead.detail else dead.failure


_MOST_NAMES: Final = 1000
_MOST_LINES: Final = 4096
_PLAIN, _LINED = 4, 6  # names and values of fields: of plain jobs, and of those with extras
# The last three: from odd payloads, and from those of flows.
_NOT_PLAIN: Final = (*REFUSED, OverflowError, TypeError, OwnPayloadFound)
ENVELOPE_ROOM: Final = 1024
"""The most that an envelope adds to its payload: a larger one is refused without decoding."""
_ROOM: Final = ENVELOPE_ROOM + MAX_EXTRAS_BYTES + len(MAGIC) + 4


class Arrival(Struct, frozen=True, gc=False):
    """When a batch arrived, by both clocks, and how often its entries have been delivered."""

    read_at: float
    now_ms: int
    deliveries: int = 1


class Accepted(Struct, frozen=True):
    """A batch, sorted into jobs to run, entries to bury, and jobs that lack values.

    The data of the latter are their `Inputs`.
    """

    deliveries: list[Delivery]
    refused: list[BuryEntry]
    incomplete: list[Delivery]


class Intake:
    """Decodes entries. `plans` are by job name; the one under None takes all other names.

    With `raw`, payloads stay bytes and are not checked. `failure_ttl_s` is for refused entries that
    no plan takes.
    """

    def __init__(
        self,
        plans: Mapping[str | None, HandlerPlan],
        *,
        max_payload: int,
        worker: str,
        host: Host,
        raw: bool = False,
        failure_ttl_s: int = 0,
    ) -> None:
        self._plans = plans
        self._failure_ttl_s = failure_ttl_s
        self._max_payload = max_payload
        self._raw = raw
        self._quick_up_to = -1 if raw else max_payload  # larger entries take the slow way
        self._worker = worker
        self._host = host
        self._known: dict[bytes, tuple[str, HandlerPlan | None]] = {}
        self._lines: dict[bytes, Extras] = {}  # of jobs that only have a line, by their bytes

    def accept(  # noqa: C901, PLR0915 - hot path: no call an entry to spare
        self, entries: Iterable[RawEntry], arrival: Arrival
    ) -> Accepted:
        """Sort entries into jobs to run and entries to bury."""
        batch = Accepted([], [], [])
        accepted = batch.deliveries
        most, known, lines, host = self._quick_up_to, self._known, self._lines, self._host
        read_at, delivered = arrival.read_at, arrival.deliveries
        extras: Extras | None
        for entry_id, fields in entries:
            if fields is None:
                continue  # deleted while it was pending: there is nothing to run or to bury
            # 0.7 us an entry this way, 0.8 with a line, 2.3 us the slow way (CPython 3.11).
            size = len(fields)
            lined = size == _LINED and fields[4] == b"x"
            if (lined or size == _PLAIN) and fields[0] == b"d" and fields[2] == b"n":
                body, raw_name = fields[1], fields[3]
                name, plan = known.get(raw_name) or self._look_up(raw_name)
                raw, extras = b"", NO_EXTRAS
                if lined:
                    raw = fields[5]
                    extras = lines.get(raw) or self._only_line(raw)
                is_small = len(body) <= most and not body.endswith(MAGIC)
                if is_small and plan is not None and extras is not None:
                    try:
                        envelope = decode_canonical(body)
                        payload = envelope.payload
                        small = len(payload) <= MAX_DEPTH
                        data = decode_small(payload) if small else decode_data(payload)
                    except _NOT_PLAIN:
                        envelope = None
                    if envelope is not None:
                        attempt, retry = envelope.attempt + delivered, envelope.retry
                        budget = plan.attempts if retry is None else retry.max_attempts
                        if attempt <= (plan.attempts if budget is None else budget):
                            job_id, created = envelope.id, envelope.created_at_ms
                            job: Job[Any] = Job(job_id, name, data, attempt, created, host, extras)
                            limit_s = plan.timeout_s
                            accepted.append(
                                Delivery(
                                    entry_id, envelope, job, plan, raw_name, raw, read_at, limit_s
                                )
                            )
                            continue
            self._sort_slowly((entry_id, fields), arrival, batch)
        return batch

    def _sort_slowly(self, entry: RawEntry, arrival: Arrival, batch: Accepted) -> None:
        try:
            delivery = self._accept_slowly(entry[0], entry[1] or [], arrival)
            is_complete = type(delivery.job.data) is not Inputs
            (batch.deliveries if is_complete else batch.incomplete).append(delivery)
        except _Refusal as refusal:
            batch.refused.append(self._bury(entry, refusal, arrival))

    def _accept_slowly(self, entry_id: bytes, fields: list[bytes], arrival: Arrival) -> Delivery:
        entry = _decode_fields(fields)
        if entry.envelope is None:
            raise _Refusal(BuryReason.MALFORMED, "the entry has no envelope")
        envelope, extras, raw_extras = _decode_body(entry, self._max_payload)
        try:
            data = self._decode(envelope.payload)
        except DecodeError as error:
            raise _Refusal(BuryReason.DECODE_FAILED, str(error), envelope) from None
        name, plan = self._known.get(entry.raw_name) or self._look_up(entry.raw_name)
        if plan is None:
            known = ", ".join(map(repr, self._plans))
            problem = f"no handler for jobs named {name!r}; this worker has {known}"
            raise _Refusal(BuryReason.UNKNOWN_HANDLER, problem, envelope)
        delivery = Delivery(
            entry_id,
            envelope,
            Job(
                envelope.id,
                name,
                data,
                envelope.attempt + arrival.deliveries,
                envelope.created_at_ms,
                self._host,
                extras,
            ),
            plan,
            entry.raw_name,
            raw_extras,
            arrival.read_at,
            plan.timeout_s if extras.timeout_ms is None else extras.timeout_ms / 1000,
        )
        _check_runnable(delivery, arrival, is_expired=entry.is_expired)
        return delivery

    def _decode(self, payload: bytes) -> object:
        """The data in a payload: of a flow's job that lacks values, its `Inputs`."""
        if is_own_payload(payload):
            own = read_own_payload(payload)
            if isinstance(own, Inputs):
                return own
            if own is not None:
                payload = bytes(own.arguments)
        return payload if self._raw else decode_payload(payload)

    def complete(self, delivery: Delivery, arguments: bytes) -> Delivery:
        """A delivery with the values that it lacked; `DecodeError` if they are no arguments."""
        if len(arguments) > self._max_payload:
            problem = f"with their values they take {len(arguments)} bytes; max_payload is "
            raise DecodeError("arguments", f"{problem}{self._max_payload}")
        data = arguments if self._raw else decode_payload(arguments)
        return replace(delivery, job=replace(delivery.job, data=data))

    def refuse(self, delivery: Delivery, problem: str) -> BuryEntry:
        """Bury a job that cannot get its values."""
        fields = [b"d", encode_envelope(delivery.envelope), b"n", delivery.raw_name]
        if delivery.extras:
            fields += b"x", delivery.extras
        refusal = _Refusal(BuryReason.DECODE_FAILED, problem, delivery.envelope)
        return self._bury((delivery.entry_id, fields), refusal, Arrival(delivery.read_at, now_ms()))

    def _only_line(self, raw: bytes) -> Extras | None:
        """The extras of a job that has a line and nothing else; None for all others."""
        if not raw.startswith(LINE_ALONE):
            return None
        try:
            extras = decode_extras(raw)
        except DecodeError:
            return None
        if len(self._lines) >= _MOST_LINES:
            self._lines.clear()
        self._lines[raw] = extras
        return extras

    def _look_up(self, raw_name: bytes) -> tuple[str, HandlerPlan | None]:
        name = Entry(None, raw_name).name
        plan = self._plans.get(name) or self._plans.get(None)
        if len(self._known) >= _MOST_NAMES:
            self._known.clear()
        found = self._known[raw_name] = (name, plan)
        return found

    def _bury(self, raw: RawEntry, refusal: "_Refusal", arrival: Arrival) -> BuryEntry:
        entry_id, fields = raw[0], raw[1] or []
        entry = _decode_fields(fields)
        envelope = refusal.envelope
        attempt = 0 if envelope is None else envelope.attempt + arrival.deliveries - 1
        dead = DeadEntry(
            envelope=entry.envelope or b"",
            source_id=entry_id.decode(),
            reason=refusal.reason,
            raw_name=entry.raw_name,
            detail=refusal.detail,
            attempt=attempt,
            worker=self._worker,
            buried_at_ms=arrival.now_ms,
            extras=entry.extras,
            entry=pack_fields(fields) if refusal.reason is BuryReason.MALFORMED else None,
        )
        job_id = "" if envelope is None else envelope.id
        plan = self._look_up(entry.raw_name)[1]
        ttl_s = self._failure_ttl_s if plan is None else plan.results.ttl_s
        return BuryEntry(entry_id, job_id, refusal.reason, dead, arrival.read_at, ttl_s)


class _Refusal(Exception):
    """Why an entry cannot be run; with its envelope, if that could be decoded."""

    def __init__(
        self, reason: BuryReason, detail: str | None, envelope: Envelope | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.detail, self.envelope = reason, detail, envelope


def _decode_fields(fields: list[bytes]) -> Entry:
    try:
        return decode_entry(fields)
    except DecodeError:
        return Entry(None)


def _decode_body(entry: Entry, most: int) -> tuple[Envelope, Extras, bytes]:
    """The envelope and its extras: in a field of their own, or after it if it was delayed."""
    body, appended = entry.envelope or b"", None
    if len(body) <= most + _ROOM:
        body, appended = split_extras(body)
    if len(body) > most + ENVELOPE_ROOM:
        raise _oversize(len(body), most)
    raw = entry.extras if entry.extras is not None else appended
    try:
        envelope = decode_envelope(body)
    except DecodeError as error:
        raise _Refusal(BuryReason.DECODE_FAILED, str(error)) from None
    if len(envelope.payload) > most:
        raise _oversize(len(envelope.payload), most, envelope)
    try:
        return envelope, NO_EXTRAS if raw is None else decode_extras(raw), raw or b""
    except DecodeError as error:
        raise _Refusal(BuryReason.DECODE_FAILED, str(error), envelope) from None


def _oversize(size: int, most: int, envelope: Envelope | None = None) -> _Refusal:
    problem = f"it takes {size} bytes; max_payload is {most}"
    return _Refusal(BuryReason.OVERSIZE_PAYLOAD, problem, envelope)


def _check_runnable(delivery: Delivery, arrival: Arrival, *, is_expired: bool) -> None:
    """Refuse a job that has no attempts left, or whose deadline has passed.

    What the gate says counts, not our clock: the job holds nothing, so it must not run.
    """
    job, envelope, crashed = delivery.job, delivery.envelope, arrival.deliveries > 1
    most = delivery.budget + (crashed and delivery.plan.repeats_crash)
    if job.attempt > most:
        if crashed:
            detail = f"its worker died in attempt {job.attempt - 1} of {most}"
            raise _Refusal(BuryReason.CRASHED, detail, envelope)
        raise _Refusal(BuryReason.RETRIES_EXHAUSTED, None, envelope)
    deadline_ms = job.extras.deadline_ms
    if deadline_ms is not None and (is_expired or arrival.now_ms > deadline_ms):
        late_ms = max(0, arrival.now_ms - deadline_ms)
        raise _Refusal(BuryReason.EXPIRED, f"its deadline passed {late_ms} ms ago", envelope)
