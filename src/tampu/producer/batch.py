"""Jobs that go to the server in one call, and the futures of the producers that wait for them.

Hot path. A job without options is a position in four lists. The only object made for it is the
`Job` that its producer gets.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tampu.errors import TampuError
from tampu.job import Host, Job
from tampu.limits.placing import encode_definitions
from tampu.server.scripts.adding import FullJobs, LinedJobs, PlainJobs
from tampu.server.streams import Copies
from tampu.util.ids import new_id, new_ids
from tampu.wire.envelope import encode_fresh
from tampu.wire.event import EventFields, EventKind, encode_event
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle

    from tampu.producer.request import Request
    from tampu.wire.lines import LimitDefinition

MAX_JOBS: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024
_DUPLICATE: Final = ord("0")
_DROPPED: Final = ord("2")


class CallRules(Struct, frozen=True):
    """How calls are made: the queue's maximum length (0: none), a time limit, and durability."""

    max_len: int
    limit_s: float
    copies: Copies | None = None


class AddBatch(ABC):
    """Jobs for one call. Either each job has its own future, or one future waits for all."""

    __slots__ = (
        "created_at",
        "encoded",
        "futures",
        "ids",
        "now_ms",
        "number",
        "size",
        "timer",
        "whole",
    )

    encoded: PlainJobs | FullJobs | LinedJobs

    def __init__(self) -> None:
        self.created_at = 0.0  # by the clock of the event loop
        self.size = 0  # bytes of the payloads that were added one by one
        self.number = 0  # of the call, once it is sent
        self.now_ms = 0
        self.ids: list[str] = []
        self.futures: list[Future[Job[Any]]] = []
        self.whole: Future[list[Job[Any]]] | None = None
        self.timer: TimerHandle | None = None

    @property
    def is_joined(self) -> bool:
        """Whether its jobs come from several independent adds."""
        return len(self.futures) > 1

    @abstractmethod
    def __len__(self) -> int:
        """The number of jobs."""

    @abstractmethod
    def encode(self, keys: QueueKeys, now_ms: int) -> None:
        """Give the jobs their ids and their time, and encode them for the add script."""

    @abstractmethod
    def jobs(self, host: Host, flags: bytes) -> list[Job[Any]]:
        """The jobs that producers get, by the script's reply."""

    @abstractmethod
    def events(self, jobs: list[Job[Any]]) -> list[EventFields]:
        """The events for the jobs that were added."""

    @abstractmethod
    def subset(self, positions: list[int]) -> "AddBatch":
        """A batch of the jobs in these positions, with their futures."""

    def without_cancelled(self) -> "AddBatch | None":
        """The batch without the jobs that nobody waits for any more; None if none is left."""
        if self.whole is not None:
            return None if self.whole.done() else self
        futures = self.futures
        wanted = [position for position, future in enumerate(futures) if not future.done()]
        if len(wanted) == len(futures):
            return self
        return self.subset(wanted) if wanted else None

    def one_by_one(self) -> Iterator["AddBatch"]:
        """A batch for each job."""
        for position in range(len(self)):
            yield self.subset([position])

    def resolve(self, jobs: list[Job[Any]]) -> None:
        """Give the jobs to the producers that wait for them."""
        if self.whole is not None:
            if not self.whole.done():
                self.whole.set_result(jobs)
            return
        for future, job in zip(self.futures, jobs, strict=True):
            if not future.done():
                future.set_result(job)

    def fail(self, error: TampuError) -> None:
        """Raise an error in every producer that waits; each gets its own copy."""
        waiting = [*self.futures] if self.whole is None else [self.whole]
        for future in waiting:
            if not future.done():
                future.set_exception(copy.copy(error))

    def _copy_futures(self, other: "AddBatch", positions: list[int]) -> None:
        self.created_at = other.created_at
        self.futures = [other.futures[position] for position in positions]


class PlainBatch(AddBatch):
    """Jobs without options."""

    __slots__ = ("datas", "names", "payloads", "raw_names")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.raw_names: list[bytes] = []
        self.datas: list[object] = []
        self.payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self.payloads)

    def encode(self, keys: QueueKeys, now_ms: int) -> None:
        """All ids are new. Envelope and name alternate."""
        del keys
        count = len(self.payloads)
        self.ids = ids = [new_id(now_ms)] if count == 1 else new_ids(count, now_ms)
        self.now_ms = now_ms
        flat: list[bytes] = [b""] * (2 * count)
        flat[::2] = [
            encode_fresh(job_id, payload, now_ms)
            for job_id, payload in zip(ids, self.payloads, strict=True)
        ]
        flat[1::2] = self.raw_names
        self.encoded = PlainJobs(flat)

    def jobs(self, host: Host, flags: bytes) -> list[Job[Any]]:
        """All were added: a new id is never taken."""
        del flags
        now_ms = self.now_ms
        return [
            Job(job_id, name, data, 0, now_ms, host)
            for job_id, name, data in zip(self.ids, self.names, self.datas, strict=True)
        ]

    def events(self, jobs: list[Job[Any]]) -> list[EventFields]:
        """All were added."""
        return [_added_event(job) for job in jobs]

    def subset(self, positions: list[int]) -> "PlainBatch":
        """The jobs in these positions."""
        subset = PlainBatch()
        subset._copy_futures(self, positions)
        subset.names = [self.names[position] for position in positions]
        subset.raw_names = [self.raw_names[position] for position in positions]
        subset.datas = [self.datas[position] for position in positions]
        subset.payloads = [self.payloads[position] for position in positions]
        return subset


class FullBatch(AddBatch):
    """Jobs of which at least one has options."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def __len__(self) -> int:
        return len(self.requests)

    def encode(self, keys: QueueKeys, now_ms: int) -> None:
        """Jobs without a `job_id` get a new id."""
        self.now_ms = now_ms
        self.ids = [
            new if request.job_id is None else request.job_id
            for new, request in zip(new_ids(len(self), now_ms), self.requests, strict=True)
        ]
        flat: list[bytes] = []
        job_keys: list[bytes] = []
        is_lined = any(request.place is not None for request in self.requests)
        for job_id, request in zip(self.ids, self.requests, strict=True):
            flat += (request.encode_lined if is_lined else request.encode)(job_id, now_ms)
            if request.marker_s or request.index_s or request.unique is not None:
                job_keys += request.keys(keys, job_id)
        self.encoded = self._encode_lined(flat, job_keys) if is_lined else FullJobs(flat, job_keys)

    def _encode_lined(self, flat: list[bytes], job_keys: list[bytes]) -> LinedJobs:
        """The jobs with what the gate must know of the limits that they need."""
        needs = needs_of(self.requests)
        return LinedJobs(flat=flat, keys=job_keys, limits=needs.limits, flags=needs.flags)

    def jobs(self, host: Host, flags: bytes) -> list[Job[Any]]:
        """A job whose id was taken is a duplicate."""
        flags = flags or b"1" * len(self.ids)
        return [
            Job(
                job_id,
                request.name,
                request.data,
                0,
                self.now_ms,
                host,
                request.extras,
                flag == _DUPLICATE,
                flag == _DROPPED,
            )
            for job_id, request, flag in zip(self.ids, self.requests, flags, strict=True)
        ]

    def events(self, jobs: list[Job[Any]]) -> list[EventFields]:
        """Added or delayed; duplicates have none."""
        return [
            _delayed_event(job, request.delay_ms) if request.due else _added_event(job)
            for job, request in zip(jobs, self.requests, strict=True)
            if not job.duplicate and not job.dropped
        ]

    def subset(self, positions: list[int]) -> "FullBatch":
        """The jobs in these positions."""
        subset = FullBatch()
        subset._copy_futures(self, positions)
        subset.requests = [self.requests[position] for position in positions]
        return subset


class LineNeeds(Struct, frozen=True):
    """What the gate must know of jobs: the limits that they need, and flags."""

    limits: list[bytes]
    flags: bytes


def needs_of(requests: Iterable["Request"]) -> LineNeeds:
    """What the gate must know of these jobs."""
    limits: dict[str, LimitDefinition | None] = {}
    flags = set[bytes]()
    for request in requests:
        place = request.place
        if place is None:
            continue
        for name, definition in place.limits:
            limits[name] = definition or limits.get(name)
        flags |= place.flags(expires=request.extras.deadline_ms is not None)
    return LineNeeds(encode_definitions(limits), b"".join(sorted(flags)))


def _added_event(job: Job[Any]) -> EventFields:
    return encode_event(EventKind.ADDED, job_id=job.id, ts_ms=job.created_at_ms, name=job.name)


def _delayed_event(job: Job[Any], delay_ms: int) -> EventFields:
    return encode_event(
        EventKind.DELAYED,
        job_id=job.id,
        ts_ms=job.created_at_ms,
        name=job.name,
        delay_ms=delay_ms,
    )
