"""What was done by hand: entries of the audit stream, and the record of an action on many jobs."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError
from tampu.wire.fields import cut_text, decode_number, decode_text, encode_text, pair_fields
from tampu.wire.msgpack import decode_as

AUDIT: Final = b"{chasqui:}:tampu:audit"
"""A stream of what was done by hand, one for all queues."""
_BULK: Final = b"{chasqui:}:tampu:bulk:"
_MAX_TEXT_BYTES: Final = 2_048
_FIELDS: Final = ("user", "action", "queue", "what", "outcome")


def bulk_key(bulk_id: str) -> bytes:
    """The hash of an action on many jobs: its plan and how far it is."""
    return _BULK + bulk_id.encode()


class AuditEntry(Struct, frozen=True, kw_only=True):
    """Who did what to which queue, and how many jobs it concerned."""

    user: str
    action: str
    queue: str
    what: str  # such as a filter, or the id of a job
    outcome: str = "done"
    count: int | None = None


def encode_audit(entry: AuditEntry) -> list[bytes]:
    """The fields of an entry of the audit stream; long texts are cut."""
    flat: list[bytes] = []
    for name in _FIELDS:
        text = cut_text(getattr(entry, name), _MAX_TEXT_BYTES)
        flat += name.encode(), encode_text(text)
    if entry.count is not None:
        flat += b"count", b"%d" % entry.count
    return flat


def decode_audit(flat: Sequence[bytes]) -> AuditEntry:
    """The entry in these fields, or `DecodeError`."""
    fields = pair_fields(flat, what="audit entry")
    texts = {name: decode_text(fields.get(name.encode(), b"")) for name in _FIELDS}
    count = decode_number(fields[b"count"]) if b"count" in fields else None
    return AuditEntry(**texts, count=count if isinstance(count, int) else None)


class BulkSample(Struct, frozen=True, array_like=True):
    """A job that the filter matched."""

    job_id: str
    name: str
    dead_id: str = ""


class BulkPlan(Struct, frozen=True, kw_only=True):
    """What somebody wants to do to all jobs that a filter matches, as it was counted."""

    queue: str
    action: str
    filter: dict[str, str]
    upto_ms: int  # jobs that came later are left alone, by the server's clock
    matched: int
    searched_all: bool  # else there may be more than were counted
    total: int  # of this state at that time
    samples: list[BulkSample]
    by: str = ""


class BulkProgress(Struct, frozen=True, kw_only=True):
    """A plan, and how far it is."""

    plan: BulkPlan
    state: str
    changed: int = 0
    seen_ms: int = 0  # when it was last heard of
    problem: str = ""
    is_aborted: bool = False  # somebody asked for it


PREPARED: Final = "prepared"
RUNNING: Final = "running"
DONE: Final = "done"
ABORTED: Final = "aborted"
FAILED: Final = "failed"

_encode: Final = Encoder().encode
_decoder: Final = Decoder(BulkPlan)


def encode_plan(plan: BulkPlan) -> bytes:
    """A plan as bytes."""
    return _encode(plan)


def decode_progress(flat: Sequence[bytes]) -> BulkProgress:
    """The record in the fields of its hash, or `DecodeError`."""
    fields = pair_fields(flat, what="bulk action")
    if b"plan" not in fields:
        raise DecodeError("bulk action", "it has no plan")
    plan = decode_as(_decoder, fields[b"plan"], what="bulk action", expected="a plan")
    return BulkProgress(
        plan=plan,
        state=decode_text(fields.get(b"state", b"")),
        changed=_number(fields, b"changed"),
        seen_ms=_number(fields, b"seen_ms"),
        problem=decode_text(fields.get(b"problem", b"")),
        is_aborted=b"abort" in fields,
    )


def _number(fields: dict[bytes, bytes], name: bytes) -> int:
    number = decode_number(fields.get(name, b"0"))
    return number if isinstance(number, int) else 0
