"""Keys of queues and of scheduled tasks.

All keys of a queue share a hash tag, so a cluster keeps them in one slot.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from msgspec import Struct

from tampu.errors import OptionError
from tampu.wire.names import check_prefix, check_queue_name, check_task_id

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
    flows: bytes = field(init=False, repr=False)
    flows_lock: bytes = field(init=False, repr=False)
    outbox: bytes = field(init=False, repr=False)
    outbox_wakeup: bytes = field(init=False, repr=False)
    outboxes: bytes = field(init=False, repr=False)

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
            "flows": tag + b":tampu:flows",
            "flows_lock": tag + b":tampu:flows:lock",
            "outbox": tag + b":tampu:outbox",
            "outbox_wakeup": tag + b":tampu:outbox:bell",
            "outboxes": tag + b":tampu:db-outbox:figures",
        }
        for attribute, key in fixed.items():
            object.__setattr__(self, attribute, key)

    @property
    def lasting(self) -> tuple[bytes, ...]:
        """The keys that make a queue exist: it exists while one of them does."""
        own = (self.stream, self.delayed, self.dead, self.repeat, self.paused, self.events)
        return (*own, self.flows)

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

    def output(self, job_id: str) -> bytes:
        """Ours: the stream of a job, with what its handler yields."""
        return b"%b:tampu:out:%b" % (self.tag, job_id.encode())

    def read_chunks(self, job_id: str) -> bytes:
        """Ours: how far readers of a job's stream are, for handlers that wait for them."""
        return b"%b:tampu:out-read:%b" % (self.tag, job_id.encode())

    def readers(self, job_id: str) -> bytes:
        """Ours: who reads the stream of a job."""
        return b"%b:tampu:out-readers:%b" % (self.tag, job_id.encode())

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

    def flow(self, flow_id: str) -> bytes:
        """Ours: the state of a flow whose home is this queue."""
        return b"%b:tampu:flow:%b" % (self.tag, flow_id.encode())

    def map_results(self, flow_id: str, node: int) -> bytes:
        """Ours: the results of a node of a flow that has many jobs."""
        return b"%b:%d:out" % (self.flow(flow_id), node)

    def relay_lock(self, name: str, database: str) -> bytes:
        """Ours: who moves the rows of an outbox table in a database to their queues."""
        return b"%b:tampu:db-outbox:lock:%b:%b" % (self.tag, name.encode(), database.encode())

    def relay_wakeup(self, name: str) -> bytes:
        """Ours: a wakeup after a transaction with rows in an outbox table."""
        return b"%b:tampu:db-outbox:bell:%b" % (self.tag, name.encode())

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
_LASTING: Final = (
    *(b"stream", b"delayed", b"dlq", b"repeat", b"tampu:paused", b"events"),
    b"tampu:flows",  # its jobs may all be on other queues
)
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
    b"tampu:out",
    b"tampu:alerts",
    *(b"tampu:gate:" + end for end in (b"bell", b"lock", b"window:", b"debounce:", b"latest:")),
    b"tampu:flows:lock",
    b"tampu:outbox:bell",
    b"tampu:db-outbox:",
    b"tampu:delivered:",
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
