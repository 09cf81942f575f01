"""The worker of an app: runs the tasks of its queues in one process."""

import logging
import shlex
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final, Unpack

from msgspec import Struct

from tampu.app import App
from tampu.consumer.engine import Engine
from tampu.consumer.handler import Handler, HandlerPlan, handlers_by_name
from tampu.consumer.options import WorkerHealth, WorkerOptions, WorkerSettings
from tampu.consumer.queue_config import QueueConfig, new_consumer
from tampu.consumer.runners.local import make_plans
from tampu.errors import OptionError
from tampu.metrics.alerts import bind_alerts
from tampu.schedules.model import Schedule
from tampu.services.notify import Notifier, NotifyJob
from tampu.tasks.attempt_thread import Runtime
from tampu.tasks.handlers import app_steps, handler_of, kept_results, parse_worker_options
from tampu.util.clock import Duration, to_s
from tampu.util.lifecycle import Lifetime, Runnable
from tampu.util.options import at_least, check_type
from tampu.wire.alerts import SAMPLE_NOTICE, notice_arguments
from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)
_RELAY: Final = "True, False or what outbox.relay(...) gives"


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
    defaults are the app's `worker` options. It moves the rows of the app's outboxes that have a
    database, unless `outbox` is False; or it runs the relay that `outbox` is.
    `await worker.run()` works until `stop()`, and `async with worker:` inside the block. It can be
    started only once.
    """

    def __init__(
        self,
        app: App,
        queues: Mapping[str, int] | None = None,
        *,
        outbox: Runnable | bool = True,
        **options: Unpack[WorkerOptions],
    ) -> None:
        check_type("app", app, App, accepted="an App")
        check_type("outbox", outbox, Runnable | bool, accepted=_RELAY)
        app.import_tasks()
        options = {**app.worker, **options}
        settings = parse_worker_options("AppWorker", options)
        self._app = app
        self._outbox = outbox
        self._grace = settings.grace
        self._queues = _check_queues(app, queues, settings.concurrency)
        settings = bind_app_alerts(app, settings)
        threads = ThreadPoolExecutor(sum(self._queues.values()), thread_name_prefix="tampu-handler")
        self._runtime = Runtime(threads=threads)
        self._steps = app_steps(app.tasks.values(), app.overrides)
        app.check_limits()
        app.check_schedules(self._queues)  # refused now, not when it starts
        handlers = {
            name: handler_of(task, self._runtime, settings.isolation, overrides=app.overrides)
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
            await stack.enter_async_context(self._app.serve(self._steps, self._runtime))
            threads = self._runtime.threads
            if threads is not None:
                stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            await store_declared(self._app, self._queues)
            for relay in self._relays():
                await stack.enter_async_context(relay)
            engine = await Engine.open(
                self._configs, self._app.url, self._app.credentials, on_drain=self._drain
            )
            return _RunningEngine(engine, self._runtime, stack.pop_all())

    def _relays(self) -> list[Runnable]:
        """What moves the rows of outboxes while the worker runs."""
        if isinstance(self._outbox, bool):
            return [each.relay() for each in self._app.outboxes] if self._outbox else []
        return [self._outbox]


def _task_plans(
    app: App, handlers: Mapping[str, Handler], settings: WorkerSettings
) -> dict[str | None, HandlerPlan]:
    plans = {
        name: replace(plan, results=kept_results(app.tasks[name or ""], plan.results))
        for name, plan in make_plans(handlers_by_name(handlers), settings).items()
    }
    if app.any_task is not None:
        plans[None] = replace(plans[app.any_task.name], repeats_crash=True)
    return plans


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


# --- what an app declares beside its tasks --------------------------------------------------------


async def store_declared(app: App, queues: Collection[str]) -> None:
    """Store the schedules and limits of an app for these queues; log what has changed."""
    schedules = app.check_schedules(queues)
    await app.store_schedules(schedules)
    for queue in queues:
        keys = {each.key for each in schedules if each.task.queue == queue}
        await _forget_schedules(app, queue, declared=keys)
        await _declare_limits(app, queue)


def bind_app_alerts(app: App, settings: WorkerSettings) -> WorkerSettings:
    """The settings with alerts on queues, and notifiers that name the queues of their tasks."""
    if not settings.alerts:
        return settings
    notify = tuple(_find_task(app, each) for each in settings.notifiers)
    alerts = bind_alerts(settings.alerts, home_queue(app))
    return replace(settings, alerts=alerts, notify=notify)


def home_queue(app: App) -> str:
    """The queue of alerts that name none: the same in every worker, whatever queues it runs."""
    return app.default_queue if app.default_queue in app.queues else app.queues[0]


async def _declare_limits(app: App, queue: str) -> None:
    """Store the limits of a queue's tasks as the app declares them; say which have changed."""
    found = [each.limits(app.limits) for each in app.tasks.values() if each.queue == queue]
    wanted = {name: each for limits in found for name, each in limits.items()}
    if not wanted:
        return
    for name, before in (await app.queue(queue).limits.declare(wanted)).items():
        old, new = before.to_sentence(), wanted[name].to_sentence()
        facts = {"limit": name, "queue": queue, "before": old, "now": new}
        text = "limit %s of queue %s was %s and is %s from now on"
        logger.warning(text, name, queue, old, new, extra=facts)


async def _forget_schedules(app: App, name: str, *, declared: Collection[str]) -> None:
    """Report, or remove, the schedules of a queue that the app no longer declares."""
    queue = app.queue(name)
    packages = {_package(task.import_name) for task in app.tasks.values()}
    for each in await queue.declared_schedules():
        # Another app may declare schedules on the same queue.
        if _package(each.declared_by or "") not in packages or each.key in declared:
            continue
        if app.prune_schedules:
            await queue.remove_schedule(each)
        _log_forgotten(each, name, removed=app.prune_schedules)


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


def _find_task(app: App, notifier: Notifier) -> Notifier:
    if not isinstance(notifier, NotifyJob) or notifier.queue is not None:
        return notifier
    task = app.tasks.get(notifier.name)
    if task is None:
        problem = f"the app has no such task; it has {', '.join(sorted(app.tasks))}"
        raise OptionError("notify", notifier.name, problem)
    task.bind((), notice_arguments(SAMPLE_NOTICE))  # refuses a task that cannot take it
    return NotifyJob(task.name, task.queue)
