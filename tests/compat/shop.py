"""What tests of the drop-in share."""

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
SOON = 20.0

Admin: TypeAlias = Any
"""A redis client, whose replies are typed as anything that could be."""

Given: TypeAlias = Any
"""What a caller may give, mistakes included."""


class Seen:
    """A handler that notes its jobs; it gives, or raises, what it is told to."""

    def __init__(
        self, gives: object = None, *, fails: int = 0, error: type[Exception] = ValueError
    ) -> None:
        self.jobs: list[Any] = []
        self._gives, self._fails, self._error = gives, fails, error

    def __len__(self) -> int:
        return len(self.jobs)

    async def __call__(self, job: Any) -> object:  # noqa: ANN401 - a Job, or one of bytes
        self.jobs.append(job)
        if len(self.jobs) <= self._fails:
            raise self._error("boom")
        return self._gives

    async def until(self, count: int) -> None:
        await wait_until(
            lambda: len(self.jobs) >= count, within=SOON, sentence=f"{count} jobs have run"
        )


class Shop:
    """A queue, its workers and its server."""

    def __init__(self, running: RunningServer, queue: Queue) -> None:
        self.url, self.queue = running.url, queue
        self.admin: Any = running.admin()
        self._running: list[asyncio.Future[None]] = []
        self._endings: list[Callable[[], Awaitable[None] | None]] = []

    def hire(self, handler: Any, **options: Any) -> Worker:  # noqa: ANN401 - plain ones too
        """A worker at work."""
        worker = Worker(QUEUE, handler, redis_url=self.url, **options)
        self._running.append(asyncio.ensure_future(worker.run()))
        self._endings.append(worker.close)
        return worker

    def consume(self, handler: Any, **options: Any) -> Consumer:  # noqa: ANN401 - as above
        """A low-level consumer at work."""
        consumer = Consumer(self.url, QUEUE, **options)
        self._running.append(asyncio.ensure_future(consumer.run(handler)))
        self._endings.append(consumer.shutdown)
        return consumer

    def follow(self, **options: Any) -> "Told":  # noqa: ANN401 - those of QueueEvents
        """Somebody who listens to events."""
        events = QueueEvents(QUEUE, redis_url=self.url, **options)
        told = Told(events)
        self._running.append(told.listening)
        self._endings.append(events.close)
        return told

    async def settled(self) -> None:
        await wait_until(
            lambda: self.admin.xlen(KEYS.stream) == self.admin.zcard(KEYS.delayed) == 0,
            within=SOON,
            sentence="every job is settled",
        )

    async def letters(self, count: int = 1) -> list[dict[str, Any]]:
        """So many dead letters, as soon as they are there."""
        await wait_until(
            lambda: self.admin.xlen(KEYS.dead) >= count, within=SOON, sentence="jobs are buried"
        )
        found = await self.queue.peek_dlq(count + 1)
        assert len(found) == count
        return found

    async def close(self) -> None:
        for ending in self._endings:
            waiting = ending()
            if waiting is not None:
                await waiting
        for running in self._running:
            await asyncio.wait_for(running, SOON)
        self.admin.close()


class Told:
    """What a listener has heard."""

    def __init__(self, events: QueueEvents) -> None:
        self.events: list[Any] = []
        self._source = events
        self.listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        async for event in self._source:
            self.events.append(event)

    def of(self, name: str) -> list[Any]:
        return [event for event in self.events if event.name == name]

    async def until(self, name: str, count: int = 1) -> list[Any]:
        await wait_until(
            lambda: len(self.of(name)) >= count, within=SOON, sentence=f"{name} is told"
        )
        return self.of(name)


def envelopes(admin: Admin) -> list[list[Any]]:
    """The jobs in the stream as the peer's own codec reads them."""
    return [msgpack.unpackb(fields[b"d"]) for _, fields in admin.xrange(KEYS.stream)]


def names(admin: Admin) -> list[bytes | None]:
    return [fields.get(b"n") for _, fields in admin.xrange(KEYS.stream)]


async def echo(job: Job) -> object:
    """A handler that gives back what it was given."""
    return job.data


async def nothing(job: object) -> None:
    """A handler that does nothing, for jobs of bytes too."""
