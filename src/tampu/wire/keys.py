"""The keys of a queue, and which names may become part of one.

All keys of a queue begin with the same hash tag, so that a cluster keeps them in one slot.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from tampu.errors import OptionError

MAX_QUEUE_NAME_BYTES: Final = 128
MAX_JOB_ID_BYTES: Final = 512
MAX_JOB_NAME_BYTES: Final = 256
MAX_SCHEDULE_KEY_BYTES: Final = 1024
MAX_TASK_ID_BYTES: Final = 256
MAX_PREFIX_BYTES: Final = 256
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Braces would move the hash tag, glob characters would make a SCAN pattern match its neighbours.
_NOT_IN_QUEUE_NAME: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\s{}*?\[\]]")
_NOT_BESIDE_A_TAG: Final = re.compile(r"[\x00-\x1f\x7f-\x9f{}]")
_SHOWN_CHARACTERS: Final = 80
_GLOB: Final = re.compile(rb"[*?\[\]\\^-]")


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """Every key of one queue, as bytes; built once, since the hot path only packs them."""

    name: str
    tag: bytes = field(init=False, repr=False)
    stream: bytes = field(init=False, repr=False)
    delayed: bytes = field(init=False, repr=False)
    dead: bytes = field(init=False, repr=False)
    events: bytes = field(init=False, repr=False)
    repeat: bytes = field(init=False, repr=False)
    promoter_lock: bytes = field(init=False, repr=False)
    scheduler_lock: bytes = field(init=False, repr=False)
    notices: bytes = field(init=False, repr=False)
    bell: bytes = field(init=False, repr=False)
    paused: bytes = field(init=False, repr=False)
    schedule_bell: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tag = b"{chasqui:%b}" % check_queue_name(self.name).encode()
        fixed = {
            "tag": tag,
            "stream": tag + b":stream",
            "delayed": tag + b":delayed",
            "dead": tag + b":dlq",
            "events": tag + b":events",
            "repeat": tag + b":repeat",
            "promoter_lock": tag + b":promoter:lock",
            "scheduler_lock": tag + b":scheduler:lock",
            "notices": tag + b":tampu:notices",
            "bell": tag + b":tampu:bell",
            "paused": tag + b":tampu:paused",
            "schedule_bell": tag + b":tampu:schedule-bell",
        }
        for attribute, key in fixed.items():
            object.__setattr__(self, attribute, key)

    @property
    def lasting(self) -> tuple[bytes, ...]:
        """The keys that a queue is known by: it is there while one of them is."""
        return (self.stream, self.delayed, self.dead, self.repeat, self.paused, self.events)

    @property
    def pattern(self) -> bytes:
        """Matches every key of this queue in a SCAN, and no other's."""
        return escape_glob(self.tag) + b":*"

    def marker(self, job_id: str) -> bytes:
        """Says that a job of this id was added; holds `MARKER_VALUE`."""
        return b"%b:dlid:%b" % (self.tag, job_id.encode())

    def index(self, job_id: str) -> bytes:
        """Holds the member of a delayed job, so that it can be taken back by its id."""
        return b"%b:didx:%b" % (self.tag, job_id.encode())

    def indexes(self, raw_ids: Iterable[bytes]) -> list[bytes]:
        """As `index`, of many ids as they stand in their envelopes."""
        prefix = self.tag + b":didx:"
        return [prefix + raw_id for raw_id in raw_ids]

    def spec(self, schedule_key: str) -> bytes:
        """The hash of a repeat: its spec and how often it fired."""
        return self.raw_spec(schedule_key.encode())

    def raw_spec(self, schedule_key: bytes) -> bytes:
        """As `spec`, of a key as it stands in the sorted set."""
        return b"%b:repeat:spec:%b" % (self.tag, schedule_key)

    def result(self, job_id: str) -> bytes:
        """Holds what the handler returned, for a while."""
        return b"%b:result:%b" % (self.tag, job_id.encode())

    def results(self, job_ids: Iterable[str]) -> list[bytes]:
        """As `result`, of many; half of the time each."""
        prefix = self.tag + b":result:"
        return [prefix + job_id.encode() for job_id in job_ids]

    def failure(self, job_id: str) -> bytes:
        """Our own: why a job was buried, for those who wait for its result."""
        return b"%b:tampu:failure:%b" % (self.tag, job_id.encode())

    def producer(self, producer_id: str) -> bytes:
        """Our own: what a producer's last calls were answered, for its resends."""
        return b"%b:tampu:producer:%b" % (self.tag, producer_id.encode())

    def worker(self, consumer_id: bytes) -> bytes:
        """Our own: exists while that worker lives."""
        return b"%b:tampu:worker:%b" % (self.tag, consumer_id)


EVERY_QUEUE: Final = b"{chasqui:*}:*"
"""Matches every key of every queue in a SCAN."""
_QUEUE_OF: Final = re.compile(rb"\{chasqui:([^}]+)\}:(.+)", re.DOTALL)
_LASTING: Final = (b"stream", b"delayed", b"dlq", b"repeat", b"tampu:paused", b"events")
_EXPIRING: Final = (
    b"dlid:",
    b"didx:",
    b"result:",
    b"promoter:lock",
    b"scheduler:lock",
    b"tampu:failure:",
    b"tampu:producer:",
    b"tampu:worker:",
)


def escape_glob(text: bytes) -> bytes:
    """A pattern that matches the text itself and nothing else."""
    return _GLOB.sub(rb"\\\g<0>", text)


def queue_known_by(key: bytes) -> str | None:
    """The queue that a key proves to be there; None if it proves none that we could open."""
    found = _QUEUE_OF.fullmatch(key)
    if found is None or found[2] not in _LASTING:
        return None
    try:
        return check_queue_name(found[1].decode())
    except (UnicodeDecodeError, OptionError):
        return None


def must_expire(key: bytes) -> bool:
    """Whether a key of a queue is one that is never written without an end."""
    found = _QUEUE_OF.fullmatch(key)
    return found is not None and found[2].startswith(_EXPIRING)


MARKER_VALUE: Final = b"1"
"""What a marker key holds; peers only ask whether it exists."""


def check_queue_name(name: str) -> str:
    """The name, if it can be a queue's."""
    accepted = (
        f"must be 1 to {MAX_QUEUE_NAME_BYTES} bytes of text without whitespace, "
        "control characters and any of { } * ? [ ]"
    )
    size = _size("queue", name, accepted)
    if not 0 < size <= MAX_QUEUE_NAME_BYTES or _NOT_IN_QUEUE_NAME.search(name):
        raise _refused("queue", name, accepted)
    return name


def check_name(option: str, given: str) -> str:
    """What a worker or a group is called, if it can be: by the rules for a queue's name."""
    try:
        return check_queue_name(given)
    except OptionError as refusal:
        raise OptionError(option, refusal.given, refusal.problem) from None


def check_job_id(job_id: str) -> str:
    """The id, if it can be a job's."""
    accepted = f"must be 1 to {MAX_JOB_ID_BYTES} bytes of text, not blank, no control characters"
    size = _size("job_id", job_id, accepted)
    if size > MAX_JOB_ID_BYTES or not job_id.strip() or _CONTROL.search(job_id):
        raise _refused("job_id", job_id, accepted)
    return job_id


def check_job_name(name: str) -> str:
    """The name, if it can be a job's; the empty one can."""
    accepted = f"must be text of at most {MAX_JOB_NAME_BYTES} bytes"
    if _size("name", name, accepted) > MAX_JOB_NAME_BYTES:
        raise _refused("name", name, accepted)
    return name


def check_schedule_key(key: str) -> str:
    """The key, if it can be a schedule's; derived ones hold spaces, stars and colons."""
    accepted = f"must be 1 to {MAX_SCHEDULE_KEY_BYTES} bytes of text without control characters"
    size = _size("key", key, accepted)
    if not 0 < size <= MAX_SCHEDULE_KEY_BYTES or _CONTROL.search(key):
        raise _refused("key", key, accepted)
    return key


def check_task_id(option: str, given: str) -> str:
    """The id, if it can be a task's; it becomes a hash tag, and braces would end that early."""
    accepted = (
        f"must be 1 to {MAX_TASK_ID_BYTES} bytes of text, not blank, "
        "without control characters and braces"
    )
    size = _size(option, given, accepted)
    if size > MAX_TASK_ID_BYTES or not given.strip() or _NOT_BESIDE_A_TAG.search(given):
        raise _refused(option, given, accepted)
    return given


def check_prefix(prefix: str) -> str:
    """The prefix, if keys with a hash tag behind it can begin so."""
    accepted = (
        f"must be 1 to {MAX_PREFIX_BYTES} bytes of text without control characters and braces"
    )
    size = _size("prefix", prefix, accepted)
    if not 0 < size <= MAX_PREFIX_BYTES or _NOT_BESIDE_A_TAG.search(prefix):
        raise _refused("prefix", prefix, accepted)
    return prefix


def _size(option: str, given: str, accepted: str) -> int:
    """Bytes of the text in UTF-8; lone surrogates have none."""
    try:
        return len(given.encode())
    except (AttributeError, UnicodeEncodeError):
        raise _refused(option, given, accepted) from None


def _refused(option: str, given: object, accepted: str) -> OptionError:
    if isinstance(given, str) and len(given) > _SHOWN_CHARACTERS:
        given = given[:_SHOWN_CHARACTERS] + "…"
    return OptionError(option, given, accepted)


DEFAULT_TASK_PREFIX: Final = "tampu:task:"
# Where cloudiful-scheduler keeps its states, and where it kept them before.
_PEER_PREFIXES: Final = (b"scheduler:valkey:job-state:", b"scheduler:job-state:")


@dataclass(frozen=True, slots=True)
class TaskKeys:
    """Every key of the tasks under one prefix, as bytes."""

    prefix: str = DEFAULT_TASK_PREFIX
    _begin: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_begin", check_prefix(self.prefix).encode() + b"{")

    @property
    def peer_prefixes(self) -> tuple[bytes, ...]:
        """Where a peer's states may be, the newest first; a prefix of one's own has no peers."""
        return _PEER_PREFIXES if self.prefix == DEFAULT_TASK_PREFIX else ()

    def state(self, task_id: str) -> bytes:
        """Holds the JSON of a task's state."""
        return b"%b%b}:state" % (self._begin, task_id.encode())

    def peer_states(self, task_id: str) -> list[bytes]:
        """Keys in which a peer may have left the task's state, in slots of their own."""
        return [prefix + task_id.encode() for prefix in self.peer_prefixes]


DEFAULT_GUARD_PREFIX: Final = "tampu:guard:"
_WHOLE_RESOURCE: Final = b"*"


class GuardKeys(Struct, frozen=True):
    """The keys of one resource."""

    held: bytes  # who holds what of it
    done: bytes  # which occurrences have been run


class SharedTaskKeys(Struct, frozen=True):
    """The keys of one task."""

    course: bytes  # its state, its version and its run in flight
    plain: bytes  # its state as a plain store keeps it


def guard_keys(prefix: str, resource: str) -> GuardKeys:
    """The keys of a resource under a prefix."""
    begin = b"%b{%b}:" % (
        check_prefix(prefix).encode(),
        check_task_id("resource", resource).encode(),
    )
    return GuardKeys(held=begin + b"held", done=begin + b"done")


def shared_task_keys(keys: TaskKeys, task_id: str) -> SharedTaskKeys:
    """The keys of a task, beside those that a plain store has for it."""
    plain = keys.state(check_task_id("task_id", task_id))
    return SharedTaskKeys(course=plain.removesuffix(b"state") + b"course", plain=plain)


def held_field(at_ms: int | None) -> bytes:
    """The field of `held` of one occurrence, or of the whole resource."""
    return _WHOLE_RESOURCE if at_ms is None else b"%d" % at_ms


def done_member(task_id: str, at_ms: int) -> bytes:
    """An occurrence as a member of `done`."""
    return b"%b@%d" % (task_id.encode(), at_ms)
