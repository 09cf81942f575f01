"""What connects chasquimq's classes with event loops: calls, queues and runs."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tampu.compat.chasquimq._url import CredentialProvider, credentials_from
from tampu.compat.chasquimq.errors import translate_errors
from tampu.job import Job, JobOptions, NewJob
from tampu.producer.options import MAX_PAYLOAD_CAP
from tampu.queue import Queue
from tampu.util.clock import MAX_MS
from tampu.util.lifecycle import Runnable
from tampu.wire.keys import QueueKeys

P = ParamSpec("P")
T = TypeVar("T")

_MAX_DELAY = timedelta(milliseconds=MAX_MS)

_tasks: set[asyncio.Task[Any]] = set()  # a loop holds only weak references to its tasks


def as_future(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, asyncio.Future[T]]:
    """Make an async method start when it is called, and return a future.

    The compiled methods of chasquimq work this way: callers need not await them.
    """

    @wraps(method)
    def start(*args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        task = loop.create_task(method(*args, **kwargs), name=f"tampu-compat-{method.__name__}")
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        return task

    return start


@dataclass(slots=True)
class QueuePerLoop:
    """A tampu `Queue` for each event loop that uses it; the next use after `close` reopens it."""

    name: str
    url: str
    max_len: int | None = None
    provider: CredentialProvider | None = None
    keys: QueueKeys = field(init=False)
    _queues: dict[asyncio.AbstractEventLoop, Queue] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = QueueKeys(self.name)

    def current(self) -> Queue:
        """The queue of the running loop, created on first use."""
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            self._forget_closed_loops()
            queue = self._queues[loop] = Queue(
                self.name,
                self.url,
                credentials=credentials_from(self.provider, self.url),
                max_len=self.max_len,
                max_delay=_MAX_DELAY,  # chasquimq's own limit has been checked before
                max_payload=MAX_PAYLOAD_CAP,
            )
        return queue

    async def add(self, name: str, data: object, options: JobOptions) -> Job[Any]:
        """Add a job."""
        with translate_errors():
            return await self.current().add(name, data, **options)

    async def add_many(self, jobs: Iterable[NewJob]) -> list[Job[Any]]:
        """Add many jobs in one call."""
        with translate_errors():
            return await self.current().add_many(jobs)

    async def close(self) -> None:
        """Disconnect on every loop that is still running."""
        current = asyncio.get_running_loop()
        queues, self._queues = self._queues, {}
        for loop, queue in queues.items():
            if loop is current:
                await queue.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(queue.close(), loop)
                await asyncio.wrap_future(closing)

    def _forget_closed_loops(self) -> None:
        for loop in [each for each in list(self._queues) if each.is_closed()]:
            del self._queues[loop]


class StoppableRuns:
    """Runs workers or services until `stop`. After that, no further run starts."""

    def __init__(self) -> None:
        self._stopped = False
        self._running: dict[Runnable, asyncio.AbstractEventLoop] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    async def run(self, create: Callable[[], Runnable]) -> None:
        """Create a worker or service and run it to its end; returns at once after `stop`."""
        if self._stopped:
            return
        with translate_errors():
            created = create()
            self._running[created] = asyncio.get_running_loop()
            try:
                await created.run()
            finally:
                del self._running[created]
                if self._stopping:
                    await asyncio.wait(self._stopping)

    def stop(self) -> None:
        """Stop every run without waiting for it. May be called from any thread, and again."""
        self._stopped = True
        for running, loop in list(self._running.items()):
            with suppress(RuntimeError):  # the loop is closed, so nothing runs on it any more
                loop.call_soon_threadsafe(self._start_stopping, running)

    def _start_stopping(self, running: Runnable) -> None:
        if running not in self._running:
            return  # it has ended by itself
        stopping = asyncio.create_task(running.stop(), name="tampu-compat-stop")
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
