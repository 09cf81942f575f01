"""Shared parts of the tests of the drop-in."""

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import msgpack

from tampu.compat.chasquimq import Consumer, Job, Queue, QueueEvents, Worker
from tampu.wire.keys import QueueKeys
from tests.servers import RunningServer
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

QUEUE = "shop"
KEYS = QueueKeys(QUEUE)
SOON = 60.0

Admin: TypeAlias = Any
"""A redis client; its own annotations are too wide to be of use."""

Given: TypeAlias = Any
"""What a caller passes, valid or not."""


class RecordingHandler:
    """A handler that records its jobs. The first `failures` of them raise `error`."""

    def __init__(
        self, returns: object = None, *, failures: int = 0, error: type[Exception] = ValueError
    ) -> None:
        self.jobs: list[Any] = []
        self._returns, self._failures, self._error = returns, failures, error

    def __len__(self) -> int:
        return len(self.jobs)

    async def __call__(self, job: Any) -> object:  # noqa: ANN401 - a Job or a raw job
        self.jobs.append(job)
        if len(self.jobs) <= self._failures:
            raise self._error("boom")
        return self._returns

    async def wait_for(self, count: int) -> None:
        """Wait until the handler has been called `count` times."""
        await wait_until(
            lambda: len(self.jobs) >= count, within=SOON, sentence=f"{count} jobs have run"
        )


class Harness:
    """A queue, its server, and the workers and listeners that a test starts."""

    def __init__(self, running: RunningServer, queue: Queue) -> None:
        self.url, self.queue = running.url, queue
        self.admin: Any = running.admin()
        self._running: list[asyncio.Future[None]] = []
        self._stops: list[Callable[[], Awaitable[None] | None]] = []

    def start_worker(self, handler: Any, **options: Any) -> Worker:  # noqa: ANN401 - plain ones too
        """Start a worker."""
        worker = Worker(QUEUE, handler, redis_url=self.url, **options)
        self._running.append(asyncio.ensure_future(worker.run()))
        self._stops.append(worker.close)
        return worker

    def start_consumer(self, handler: Any, **options: Any) -> Consumer:  # noqa: ANN401 - as above
        """Start a low-level consumer."""
        consumer = Consumer(self.url, QUEUE, **options)
        self._running.append(asyncio.ensure_future(consumer.run(handler)))
        self._stops.append(consumer.shutdown)
        return consumer

    def start_listener(self, **options: Any) -> "Listener":  # noqa: ANN401 - those of QueueEvents
        """Start to record events."""
        events = QueueEvents(QUEUE, redis_url=self.url, **options)
        listener = Listener(events)
        self._running.append(listener.listening)
        self._stops.append(events.close)
        return listener

    async def wait_until_settled(self) -> None:
        """Wait until no job is waiting, running or delayed."""
        await wait_until(
            lambda: self.admin.xlen(KEYS.stream) == self.admin.zcard(KEYS.delayed) == 0,
            within=SOON,
            sentence="every job is settled",
        )

    async def dead_letters(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait for `count` dead letters and return them."""
        await wait_until(
            lambda: self.admin.xlen(KEYS.dead) >= count, within=SOON, sentence="jobs are buried"
        )
        found = await self.queue.peek_dlq(count + 1)
        assert len(found) == count
        return found

    async def close(self) -> None:
        """Stop what was started, and wait for it."""
        for stop in self._stops:
            stopping = stop()
            if stopping is not None:
                await stopping
        for running in self._running:
            await asyncio.wait_for(running, SOON)
        self.admin.close()


class Listener:
    """Records the events of a queue."""

    def __init__(self, events: QueueEvents) -> None:
        self.events: list[Any] = []
        self._source = events
        self.listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        async for event in self._source:
            self.events.append(event)

    def named(self, name: str) -> list[Any]:
        """The events of one name."""
        return [event for event in self.events if event.name == name]

    async def wait_for(self, name: str, count: int = 1) -> list[Any]:
        """Wait for `count` events of one name and return them."""
        await wait_until(
            lambda: len(self.named(name)) >= count, within=SOON, sentence=f"{name} arrives"
        )
        return self.named(name)


def read_envelopes(admin: Admin) -> list[list[Any]]:
    """The jobs in the stream, decoded by the codec that chasquimq uses."""
    return [msgpack.unpackb(fields[b"d"]) for _, fields in admin.xrange(KEYS.stream)]


def read_names(admin: Admin) -> list[bytes | None]:
    """The names of the jobs in the stream."""
    return [fields.get(b"n") for _, fields in admin.xrange(KEYS.stream)]


async def echo(job: Job) -> object:
    """A handler that returns the job's data."""
    return job.data


async def do_nothing(job: object) -> None:
    """A handler for any kind of job."""
