"""The stored state of a scheduled task, as JSON."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

from msgspec import DecodeError as MsgspecDecodeError
from msgspec import Meta, Struct, ValidationError, json
from msgspec.structs import replace

from tampu.errors import DecodeError, OptionError
from tampu.util.clock import instant, instant_ms

_WHAT: Final = "task state"
# Deep nesting raises a RecursionError, even inside an unknown field.
_MALFORMED: Final = (MsgspecDecodeError, UnicodeDecodeError, RecursionError)

Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Ms: TypeAlias = Annotated[int, Meta(ge=-62_135_596_800_000, le=253_402_300_799_999)]
"""Milliseconds since 1970, within the years that a datetime supports."""


class Waiting(Struct, frozen=True, gc=False):
    """An occurrence that waits to run; `manual` if `trigger_now` asked for it."""

    at_ms: Ms
    catch_up: bool = False
    manual: bool = False


class TaskState(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the scheduler remembers of a task between occurrences and across processes.

    `next_ms` is None if no occurrence is left. `fired` counts occurrences that have passed, whether
    they `ran` or were `skipped`.
    """

    task_id: str
    fingerprint: str = ""  # of the schedule that `next_ms` was computed from; "" if unknown
    next_ms: Ms | None = None
    anchor_ms: Ms | None = None  # where the grid of an interval begins
    fired: Count = 0
    ran: Count = 0
    failed: Count = 0
    skipped: Count = 0
    queued: Waiting | None = None  # fired during a run, and still to run
    asked: Waiting | None = None  # requested by `trigger_now`, and still to run
    stands_in_ms: Ms | None = None  # the occurrence that also covers missed ones before it
    paused_ms: Ms | None = None  # since when
    resumed_ms: Ms | None = None  # occurrences up to here were paused, not late
    last_run_ms: Ms | None = None  # when the last finished run had started
    last_success_ms: Ms | None = None  # when the last successful run ended
    last_error: str | None = None

    @property
    def next_at(self) -> datetime | None:
        """The next occurrence."""
        return _instant(self.next_ms)

    @property
    def last_run_at(self) -> datetime | None:
        """When the last finished run had started."""
        return _instant(self.last_run_ms)

    @property
    def last_success_at(self) -> datetime | None:
        """When the last successful run ended."""
        return _instant(self.last_success_ms)


def encode_task_state(state: TaskState) -> bytes:
    """The state as JSON. Lone surrogates in the error text become question marks."""
    try:
        return json.encode(state)
    except UnicodeEncodeError:
        error = (state.last_error or "").encode(errors="replace").decode()
        return json.encode(replace(state, last_error=error))


def decode_task_state(body: bytes) -> TaskState:
    """The state in JSON, or `DecodeError`."""
    try:
        return json.decode(body, type=TaskState)
    except _MALFORMED as error:
        raise DecodeError(_WHAT, _problem(error)) from None


class _PeerState(Struct, frozen=True):
    """The state as cloudiful-scheduler writes it."""

    job_id: str
    trigger_count: Count
    last_run_at: datetime | None = None
    last_success_at: datetime | None = None
    next_run_at: datetime | None = None
    last_error: str | None = None


def decode_peer_state(body: bytes) -> TaskState:
    """The state in cloudiful-scheduler's JSON. Its only counter is that of passed occurrences."""
    try:
        peer = json.decode(body, type=_PeerState)
    except _MALFORMED as error:
        raise DecodeError(_WHAT, _problem(error)) from None
    return TaskState(
        task_id=peer.job_id,
        next_ms=_stamp(peer.next_run_at),
        fired=peer.trigger_count,
        last_run_ms=_stamp(peer.last_run_at),
        last_success_ms=_stamp(peer.last_success_at),
        last_error=peer.last_error,
    )


def try_decode(
    body: bytes, task_id: str, *, decode: Callable[[bytes], TaskState] = decode_task_state
) -> TaskState | DecodeError:
    """The state of one task, or the error why it cannot be read; the error is not raised."""
    try:
        state = decode(body)
    except DecodeError as error:
        return error
    return state if state.task_id == task_id else DecodeError(_WHAT, "it belongs to another task")


def _problem(error: Exception) -> str:
    """The problem, without quoting the body."""
    return str(error) if isinstance(error, ValidationError) else "it is not JSON"


def _instant(ms: int | None) -> datetime | None:
    return None if ms is None else instant(ms)


def _stamp(moment: datetime | None) -> int | None:
    try:
        return None if moment is None else instant_ms("moment", _in_utc(moment))
    except OptionError as error:
        raise DecodeError(_WHAT, "a time has no time zone") from error
    except OverflowError as error:
        raise DecodeError(_WHAT, "a time is out of range") from error


def _in_utc(moment: datetime) -> datetime:
    # A naive datetime would count as local time.
    return moment if moment.tzinfo is None else moment.astimezone(UTC)
