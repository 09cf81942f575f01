"""Jobs that go to the server in one call, and who waits for them.

Hot path. A job without options is a place in four lists; the only object made for it is the handle
that its producer gets.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tampu.errors import TampuError
from tampu.job import Host, Job
from tampu.server.scripts.adding import FullJobs, PlainJobs
from tampu.util.ids import new_id, new_ids
from tampu.wire.envelope import encode_fresh
from tampu.wire.event import EventFields, EventKind, encode_event
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle

    from tampu.producer.request import Request

MAX_JOBS: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024
_TAKEN: Final = ord("0")


class Batch(ABC):
    """Some jobs: either each has a future of its own, or one future waits for all of them."""

    __slots__ = ("futures", "ids", "now_ms", "opened_at", "size", "timer", "whole")

    def __init__(self) -> None:
        self.opened_at = 0.0  # when it began to wait
        self.size = 0  # bytes of payloads, as far as they were added one by one
        self.ids: list[str] = []
        self.now_ms = 0
        self.futures: list[Future[Job[Any]]] = []
        self.whole: Future[list[Job[Any]]] | None = None
        self.timer: TimerHandle | None = None

    @property
    def joined(self) -> bool:
        """Whether its jobs came from several adds, none of which knows of the others."""
        return len(self.futures) > 1

    @abstractmethod
    def __len__(self) -> int:
        """How many jobs it has."""

    @abstractmethod
    def stamp(self, now_ms: int) -> None:
        """Give the jobs their ids and the time at which they are added."""

    @abstractmethod
    def texts(self, keys: QueueKeys) -> PlainJobs | FullJobs:
        """The jobs as the add script takes them."""

    @abstractmethod
    def handles(self, host: Host, reply: bytes) -> list[Job[Any]]:
        """What producers get, by what the script answered."""

    @abstractmethod
    def events(self, handles: list[Job[Any]]) -> list[EventFields]:
        """What listeners are told of the jobs that were added."""

    @abstractmethod
    def only(self, places: list[int]) -> "Batch":
        """The batch of the jobs in those places."""

    def wanted(self) -> "Batch | None":
        """The batch without the jobs that nobody waits for any more; None if none is left."""
        if self.whole is not None:
            return None if self.whole.done() else self
        futures = self.futures
        wanted = [place for place, future in enumerate(futures) if not future.done()]
        if len(wanted) == len(futures):
            return self
        return self.only(wanted) if wanted else None

    def apart(self) -> Iterator["Batch"]:
        """Each job as a batch of its own."""
        for place in range(len(self)):
            yield self.only([place])

    def deliver(self, handles: list[Job[Any]]) -> None:
        """Hand the jobs to those who wait for them."""
        if self.whole is not None:
            if not self.whole.done():
                self.whole.set_result(handles)
            return
        for future, handle in zip(self.futures, handles, strict=True):
            if not future.done():
                future.set_result(handle)

    def fail(self, error: TampuError) -> None:
        """Hand over an error; each who waits gets one of his own."""
        waiting = [*self.futures] if self.whole is None else [self.whole]
        for future in waiting:
            if not future.done():
                future.set_exception(copy.copy(error))

    def _take(self, other: "Batch", places: list[int]) -> None:
        self.opened_at = other.opened_at
        self.futures = [other.futures[place] for place in places]


class PlainBatch(Batch):
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

    def stamp(self, now_ms: int) -> None:
        """All ids are new."""
        count = len(self.payloads)
        self.ids = [new_id(now_ms)] if count == 1 else new_ids(count, now_ms)
        self.now_ms = now_ms

    def texts(self, keys: QueueKeys) -> PlainJobs:
        """Envelope and name in turn."""
        del keys
        ids, now_ms = self.ids, self.now_ms
        flat: list[bytes] = [b""] * (2 * len(ids))
        flat[::2] = [
            encode_fresh(job_id, payload, now_ms)
            for job_id, payload in zip(ids, self.payloads, strict=True)
        ]
        flat[1::2] = self.raw_names
        return PlainJobs(flat)

    def handles(self, host: Host, reply: bytes) -> list[Job[Any]]:
        """All were added: a new id is never taken."""
        del reply
        now_ms = self.now_ms
        return [
            Job(job_id, name, data, 0, now_ms, host)
            for job_id, name, data in zip(self.ids, self.names, self.datas, strict=True)
        ]

    def events(self, handles: list[Job[Any]]) -> list[EventFields]:
        """All were added."""
        return [_added(job) for job in handles]

    def only(self, places: list[int]) -> "PlainBatch":
        """As said; their futures come along."""
        chosen = PlainBatch()
        chosen._take(self, places)
        chosen.names = [self.names[place] for place in places]
        chosen.raw_names = [self.raw_names[place] for place in places]
        chosen.datas = [self.datas[place] for place in places]
        chosen.payloads = [self.payloads[place] for place in places]
        return chosen


class FullBatch(Batch):
    """Jobs with options, and such without among them."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def __len__(self) -> int:
        return len(self.requests)

    def stamp(self, now_ms: int) -> None:
        """Ids that users gave stay; the others are new."""
        made = new_ids(len(self.requests), now_ms)
        self.now_ms = now_ms
        self.ids = [
            new if request.job_id is None else request.job_id
            for new, request in zip(made, self.requests, strict=True)
        ]

    def texts(self, keys: QueueKeys) -> FullJobs:
        """What each request asks for, and the keys that it needs."""
        flat: list[bytes] = []
        own: list[bytes] = []
        for job_id, request in zip(self.ids, self.requests, strict=True):
            flat += request.texts(job_id, self.now_ms)
            if request.marker_s or request.index_s:
                own += request.keys(keys, job_id)
        return FullJobs(flat, own)

    def handles(self, host: Host, reply: bytes) -> list[Job[Any]]:
        """A job whose id was taken is a duplicate."""
        letters = reply or b"1" * len(self.ids)
        return [
            Job(
                job_id,
                request.name,
                request.data,
                0,
                self.now_ms,
                host,
                request.extras,
                letter == _TAKEN,
            )
            for job_id, request, letter in zip(self.ids, self.requests, letters, strict=True)
        ]

    def events(self, handles: list[Job[Any]]) -> list[EventFields]:
        """Added or delayed, unless the id was taken."""
        return [
            _delayed(job, request.delay_ms) if request.due else _added(job)
            for job, request in zip(handles, self.requests, strict=True)
            if not job.duplicate
        ]

    def only(self, places: list[int]) -> "FullBatch":
        """As said; their futures come along."""
        chosen = FullBatch()
        chosen._take(self, places)
        chosen.requests = [self.requests[place] for place in places]
        return chosen


def _added(job: Job[Any]) -> EventFields:
    return encode_event(EventKind.ADDED, job_id=job.id, ts_ms=job.created_at_ms, name=job.name)


def _delayed(job: Job[Any], delay_ms: int) -> EventFields:
    return encode_event(
        EventKind.DELAYED,
        job_id=job.id,
        ts_ms=job.created_at_ms,
        name=job.name,
        delay_ms=delay_ms,
    )
