"""A queue for threads without an event loop: a thin door to the one core."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from datetime import datetime
from typing import Any, Generic, Self, TypeVar, Unpack

from tampu.admin.dead import DeadLetter, DeadLetters
from tampu.admin.queues import Counts
from tampu.errors import Closed, WrongContext
from tampu.job import DEFAULT_RESULT_WAIT_S, Job, JobOptions, NewJob
from tampu.producer.options import QueueOptions
from tampu.queue import Queue
from tampu.schedules.admin import Key
from tampu.schedules.model import Schedule, ScheduleOptions
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.timing import Rule
from tampu.util.clock import Duration
from tampu.wire.dead import BuryReason

T = TypeVar("T")
R = TypeVar("R")


class Portal:
    """An event loop in a thread of its own, and the way for other threads to call into it.

    The thread starts with the first call and ends with `close`, or with the program.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop and wait for it, from any thread but the loop's own.

        What ends the wait, such as KeyboardInterrupt, cancels the coroutine.
        """
        running = self._submitted(work)
        try:
            return running.result()
        except CancelledError:
            raise Closed(self._name) from None  # it was on its way while the portal was closed
        finally:
            running.cancel()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one last coroutine, then end the loop and join its thread. May be called twice."""
        if self._pid != os.getpid():
            return  # what a fork has inherited of it is not there to be closed
        with self._lock:
            if threading.current_thread() is self._thread:
                raise _own_thread()
            self._closed = True
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(last(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _submitted(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        if self._pid != os.getpid():
            raise WrongContext(
                "use a SyncQueue after a fork", "create a new one in the child process"
            )
        with self._lock:  # so that nothing is submitted behind the last coroutine
            if self._closed:
                raise Closed(self._name)
            loop = self._loop or self._start()
            if threading.current_thread() is self._thread:
                raise _own_thread()
            return asyncio.run_coroutine_threadsafe(work(), loop)

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name="tampu-portal", daemon=True)
        self._thread.start()
        return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_cancel_rest())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()


async def _cancel_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _own_thread() -> WrongContext:
    return WrongContext("wait here", "the call would block the event loop that it waits for")


class SyncJob(Generic[R]):
    """A job that was added; the same as `Job` at a producer, for code without a loop."""

    __slots__ = ("_job", "_portal")

    def __init__(self, job: Job[R], portal: Portal) -> None:
        self._job, self._portal = job, portal

    def __repr__(self) -> str:
        return f"<SyncJob {self.id} {self.name!r}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def name(self) -> str:
        """The job's name."""
        return self._job.name

    @property
    def data(self) -> Any:  # noqa: ANN401 - what the producer gave
        """The job's data, as it was given."""
        return self._job.data

    @property
    def created_at(self) -> datetime:
        """When it was added, by the clock of this machine."""
        return self._job.created_at

    @property
    def duplicate(self) -> bool:
        """Whether the id was taken, and nothing was added."""
        return self._job.duplicate

    def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """What the handler returned; raises `JobFailed` or `ResultTimeout`."""
        return self._portal.call(lambda: self._job.result(timeout))


class SyncDeadLetters:
    """The dead letters of a queue; see `DeadLetters`."""

    def __init__(self, letters: DeadLetters, portal: Portal) -> None:
        self._letters, self._portal = letters, portal

    def peek(self, count: int = 20, *, after: str | None = None) -> list[DeadLetter]:
        """The oldest dead letters; see `DeadLetters.peek`."""
        return self._portal.call(lambda: self._letters.peek(count, after=after))

    def get(self, dead_id: str) -> DeadLetter | None:
        """One dead letter by its own id; see `DeadLetters.get`."""
        return self._portal.call(lambda: self._letters.get(dead_id))

    def replay(
        self,
        count: int = 100,
        *,
        ids: Sequence[str] | None = None,
        name: str | None = None,
        reason: BuryReason | str | None = None,
    ) -> int:
        """Put dead letters back on the queue; see `DeadLetters.replay`."""
        again = self._letters.replay
        return self._portal.call(lambda: again(count, ids=ids, name=name, reason=reason))

    def purge(
        self,
        *,
        ids: Sequence[str] | None = None,
        older_than: Duration | None = None,
        name: str | None = None,
        reason: BuryReason | str | None = None,
        everything: bool = False,
    ) -> int:
        """Delete dead letters; see `DeadLetters.purge`."""
        return self._portal.call(
            lambda: self._letters.purge(
                ids=ids, older_than=older_than, name=name, reason=reason, everything=everything
            )
        )


class SyncQueue:
    """Adds jobs from any number of threads; the same as `Queue`, for code without a loop."""

    def __init__(
        self,
        name: str,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        self._queue = Queue(name, url, credentials=credentials, **options)
        self._portal = Portal(f"queue {name}")
        self.dead = SyncDeadLetters(self._queue.dead, self._portal)

    def __repr__(self) -> str:
        return f"<SyncQueue {self.name!r}>"

    def __enter__(self) -> Self:
        try:
            self._portal.call(self._queue.__aenter__)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._queue.name

    def close(self) -> None:
        """Disconnect and end the thread. May be called twice; it stays closed."""
        self._portal.close(self._queue.close)

    def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> SyncJob[Any]:
        """Add one job; see `Queue.add`."""
        return self._handle(self._portal.call(lambda: self._queue.add(name, data, **options)))

    def add_many(self, jobs: Iterable[NewJob]) -> list[SyncJob[Any]]:
        """Add many jobs; see `Queue.add_many`."""
        given = list(jobs)  # the caller's generator runs in the caller's thread
        return [*map(self._handle, self._portal.call(lambda: self._queue.add_many(given)))]

    def add_each(
        self, name: str, datas: Iterable[object], **options: Unpack[JobOptions]
    ) -> list[SyncJob[Any]]:
        """Add one job for each of the data; see `Queue.add_each`."""
        given = list(datas)
        added = self._portal.call(lambda: self._queue.add_each(name, given, **options))
        return [*map(self._handle, added)]

    def cancel(self, job_id: str) -> bool:
        """Take a delayed job back; see `Queue.cancel`."""
        return self._portal.call(lambda: self._queue.cancel(job_id))

    def cancel_many(self, job_ids: Iterable[str]) -> list[bool]:
        """Take delayed jobs back; see `Queue.cancel_many`."""
        given = job_ids if isinstance(job_ids, str) else list(job_ids)
        return self._portal.call(lambda: self._queue.cancel_many(given))

    def reschedule(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> bool:
        """Have a delayed job be due at another time; see `Queue.reschedule`."""
        return self._portal.call(lambda: self._queue.reschedule(job_id, delay=delay, at=at))

    def run_now(self, job_id: str) -> bool:
        """Have a delayed job run now; see `Queue.run_now`."""
        return self._portal.call(lambda: self._queue.run_now(job_id))

    def schedule(
        self, name: str, rule: Rule, data: object = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Have a worker add a job at each instant of a rule; see `Queue.schedule`."""
        return self._portal.call(lambda: self._queue.schedule(name, rule, data, **options))

    def schedules(self, limit: int = 100) -> list[Schedule]:
        """The schedules of the queue; see `Queue.schedules`."""
        return self._portal.call(lambda: self._queue.schedules(limit))

    def unschedule(self, key: Key) -> bool:
        """Remove a schedule; see `Queue.unschedule`."""
        return self._portal.call(lambda: self._queue.unschedule(key))

    def pause(self, key: Key) -> bool:
        """Have a schedule not fire; see `Queue.pause`."""
        return self._portal.call(lambda: self._queue.pause(key))

    def resume(self, key: Key) -> bool:
        """Have a paused schedule fire again; see `Queue.resume`."""
        return self._portal.call(lambda: self._queue.resume(key))

    def trigger(self, key: Key) -> SyncJob[Any]:
        """Add one job of a schedule now; see `Queue.trigger`."""
        return self._handle(self._portal.call(lambda: self._queue.trigger(key)))

    def backfill(
        self, key: Key, start: datetime, end: datetime, *, max: int = 1000
    ) -> list[SyncJob[Any]]:
        """Add a job for each instant of a time; see `Queue.backfill`."""
        added = self._portal.call(lambda: self._queue.backfill(key, start, end, max=max))
        return [*map(self._handle, added)]

    def preview(self, what: Key | Rule, n: int = 5) -> list[datetime]:
        """The next instants of a schedule or a rule; see `Queue.preview`."""
        return self._portal.call(lambda: self._queue.preview(what, n))

    def counts(self) -> Counts:
        """How many jobs there are; see `Queue.counts`."""
        return self._portal.call(self._queue.counts)

    def result(self, job_id: str, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> object:
        """What a job's handler returned; see `Queue.result`."""
        return self._portal.call(lambda: self._queue.result(job_id, timeout))

    def results(self, job_ids: Sequence[str]) -> dict[str, object]:
        """What is there by now; see `Queue.results`."""
        return self._portal.call(lambda: self._queue.results(job_ids))

    def _handle(self, job: Job[Any]) -> SyncJob[Any]:
        return SyncJob(job, self._portal)
