"""One job to add, with its options checked and its times worked out."""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from tampu.backoff import check_retrying
from tampu.errors import OptionError, duration_text
from tampu.job import JobOptions, NewJob
from tampu.limits.model import NO_NAMED, NamedLimits
from tampu.limits.placing import FLOW_OPTIONS, FlowOptions, Placement, find_place
from tampu.unique import OnConflict, Unique
from tampu.util.clock import Duration, instant_ms, to_ms, to_positive_ms
from tampu.util.options import check_names
from tampu.wire.entry import encode_member, join_member
from tampu.wire.envelope import Envelope, RetryOverride, encode_envelope
from tampu.wire.extras import NO_EXTRAS, Extras, append_extras, encode_extras
from tampu.wire.fields import encode_name
from tampu.wire.flow import check_chosen_id
from tampu.wire.keys import HeldKey, QueueKeys, UniqueUntil
from tampu.wire.names import check_job_name
from tampu.wire.payload import encode_payload

_OPTION_NAMES: Final = tuple(JobOptions.__annotations__)


_flow_options: Final = attrgetter(*FLOW_OPTIONS)


class JobRules(Struct, frozen=True):
    """Limits that a queue sets for its jobs, and how long their ids stay taken."""

    max_payload: int
    max_delay_ms: int
    unique_ms: int
    limits: NamedLimits = NO_NAMED  # that the queue's app has declared


class UniqueRequest(Struct, frozen=True):
    """The unique key that a job wants, for how long, and what happens if it is taken."""

    key: str
    until: UniqueUntil
    held_ms: int
    on_conflict: OnConflict

    @property
    def is_timed(self) -> bool:
        """Whether the key stays taken after the job has ended."""
        return self.until is UniqueUntil.TIME


class Request(Struct, frozen=True, kw_only=True):
    """One job to add, validated. It lacks only an id and the time at which it is sent.

    `due` is an argument of the add script: b"" for now, milliseconds since 1970, or b"+" and
    milliseconds from now, by the server's clock.
    """

    name: str
    data: object
    payload: bytes
    raw_name: bytes
    job_id: str | None = None
    retry: RetryOverride | None = None
    extras: Extras
    due: bytes = b""
    delay_ms: int = 0
    marker_s: bytes = b""  # how long its id stays taken
    index_s: bytes = b""  # how long a delayed job can be found by its id
    unique: UniqueRequest | None = None
    place: Placement | None = None  # where it waits, if flow control applies to it

    @property
    def waits(self) -> bool:
        """Whether it waits until its line has room."""
        return self.place is not None and self.place.waits

    def encode(self, job_id: str, now_ms: int) -> list[bytes]:
        """The arguments of the add script for this job."""
        envelope = encode_envelope(Envelope(job_id, self.payload, now_ms, 0, self.retry))
        held = self.unique
        unique = b"" if held is None else b"%d %b" % (held.held_ms, job_id.encode())
        if self.due:
            member = encode_member(self.name, envelope, self.extras)
            return [member, b"", b"", self.due, self.marker_s, self.index_s, unique]
        extras = encode_extras(self.extras) or b""
        return [envelope, self.raw_name, extras, b"", self.marker_s, b"", unique]

    def encode_lined(self, job_id: str, now_ms: int) -> list[bytes]:
        """The arguments for a call in which some jobs wait in lines."""
        envelope = encode_envelope(Envelope(job_id, self.payload, now_ms, 0, self.retry))
        held, place = self.unique, self.place
        unique = b"" if held is None else b"%d %b" % (held.held_ms, job_id.encode())
        member = join_member(self.raw_name, append_extras(envelope, self.extras))
        index_s = self.index_s if self.due else b""
        line = b"" if place is None else place.line.encode()
        weight = b"" if place is None else place.weight_text
        rule = b"" if place is None else place.rule.encode()
        return [member, b"", b"", self.due, self.marker_s, index_s, unique, line, weight, rule]

    def keys(self, keys: QueueKeys, job_id: str) -> list[bytes]:
        """The keys that the add script needs for this job."""
        job_keys = [keys.marker(job_id)] if self.marker_s else []
        if self.index_s:
            job_keys.append(keys.index(job_id))
        if self.unique is not None:
            job_keys.append(keys.unique(self.unique.key))
        if self.marker_s:
            job_keys += keys.result(job_id), keys.failure(job_id)
        return job_keys


def new_job(name: str, data: object, options: JobOptions) -> NewJob:
    """The job for a name, data and options; `OptionError` names an unknown option."""
    check_names("a job", options, _OPTION_NAMES)
    return NewJob(name, data, **options)


class PlainColumns(Struct, frozen=True):
    """Names and data of jobs without options."""

    names: tuple[str, ...]
    datas: tuple[object, ...]


def plain_columns(jobs: Sequence[NewJob]) -> PlainColumns | None:
    """The jobs as columns; None if one of them has an option or is not a `NewJob`."""
    if set(map(type, jobs)) != {NewJob}:
        return None
    # Column by column: checking job by job took four times as long.
    names, datas, *options = zip(*map(astuple, jobs), strict=True)
    count = len(names)
    if any(column.count(None) != count for column in options):
        return None
    return PlainColumns(names, datas)


def plain_request(name: str, data: object, *, raw_name: bytes, payload: bytes) -> Request:
    """The request for a job without options."""
    return Request(name=name, data=data, payload=payload, raw_name=raw_name, extras=NO_EXTRAS)


def request_for(job: NewJob, rules: JobRules, now_ms: int) -> Request:
    """The request for a job; raises `OptionError` or `EncodeError` if it is invalid."""
    given: object = job
    if not isinstance(given, NewJob):
        raise OptionError("jobs", type(job), "expected NewJob values")
    check_job_name(job.name)
    due, delay_ms = due_of(job.delay, job.at, rules=rules, now_ms=now_ms)
    kept_s = b"%d" % retention_s(delay_ms, _unique_ms(job, rules))
    payload = encode_payload(job.data, max_bytes=rules.max_payload)
    unique = _unique(job, payload, delay_ms)
    place = _place(job, rules.limits)
    return Request(
        name=job.name,
        data=job.data,
        payload=payload,
        raw_name=encode_name(job.name),
        job_id=None if job.job_id is None else check_chosen_id(job.job_id),
        retry=_retry(job),
        extras=_extras(job, now_ms + delay_ms, unique=unique, place=place),
        due=due if delay_ms else b"",
        delay_ms=delay_ms,
        marker_s=b"" if job.job_id is None else kept_s,
        index_s=kept_s if delay_ms else b"",
        unique=unique,
        place=place,
    )


def due_of(
    delay: Duration | None, at: datetime | None, *, rules: JobRules, now_ms: int
) -> tuple[bytes, int]:
    """When a job is due, as `Request.due`, and the delay in milliseconds by our own clock."""
    if delay is not None and at is not None:
        raise OptionError("at", at, "cannot be combined with delay")
    if at is not None:
        at_ms = instant_ms("at", at)
        delay_ms = max(0, at_ms - now_ms)
        due = b"%d" % at_ms
    elif delay is not None:
        delay_ms = to_ms("delay", delay)
        due = b"+%d" % delay_ms
    else:
        return b"", 0
    if delay_ms > rules.max_delay_ms:
        option, given = ("delay", delay) if at is None else ("at", at)
        longest = duration_text(rules.max_delay_ms / 1000)
        raise OptionError(option, given, f"exceeds max_delay, {longest}")
    return due, delay_ms


def retention_s(delay_ms: int, unique_ms: int) -> int:
    """How long the server keeps a job's id, in seconds: until the job is due, then `unique_ms`."""
    return -(-(max(1000, delay_ms) + unique_ms) // 1000)


def _retry(job: NewJob) -> RetryOverride | None:
    if job.attempts is None and job.backoff is None:
        return None
    check_retrying(job.attempts, job.backoff)
    return RetryOverride(job.attempts, None if job.backoff is None else job.backoff.to_wire())


def _unique(job: NewJob, payload: bytes, delay_ms: int) -> UniqueRequest | None:
    given: object = job.unique
    if given is None:
        return None
    if not isinstance(given, Unique):
        raise OptionError("unique", given, "expected Unique(...)")
    key, held_ms = given.key_for(job.name, payload), given.held_ms(delay_ms)
    return UniqueRequest(key, given.until_kind, held_ms, given.on_conflict)


def _place(job: NewJob, named: NamedLimits) -> Placement | None:
    """Where the job waits; None if flow control does not apply to it."""
    given = _flow_options(job)
    if given.count(None) == len(given):
        return None
    options = FlowOptions(**dict(zip(FLOW_OPTIONS, given, strict=True)))
    if options.debounce is not None and (job.delay is not None or job.at is not None):
        raise OptionError("debounce", options.debounce, "cannot be combined with delay or at")
    return find_place(job.name, job.data, options, named=named)


def _extras(
    job: NewJob, due_ms: int, *, unique: UniqueRequest | None, place: Placement | None
) -> Extras:
    timeout_ms, expires_ms = _optional_ms("timeout", job.timeout), None
    if job.expires is not None:
        # By the producer's clock, like the time at which the job was added.
        expires_ms = due_ms + to_positive_ms("expires", job.expires)
    extras = Extras(
        line=None if place is None else place.line,
        cost=None if place is None else place.cost,
        rule=None if place is None else place.own_rule,
        timeout_ms=timeout_ms,
        deadline_ms=expires_ms,
        tenant=_tenant(job.tenant),
        headers=_headers(job.headers),
        unique=None if unique is None else HeldKey(unique.key, unique.until),
    )
    encode_extras(extras)  # raises EncodeError now, before anything is sent
    return extras


def _tenant(given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise OptionError("tenant", given, "expected text")
    return given


def _headers(given: object) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in given.items()
    ):
        # Only their type is shown: headers may contain a secret.
        raise OptionError("headers", type(given), "expected a dict of text to text")
    return dict(given)


def _optional_ms(option: str, given: Duration | None) -> int | None:
    return None if given is None else to_positive_ms(option, given)


def _unique_ms(job: NewJob, rules: JobRules) -> int:
    if job.unique_for is not None and job.job_id is None:
        raise OptionError("unique_for", job.unique_for, "requires a job_id")
    return _optional_ms("unique_for", job.unique_for) or rules.unique_ms
