"""Keys of queues and scheduled tasks, and the names that may become part of one.

All keys of a queue share a hash tag, so a cluster keeps them in one slot.
"""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
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
# Braces would move the hash tag; glob characters would make a SCAN match other queues.
_NOT_IN_QUEUE_NAME: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\s{}*?\[\]]")
_NOT_BESIDE_A_TAG: Final = re.compile(r"[\x00-\x1f\x7f-\x9f{}]")
_PARTITION_NAME: Final = re.compile(r".+\.[0-9]{1,3}", re.DOTALL)
_SHOWN_CHARACTERS: Final = 80
_GLOB: Final = re.compile(rb"[*?\[\]\\^-]")


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """Every key of one queue, as bytes. Built once, because the hot path only packs them."""

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
    wakeup: bytes = field(init=False, repr=False)
    paused: bytes = field(init=False, repr=False)
    schedule_wakeup: bytes = field(init=False, repr=False)
    watchers: bytes = field(init=False, repr=False)
    watch_wakeup: bytes = field(init=False, repr=False)
    control: bytes = field(init=False, repr=False)
    cancelled: bytes = field(init=False, repr=False)
    pause: bytes = field(init=False, repr=False)
    counted: bytes = field(init=False, repr=False)
    totals: bytes = field(init=False, repr=False)
    failures: bytes = field(init=False, repr=False)
    recent_failures: bytes = field(init=False, repr=False)
    alerts: bytes = field(init=False, repr=False)
    alerts_lock: bytes = field(init=False, repr=False)
    alert_notices: bytes = field(init=False, repr=False)
    gate: bytes = field(init=False, repr=False)
    gate_wake: bytes = field(init=False, repr=False)
    gate_wakeup: bytes = field(init=False, repr=False)
    gate_lock: bytes = field(init=False, repr=False)

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
            "wakeup": tag + b":tampu:bell",
            "paused": tag + b":tampu:paused",
            "schedule_wakeup": tag + b":tampu:schedule-bell",
            "watchers": tag + b":tampu:watchers",
            "watch_wakeup": tag + b":tampu:watch-bell",
            "control": tag + b":tampu:control",
            "cancelled": tag + b":tampu:cancelled",
            "pause": tag + b":tampu:pause",
            "counted": tag + b":tampu:m:counted",
            "totals": tag + b":tampu:m:total",
            "failures": tag + b":tampu:failures",
            "recent_failures": tag + b":tampu:failures:recent",
            "alerts": tag + b":tampu:alerts",
            "alerts_lock": tag + b":tampu:alerts:lock",
            "alert_notices": tag + b":tampu:alerts:notices",
            "gate": tag + b":tampu:gate",
            "gate_wake": tag + b":tampu:gate:wake",
            "gate_wakeup": tag + b":tampu:gate:bell",
            "gate_lock": tag + b":tampu:gate:lock",
        }
        for attribute, key in fixed.items():
            object.__setattr__(self, attribute, key)

    @property
    def lasting(self) -> tuple[bytes, ...]:
        """The keys that make a queue exist: it exists while one of them does."""
        return (self.stream, self.delayed, self.dead, self.repeat, self.paused, self.events)

    @property
    def pattern(self) -> bytes:
        """A SCAN pattern that matches every key of this queue and nothing else."""
        return escape_glob(self.tag) + b":*"

    def marker(self, job_id: str) -> bytes:
        """Marks a job id as taken. Holds the id of the job's entry, or `MARKER_VALUE`."""
        return self.raw_marker(job_id.encode())

    def raw_marker(self, raw_id: bytes) -> bytes:
        """The same for the bytes of an id."""
        return b"%b:dlid:%b" % (self.tag, raw_id)

    def index(self, job_id: str) -> bytes:
        """Holds the member of a delayed job, so that it can be cancelled by its id."""
        return b"%b:didx:%b" % (self.tag, job_id.encode())

    def indexes(self, raw_ids: Iterable[bytes]) -> list[bytes]:
        """The index keys of many ids, given as the bytes in their envelopes."""
        prefix = self.tag + b":didx:"
        return [prefix + raw_id for raw_id in raw_ids]

    def spec(self, schedule_key: str) -> bytes:
        """The hash of a schedule: its spec and its counters."""
        return self.raw_spec(schedule_key.encode())

    def raw_spec(self, schedule_key: bytes) -> bytes:
        """The same as `spec`, for a key that is bytes already."""
        return b"%b:repeat:spec:%b" % (self.tag, schedule_key)

    def result(self, job_id: str) -> bytes:
        """Holds the result of a job until it expires."""
        return b"%b:result:%b" % (self.tag, job_id.encode())

    def results(self, job_ids: Iterable[str]) -> list[bytes]:
        """The result keys of many jobs, in half the time."""
        prefix = self.tag + b":result:"
        return [prefix + job_id.encode() for job_id in job_ids]

    def failure(self, job_id: str) -> bytes:
        """Ours: why a job was buried, for callers who wait for its result."""
        return b"%b:tampu:failure:%b" % (self.tag, job_id.encode())

    def unique(self, key: str) -> bytes:
        """Ours: holds the id of the job that has a unique key."""
        return b"%b:tampu:unique:%b" % (self.tag, key.encode())

    def producer(self, producer_id: str) -> bytes:
        """Ours: the replies to a producer's last calls, in case it sends one again."""
        return b"%b:tampu:producer:%b" % (self.tag, producer_id.encode())

    def worker(self, consumer_id: bytes) -> bytes:
        """Ours: the heartbeat of a worker. It exists while the worker is alive."""
        return b"%b:tampu:worker:%b" % (self.tag, consumer_id)

    def process(self, consumer_id: bytes) -> bytes:
        """Ours: how the process of a worker is doing; written every ten seconds."""
        return b"%b:tampu:process:%b" % (self.tag, consumer_id)

    def history(self, step_s: int, number: int) -> bytes:
        """Ours: what happened in one step of so many seconds; they are numbered from 1970 on."""
        return b"%b:tampu:m:%d:%d" % (self.tag, step_s, number)


class UniqueUntil(Enum):
    """How long a unique key stays taken."""

    STARTED = "started"
    DONE = "done"
    TIME = "time"  # until its time is over, whatever becomes of the job


class HeldKey(Struct, frozen=True, array_like=True):
    """The unique key that a job holds."""

    key: str
    until: UniqueUntil


EVERY_QUEUE: Final = b"{chasqui:*}:*"
"""A SCAN pattern that matches every key of every queue."""
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
    b"tampu:watch",
    b"tampu:control",
    b"tampu:cancelled",
    b"tampu:unique:",
    b"tampu:m:6",
    b"tampu:m:3600:",
    b"tampu:m:86400:",
    b"tampu:m:total",
    b"tampu:failures",
    b"tampu:process:",
    b"tampu:alerts",
    *(b"tampu:gate:" + end for end in (b"bell", b"lock", b"window:", b"debounce:")),
)
MARKS: Final = b"{chasqui:}:tampu:marks"
"""A stream of the moments that charts show as lines, such as deployments; one for all queues."""


def escape_glob(text: bytes) -> bytes:
    """A glob pattern that matches exactly this text."""
    return _GLOB.sub(rb"\\\g<0>", text)


def queue_of_key(key: bytes) -> str | None:
    """The queue that must exist because this key does; None for any other key."""
    found = _QUEUE_OF.fullmatch(key)
    if found is None or found[2] not in _LASTING:
        return None
    try:
        return check_queue_name(found[1].decode())
    except (UnicodeDecodeError, OptionError):
        return None


def must_expire(key: bytes) -> bool:
    """Whether a key of a queue must always have an expiry."""
    found = _QUEUE_OF.fullmatch(key)
    return found is not None and found[2].startswith(_EXPIRING)


MARKER_VALUE: Final = b"1"
"""The value of a marker whose job has no entry yet. Peers only check whether the key exists."""


def check_queue_name(name: str) -> str:
    """Return a valid queue name, or raise `OptionError`."""
    problem = (
        f"must be 1 to {MAX_QUEUE_NAME_BYTES} bytes of text without whitespace, "
        "control characters and any of { } * ? [ ]"
    )
    size = _size("queue", name, problem)
    if not 0 < size <= MAX_QUEUE_NAME_BYTES or _NOT_IN_QUEUE_NAME.search(name):
        raise _invalid("queue", name, problem)
    return name


def warn_if_reserved(name: str) -> None:
    """Warn the caller's caller about the name of a queue that a partition may have one day."""
    if _PARTITION_NAME.fullmatch(name):
        text = (
            f"queue {name!r}: names that end in a dot and a number below 1000 are reserved "
            "for partitions of a queue; choose another name"
        )
        warnings.warn(text, FutureWarning, stacklevel=3)


def check_name(option: str, given: str) -> str:
    """Return a valid name of a worker or group. The rules are those for queue names."""
    try:
        return check_queue_name(given)
    except OptionError as refusal:
        raise OptionError(option, refusal.given, refusal.problem) from None


def check_job_id(job_id: str) -> str:
    """Return a valid job id, or raise `OptionError`."""
    problem = f"must be 1 to {MAX_JOB_ID_BYTES} bytes of text, not blank, no control characters"
    size = _size("job_id", job_id, problem)
    if size > MAX_JOB_ID_BYTES or not job_id.strip() or _CONTROL.search(job_id):
        raise _invalid("job_id", job_id, problem)
    return job_id


def check_job_name(name: str) -> str:
    """Return a valid job name, or raise `OptionError`. It may be empty."""
    problem = f"must be text of at most {MAX_JOB_NAME_BYTES} bytes"
    if _size("name", name, problem) > MAX_JOB_NAME_BYTES:
        raise _invalid("name", name, problem)
    return name


def check_schedule_key(key: str) -> str:
    """Return a valid schedule key. Derived keys contain spaces, stars and colons."""
    problem = f"must be 1 to {MAX_SCHEDULE_KEY_BYTES} bytes of text without control characters"
    size = _size("key", key, problem)
    if not 0 < size <= MAX_SCHEDULE_KEY_BYTES or _CONTROL.search(key):
        raise _invalid("key", key, problem)
    return key


def check_task_id(option: str, given: str) -> str:
    """Return a valid task id. It becomes a hash tag, so it cannot contain braces."""
    problem = (
        f"must be 1 to {MAX_TASK_ID_BYTES} bytes of text, not blank, "
        "without control characters and braces"
    )
    size = _size(option, given, problem)
    if size > MAX_TASK_ID_BYTES or not given.strip() or _NOT_BESIDE_A_TAG.search(given):
        raise _invalid(option, given, problem)
    return given


def check_prefix(prefix: str) -> str:
    """Return a valid key prefix, or raise `OptionError`. A hash tag follows it."""
    problem = f"must be 1 to {MAX_PREFIX_BYTES} bytes of text without control characters and braces"
    size = _size("prefix", prefix, problem)
    if not 0 < size <= MAX_PREFIX_BYTES or _NOT_BESIDE_A_TAG.search(prefix):
        raise _invalid("prefix", prefix, problem)
    return prefix


def _size(option: str, given: str, problem: str) -> int:
    """The size of the text in UTF-8. Lone surrogates are refused."""
    try:
        return len(given.encode())
    except (AttributeError, UnicodeEncodeError):
        raise _invalid(option, given, problem) from None


def _invalid(option: str, given: object, problem: str) -> OptionError:
    if isinstance(given, str) and len(given) > _SHOWN_CHARACTERS:
        given = given[:_SHOWN_CHARACTERS] + "…"
    return OptionError(option, given, problem)


DEFAULT_TASK_PREFIX: Final = "tampu:task:"
# Where cloudiful-scheduler keeps its states, and where older versions kept them.
_PEER_PREFIXES: Final = (b"scheduler:valkey:job-state:", b"scheduler:job-state:")


@dataclass(frozen=True, slots=True)
class TaskKeys:
    """The keys of the scheduled tasks under one prefix, as bytes."""

    prefix: str = DEFAULT_TASK_PREFIX
    _begin: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_begin", check_prefix(self.prefix).encode() + b"{")

    @property
    def peer_prefixes(self) -> tuple[bytes, ...]:
        """Prefixes of a peer's states, newest first. A custom prefix has no peers."""
        return _PEER_PREFIXES if self.prefix == DEFAULT_TASK_PREFIX else ()

    def state(self, task_id: str) -> bytes:
        """Holds the JSON of a task's state."""
        return b"%b%b}:state" % (self._begin, task_id.encode())

    def peer_states(self, task_id: str) -> list[bytes]:
        """Keys where a peer may have stored the task's state. Each is in another slot."""
        return [prefix + task_id.encode() for prefix in self.peer_prefixes]


DEFAULT_GUARD_PREFIX: Final = "tampu:guard:"


class GuardKeys(Struct, frozen=True):
    """The keys of one guarded resource."""

    held: bytes  # the current leases
    done: bytes  # occurrences that have run


class SharedTaskKeys(Struct, frozen=True):
    """The keys of one task that several schedulers share."""

    task: bytes  # its state, its version and the run in progress
    plain: bytes  # its state as a plain `RedisStore` keeps it


def guard_keys(prefix: str, resource: str) -> GuardKeys:
    """The keys of a resource under a prefix."""
    begin = b"%b{%b}:" % (
        check_prefix(prefix).encode(),
        check_task_id("resource", resource).encode(),
    )
    return GuardKeys(held=begin + b"held", done=begin + b"done")


def shared_task_keys(keys: TaskKeys, task_id: str) -> SharedTaskKeys:
    """The keys of a shared task."""
    plain = keys.state(check_task_id("task_id", task_id))
    return SharedTaskKeys(task=plain.removesuffix(b"state") + b"course", plain=plain)


def held_field(at_ms: int | None) -> bytes:
    """The field in `held` for one occurrence, or for the whole resource."""
    return b"*" if at_ms is None else b"%d" % at_ms


def done_member(task_id: str, at_ms: int) -> bytes:
    """The member of `done` for one occurrence."""
    return b"%b@%d" % (task_id.encode(), at_ms)
