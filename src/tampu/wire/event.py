"""What happens to jobs, as entries of the events stream: `e, id, ts, [n], …` in plain text."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from tampu.wire.fields import clip_text, pair_fields, show_number, show_text, tell_text

MAX_TEXT_BYTES: Final = 8_192
"""A reason is an exception's text and may be of any length; an event is not the place for it."""


class EventKind(Enum):
    """What can happen, spelled as on the wire."""

    WAITING = "waiting"  # a delayed job was promoted; a peer's never has a name
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRY_SCHEDULED = "retry-scheduled"
    DEAD = "dlq"
    DRAINED = "drained"  # an empty read followed one that was not
    DELAYED = "delayed"  # peers know it and never write it

    ADDED = "added"  # from here on: ours
    CANCELLED = "cancelled"
    FIRED = "fired"  # a repeat added a job
    REPLAYED = "replayed"
    PROGRESS = "progress"


_KINDS: Final = {kind.value: kind for kind in EventKind}
_SPELLED: Final = {kind: kind.value.encode() for kind in EventKind}

# One order serves every kind: each writes those of these that it has.
_ORDER: Final = ("attempt", "backoff_ms", "delay_ms", "reason", "duration_us")
_NUMBERS: Final = frozenset({b"attempt", b"backoff_ms", b"delay_ms", b"duration_us", b"progress"})
_COMMON: Final = (b"e", b"id", b"ts", b"n")


class Event(Struct, frozen=True):
    """An event as read. A kind we do not know, or a number that is none, stays text."""

    kind: EventKind | str
    job_id: str
    ts: int | str
    name: str
    fields: dict[str, int | str]


def encode_event(
    kind: EventKind, *, job_id: str, ts_ms: int, name: str = "", **fields: int | str
) -> list[bytes]:
    """The fields of an event in the order in which peers write them; ours come last.

    An empty name is not written.
    """
    flat = [b"e", _SPELLED[kind], b"id", tell_text(job_id), b"ts", b"%d" % ts_ms]
    if name:
        flat += b"n", tell_text(name)
    for field in _ORDER:
        if field in fields:
            flat += field.encode(), _spell(fields.pop(field))
    for field, value in fields.items():
        flat += field.encode(), _spell(value)
    return flat


# The two events of every job. One list literal each, without keywords: a quarter of the time.


def encode_active(  # noqa: PLR0917 - keywords cost a tenth of the call
    job_id: str, ts: bytes, raw_name: bytes, attempt: int
) -> list[bytes]:
    """What `encode_event` writes of a job whose handler starts; `ts` is a number as text."""
    told = job_id.encode("utf-8", "replace")
    runs = b"%d" % attempt
    if raw_name:
        return [b"e", b"active", b"id", told, b"ts", ts, b"n", raw_name, b"attempt", runs]
    return [b"e", b"active", b"id", told, b"ts", ts, b"attempt", runs]


def encode_completed(  # noqa: PLR0917 - as above
    job_id: str, ts: bytes, raw_name: bytes, attempt: int, duration_us: int
) -> list[bytes]:
    """What `encode_event` writes of a job whose handler returned; `ts` is a number as text."""
    told = job_id.encode("utf-8", "replace")
    runs, took = b"%d" % attempt, b"%d" % duration_us
    if raw_name:
        # fmt: off
        return [b"e", b"completed", b"id", told, b"ts", ts, b"n", raw_name,
                b"attempt", runs, b"duration_us", took]
        # fmt: on
    return [b"e", b"completed", b"id", told, b"ts", ts, b"attempt", runs, b"duration_us", took]


def decode_event(flat: Sequence[bytes]) -> Event:
    """The event that the fields of an entry tell of; fields that are missing count as empty."""
    given = pair_fields(flat, what="event")
    kind, job_id, ts, name = (given.get(field, b"") for field in _COMMON)
    text = show_text(kind)
    return Event(
        kind=_KINDS.get(text, text),
        job_id=show_text(job_id),
        ts=show_number(ts),
        name=show_text(name),
        fields={
            show_text(field): show_number(value) if field in _NUMBERS else show_text(value)
            for field, value in given.items()
            if field not in _COMMON
        },
    )


def _spell(value: int | str) -> bytes:
    return b"%d" % value if isinstance(value, int) else clip_text(value, MAX_TEXT_BYTES)
