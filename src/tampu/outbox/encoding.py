"""Jobs on their way through a table: from a checked request to a row, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.errors import OptionError
from tampu.limits.placing import Placement
from tampu.producer.request import (
    Request,
    UniqueRequest,
    request_for,
    retention_s,
    with_headers,
)
from tampu.util.clock import now_ms, to_positive_ms
from tampu.util.ids import new_id
from tampu.wire.fields import encode_name
from tampu.wire.lines import parse_definition
from tampu.wire.names import check_job_id, check_job_name, check_queue_name
from tampu.wire.outbox import (
    VERSION,
    OutboxJob,
    OutboxKey,
    OutboxLimit,
    decode_outbox_job,
    encode_outbox_job,
)

if TYPE_CHECKING:
    from tampu.job import NewJob
    from tampu.producer.request import JobRules

UNIQUE_FOR: Final = "1d"
"""How long the id of a job stays taken, so that a relay that crashed adds it once."""
_NOBODY: Final = "nobody waits for a job of an outbox when it is added"


class StoredJob(Struct, frozen=True):
    """A job to be stored in a table: its queue, its row, and what its producer gets of it."""

    queue: str
    body: bytes
    request: Request
    job_id: str
    stored_at_ms: int


def store_job(queue: str, job: NewJob, rules: JobRules, *, headers: dict[str, str]) -> StoredJob:
    """Check and encode a job; raises `OptionError` or `EncodeError`."""
    check_queue_name(queue)
    at_ms = now_ms()
    job_id = new_id(at_ms) if job.job_id is None else job.job_id
    unique_for = job.unique_for or UNIQUE_FOR
    job = replace(job, job_id=job_id, unique_for=unique_for)
    request = with_headers(request_for(job, rules, at_ms), headers)
    _check_conflicts(request, job)
    body = encode_outbox_job(
        OutboxJob(
            version=VERSION,
            name=request.name,
            job_id=job_id,
            payload=request.payload,
            stored_at_ms=at_ms,
            due_at_ms=at_ms + request.delay_ms if request.delay_ms else 0,
            unique_ms=to_positive_ms("unique_for", unique_for),
            retry=request.retry,
            extras=request.extras,
            unique=_key_of(request),
            limits=_limits_of(request.place),
            weight=None if request.place is None else request.place.weight,
        )
    )
    return StoredJob(queue, body, request, job_id, at_ms)


def read_request(body: bytes, now_ms: int) -> Request:
    """The request of a row; raises `DecodeError` or `OptionError`."""
    job = decode_outbox_job(body)
    delay_ms = max(0, job.due_at_ms - now_ms)
    kept_s = b"%d" % retention_s(delay_ms, job.unique_ms)
    return Request(
        name=check_job_name(job.name),
        data=None,
        payload=job.payload,
        raw_name=encode_name(job.name),
        job_id=check_job_id(job.job_id),
        retry=job.retry,
        extras=job.extras,
        due=b"%d" % job.due_at_ms if delay_ms else b"",
        delay_ms=delay_ms,
        marker_s=kept_s,
        index_s=kept_s if delay_ms else b"",
        unique=_unique_of(job.unique),
        place=_place_of(job),
    )


def _check_conflicts(request: Request, job: NewJob) -> None:
    """Refuse options that tell their outcome to whoever waits for the add."""
    unique = request.unique
    if unique is not None and unique.on_conflict == "raise":
        problem = f'{_NOBODY}; choose "return" or "replace"'
        raise OptionError("on_conflict", unique.on_conflict, problem)
    if job.max_waiting is not None and job.on_full not in {"drop_new", "drop_old"}:
        problem = f'{_NOBODY}; choose "drop_new" or "drop_old"'
        raise OptionError("on_full", job.on_full or "raise", problem)


def _key_of(request: Request) -> OutboxKey | None:
    unique = request.unique
    if unique is None or unique.on_conflict == "raise":
        return None
    return OutboxKey(unique.key, unique.until, unique.held_ms, unique.on_conflict)


def _unique_of(key: OutboxKey | None) -> UniqueRequest | None:
    return None if key is None else UniqueRequest(key.key, key.until, key.held_ms, key.on_conflict)


def _limits_of(place: Placement | None) -> tuple[OutboxLimit, ...]:
    if place is None:
        return ()
    return tuple(
        OutboxLimit(name, None if definition is None else definition.to_text())
        for name, definition in place.limits
    )


def _place_of(job: OutboxJob) -> Placement | None:
    line = job.extras.line
    if line is None:
        return None
    limits = tuple(
        (each.name, None if each.definition is None else parse_definition(each.definition))
        for each in job.limits
    )
    return Placement(line, limits, job.weight, job.extras.cost, job.extras.rule or "")
