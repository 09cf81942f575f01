"""The worker of an app: one process that serves its queues."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial, reduce
from typing import Unpack

from msgspec import Struct

from tampu.app import App
from tampu.consumer.handler import Handler
from tampu.consumer.options import WorkerHealth, WorkerOptions
from tampu.errors import OptionError
from tampu.tasks.execution import Runtime, make
from tampu.tasks.handlers import app_wide, handler_of, settings_for
from tampu.tasks.middleware import ContextStack
from tampu.tasks.router import DeclaredSchedule
from tampu.util.clock import Duration, to_s
from tampu.util.lifecycle import Lifetime, Runnable
from tampu.util.options import at_least, check_type
from tampu.worker import Worker

logger = logging.getLogger(__name__)


class _AtWork(Struct, frozen=True):
    """The workers that run, and what is closed behind them."""

    workers: tuple[Worker, ...]
    runtime: Runtime
    stack: AsyncExitStack

    async def close(self, grace_s: float) -> None:
        self.runtime.stopping = True
        async with self.stack:
            await self.stop_workers(grace_s)

    async def stop_workers(self, grace_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(worker.stop(grace_s), name="tampu-worker-stop")


class AppWorker(Runnable):
    """Runs the tasks of an app: one worker for each queue, each with slots of its own.

    `queues` says how many runs at a time each queue has; None: all queues that the app's tasks
    name, with `concurrency` each. Every task runs from every one of them. Options are those of
    `Worker`; what is not given is as the app's `worker` has it. `await worker.run()` works until
    `stop()`, `async with worker:` works inside the block. It is used once.
    """

    def __init__(
        self,
        app: App,
        queues: Mapping[str, int] | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        check_type("app", app, App, accepted="an App")
        options = {**app.worker, **options}
        settings = settings_for("AppWorker", options)
        self._app = app
        self._grace = settings.grace
        self._queues = _check_queues(app, queues, settings.concurrency)
        threads = ThreadPoolExecutor(sum(self._queues.values()), thread_name_prefix="tampu-handler")
        self._runtime = Runtime(threads=threads)
        self._steps = app_wide(app.tasks.values())
        self._schedules = _stored_by(app, self._queues)
        handlers = {
            name: handler_of(task, self._runtime, settings.isolation)
            for name, task in app.tasks.items()
        }
        self._workers = tuple(
            _worker(app, queue, handlers=handlers, options={**options, "concurrency": slots})
            for queue, slots in self._queues.items()
        )
        self._life = Lifetime("app-worker", self._open, _AtWork.close, hurry=_AtWork.stop_workers)

    def __repr__(self) -> str:
        return f"<AppWorker of {', '.join(self._queues)}>"

    @property
    def queues(self) -> Mapping[str, int]:
        """How many runs at a time each queue has."""
        return self._queues

    @property
    def health(self) -> WorkerHealth | None:
        """How its workers are now, as one; None before all have started."""
        if self._life.opened is None:
            return None
        return reduce(WorkerHealth.combine, (each.health for each in self._workers if each.health))

    async def stop(self, grace: Duration | None = None) -> None:
        """Stop all workers as `Worker.stop` does, then leave what was around them."""
        await self._life.stop(to_s("grace", self._grace if grace is None else grace))

    async def _open(self) -> _AtWork:
        """The lifespan first, then what is app-wide, the schedules, the workers."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._app)
            await stack.enter_async_context(_in_one_task(self._life_around))
            threads = self._runtime.threads
            if threads is not None:
                stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            await self._store_schedules()
            for worker in self._workers:
                await worker.start()
                stack.push_async_callback(partial(worker.stop, 0))
            return _AtWork(self._workers, self._runtime, stack.pop_all())

    async def _store_schedules(self) -> None:
        for each in self._schedules:
            queue = self._app.queue(each.task.queue)
            await queue.schedule(each.task.name, each.rule, each.data(), **each.keyed())

    async def _life_around(self, stack: AsyncExitStack) -> None:
        await self._app.live(stack)
        await stack.enter_async_context(self._app_wide())

    @asynccontextmanager
    async def _app_wide(self) -> AsyncIterator[None]:
        around, error = ContextStack(), None
        try:
            await make(self._steps, self._runtime.values, job=None, around=around)
            yield
        except BaseException as raised:  # noqa: BLE001 - raised again when all around is left
            error = raised
        self._runtime.values.clear()
        error = await around.leave(error)
        if error is not None:
            raise error


@asynccontextmanager
async def _in_one_task(
    enter: Callable[[AsyncExitStack], Awaitable[None]],
) -> AsyncIterator[None]:
    """Enter and leave in one task of its own: a task group, for one, insists on that.

    What ends it before its time is raised when it is left.
    """
    entered, leaving = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with AsyncExitStack() as stack:
            await enter(stack)
            entered.set()
            await leaving.wait()

    def ended(living: asyncio.Task[None]) -> None:
        if entered.is_set() and not leaving.is_set():
            logger.error("the lifespan has ended while the worker runs")  # stop() raises its error
        entered.set()

    living = asyncio.create_task(live(), name="tampu-lifespan")
    living.add_done_callback(ended)
    try:
        await entered.wait()
        if not living.done():
            yield
    except asyncio.CancelledError:
        if not entered.is_set():
            living.cancel()
        raise
    finally:
        leaving.set()
        await asyncio.wait([living])
    living.result()


def _worker(
    app: App, queue: str, *, handlers: Mapping[str, Handler], options: WorkerOptions
) -> Worker:
    return Worker(queue, handlers, app.url, credentials=app.credentials, **options)


def _check_queues(app: App, queues: Mapping[str, int] | None, concurrency: int) -> dict[str, int]:
    if not app.tasks:
        raise OptionError("app", app, "has no task to run")
    if queues is None:
        return dict.fromkeys(app.queues, concurrency)
    given: object = queues
    if not isinstance(given, Mapping) or not given:
        raise OptionError("queues", given, 'expected a dict such as {"emails": 50}')
    for queue, slots in queues.items():
        at_least(f"queues[{queue!r}]", slots, 1)
    return dict(queues)


def _stored_by(app: App, queues: Iterable[str]) -> list[DeclaredSchedule]:
    """The schedules of these queues; each key of a queue may be declared once."""
    found: dict[tuple[str, str], DeclaredSchedule] = {}
    for each in app.schedules:
        each.data()  # refuses what could not be called
        own = app.tasks.get(each.task.name)
        if own is None or own.function is not each.task.function:
            raise OptionError("schedule", each.task, "is of a task that is none of the app's")
        place = (each.task.queue, each.key)
        if place in found:
            accepted = f"is declared twice on {place[0]}: give each schedule a key of its own"
            raise OptionError("key", each.key, accepted)
        found[place] = each
    return [each for (queue, _), each in found.items() if queue in queues]
