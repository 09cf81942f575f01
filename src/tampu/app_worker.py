"""The worker of an app: runs the tasks of its queues in one process."""

import asyncio
import logging
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Unpack

from msgspec import Struct

from tampu.app import App
from tampu.consumer.engine import Engine, QueueConfig, new_consumer
from tampu.consumer.handler import Handler, HandlerPlan, handlers_by_name
from tampu.consumer.options import WorkerHealth, WorkerOptions, WorkerSettings
from tampu.consumer.runners.local import make_plans
from tampu.errors import OptionError
from tampu.schedules.model import Schedule
from tampu.tasks.execution import Creation, Runtime, create_dependencies
from tampu.tasks.handlers import app_steps, handler_of, kept_results, parse_worker_options
from tampu.tasks.middleware import ContextStack
from tampu.tasks.router import DeclaredSchedule
from tampu.util.clock import Duration, to_s
from tampu.util.lifecycle import Lifetime, Runnable
from tampu.util.options import at_least, check_type
from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)


class _RunningEngine(Struct, frozen=True):
    """The running engine, and what is closed after it."""

    engine: Engine
    runtime: Runtime
    stack: AsyncExitStack

    async def close(self, grace_s: float) -> None:
        self.runtime.stopping = True
        async with self.stack:
            await self.engine.close(grace_s)

    async def hurry(self, grace_s: float) -> None:
        await self.engine.hurry(grace_s)


class AppWorker(Runnable):
    """Runs the tasks of an app, with slots of their own for each queue.

    `queues` sets the concurrency of each queue; None means all queues of the app's tasks, with
    `concurrency` each. Any task can run from any of them. Options are those of `Worker`; the
    defaults are the app's `worker` options. `await worker.run()` works until `stop()`, and
    `async with worker:` inside the block. It can be started only once.
    """

    def __init__(
        self,
        app: App,
        queues: Mapping[str, int] | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        check_type("app", app, App, accepted="an App")
        app.import_tasks()
        options = {**app.worker, **options}
        settings = parse_worker_options("AppWorker", options)
        self._app = app
        self._grace = settings.grace
        self._queues = _check_queues(app, queues, settings.concurrency)
        threads = ThreadPoolExecutor(sum(self._queues.values()), thread_name_prefix="tampu-handler")
        self._runtime = Runtime(threads=threads)
        self._steps = app_steps(app.tasks.values())
        self._schedules = _schedules_of(app, self._queues)
        handlers = {
            name: handler_of(task, self._runtime, settings.isolation)
            for name, task in app.tasks.items()
        }
        consumer = new_consumer(settings.name)
        by_queue = {
            queue: replace(settings, concurrency=slots) for queue, slots in self._queues.items()
        }
        self._configs = [
            QueueConfig(QueueKeys(queue), consumer, own, plans=_task_plans(app, handlers, own))
            for queue, own in by_queue.items()
        ]
        self._life = Lifetime(
            "app-worker", self._open, _RunningEngine.close, hurry=_RunningEngine.hurry
        )

    def __repr__(self) -> str:
        return f"<AppWorker of {', '.join(self._queues)}>"

    @property
    def queues(self) -> Mapping[str, int]:
        """The concurrency of each queue."""
        return self._queues

    @property
    def health(self) -> WorkerHealth | None:
        """The health of the worker now, all queues together; None before it has started."""
        running = self._life.resource
        return None if running is None else running.engine.health

    def _drain(self) -> None:
        self._life.begin_stop(to_s("grace", self._grace))

    async def stop(self, grace: Duration | None = None) -> None:
        """Stop all queues as `Worker.stop` does, then leave the lifespan."""
        await self._life.stop(to_s("grace", self._grace if grace is None else grace))

    async def _open(self) -> _RunningEngine:
        """In order: lifespan, dependencies with scope="app", schedules, queues."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._app)
            await stack.enter_async_context(_in_own_task(self._enter_lifespan))
            threads = self._runtime.threads
            if threads is not None:
                stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            await self._store_schedules()
            engine = await Engine.open(
                self._configs, self._app.url, self._app.credentials, on_drain=self._drain
            )
            return _RunningEngine(engine, self._runtime, stack.pop_all())

    async def _store_schedules(self) -> None:
        for each in self._schedules:
            await self._app.queue(each.task.queue).store_schedule(each)
        for name in self._queues:
            await self._forget_schedules(name)

    async def _forget_schedules(self, queue_name: str) -> None:
        """Report, or remove, the schedules of a queue that the app no longer declares."""
        queue = self._app.queue(queue_name)
        keys = {each.key for each in self._schedules if each.task.queue == queue_name}
        packages = {_package(task.import_name) for task in self._app.tasks.values()}
        for each in await queue.declared_schedules():
            # Another app may declare schedules on the same queue.
            if _package(each.declared_by or "") not in packages or each.key in keys:
                continue
            if self._app.prune_schedules:
                await queue.remove_schedule(each)
            _log_forgotten(each, queue_name, removed=self._app.prune_schedules)

    async def _enter_lifespan(self, stack: AsyncExitStack) -> None:
        await self._app.enter_lifespan(stack)
        await stack.enter_async_context(self._app_dependencies())

    @asynccontextmanager
    async def _app_dependencies(self) -> AsyncIterator[None]:
        stack, error = ContextStack(), None
        try:
            await create_dependencies(self._steps, self._runtime.values, Creation(None, stack))
            yield
        except BaseException as raised:  # noqa: BLE001 - raised again after the stack is left
            error = raised
        self._runtime.values.clear()
        error = await stack.leave(error)
        if error is not None:
            raise error


@asynccontextmanager
async def _in_own_task(
    enter: Callable[[AsyncExitStack], Awaitable[None]],
) -> AsyncIterator[None]:
    """Enter and leave in the same task, as a task group requires.

    If it ends early, its error is raised when this is left.
    """
    entered, leaving = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            await enter(stack)
            entered.set()
            await leaving.wait()

    def note_end(task: asyncio.Task[None]) -> None:
        if entered.is_set() and not leaving.is_set():
            error = None if task.cancelled() else task.exception()
            logger.error("the lifespan ended while the worker was running", exc_info=error)
        entered.set()

    task = asyncio.create_task(run(), name="tampu-lifespan")
    task.add_done_callback(note_end)
    try:
        await entered.wait()
        if not task.done():
            yield
    except asyncio.CancelledError:
        if not entered.is_set():
            task.cancel()
        raise
    finally:
        leaving.set()
        await asyncio.wait([task])
    task.result()


def _package(import_name: str) -> str:
    return import_name.partition(".")[0]


def _log_forgotten(schedule: Schedule, queue: str, *, removed: bool) -> None:
    key, task = schedule.key, schedule.declared_by
    facts = {"schedule": key, "queue": queue, "task": task}
    if removed:
        text = "removed schedule %r of queue %r: %s no longer declares it"
        logger.warning(text, key, queue, task, extra=facts)
        return
    logger.warning(
        "schedule %r of queue %r still fires, but %s no longer declares it; to remove it, run "
        "`tampu schedule rm %s %s`, or set App(prune_schedules=True)",
        key,
        queue,
        task,
        shlex.quote(queue),
        shlex.quote(key),
        extra=facts,
    )


def _task_plans(
    app: App, handlers: Mapping[str, Handler], settings: WorkerSettings
) -> dict[str | None, HandlerPlan]:
    return {
        name: replace(plan, results=kept_results(app.tasks[name or ""], plan.results))
        for name, plan in make_plans(handlers_by_name(handlers), settings).items()
    }


def _check_queues(app: App, queues: Mapping[str, int] | None, concurrency: int) -> dict[str, int]:
    if not app.tasks:
        problem = (
            "it has no tasks; declare them with @app.task, and if they are in other modules, name "
            'those: App(imports=["shop.tasks"])'
        )
        raise OptionError("app", app, problem)
    if queues is None:
        return dict.fromkeys(app.queues, concurrency)
    given: object = queues
    if not isinstance(given, Mapping) or not given:
        raise OptionError("queues", given, 'expected a dict such as {"emails": 50}')
    for queue, slots in queues.items():
        at_least(f"queues[{queue!r}]", slots, 1)
    return dict(queues)


def _schedules_of(app: App, queues: Iterable[str]) -> list[DeclaredSchedule]:
    """The schedules of these queues; `OptionError` if one is invalid or its key is not unique."""
    found: dict[tuple[str, str], DeclaredSchedule] = {}
    for each in app.schedules:
        each.data()  # refuses arguments that do not fit
        own = app.tasks.get(each.task.name)
        if own is None or own.function is not each.task.function:
            raise OptionError("schedule", each.task, "its task does not belong to the app")
        queue_and_key = (each.task.queue, each.key)
        if queue_and_key in found:
            problem = f"declared twice for queue {each.task.queue}; give each schedule its own key"
            raise OptionError("key", each.key, problem)
        found[queue_and_key] = each
    return [each for (queue, _), each in found.items() if queue in queues]
