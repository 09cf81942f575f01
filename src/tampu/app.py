"""The app: declares tasks and adds their jobs. Creating one connects to nothing."""

import asyncio
import atexit
import importlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Final, Protocol, Self, TypeAlias, Unpack

from msgspec.structs import replace

from tampu.admin.app_health import AppHealth, read_app_health
from tampu.consumer.options import WorkerOptions
from tampu.errors import OptionError, WrongContext
from tampu.flows.starting import FlowRouter
from tampu.producer.options import QueueSettings
from tampu.producer.request import JobRules
from tampu.producer.traced import make_traced
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, check_target
from tampu.server.listening import SharedParts, share
from tampu.tasks.app_options import AppOptions, AppSettings, queue_options, worker_defaults
from tampu.tasks.app_queue import AppQueue, LoopQueues, MakeQueue
from tampu.tasks.attempt_thread import Runtime
from tampu.tasks.depends import NO_OVERRIDES, Overrides, Step
from tampu.tasks.drafts import Draft
from tampu.tasks.execution import app_dependencies
from tampu.tasks.handlers import check_override
from tampu.tasks.middleware import Middleware, check_middleware
from tampu.tasks.router import DeclaredSchedule, Router, check_unique
from tampu.tasks.task import AnyTask
from tampu.util.clock import Duration, to_positive_ms
from tampu.util.lifecycle import Runnable, Shared, in_own_task
from tampu.util.options import check_type, is_async, parse_options, yields
from tampu.util.portal import Portal
from tampu.wire.names import check_name

Lifespan: TypeAlias = Callable[["App"], AbstractAsyncContextManager[object]]
_RESULTS: Final[WorkerOptions] = {"store_results": True, "result_ttl": "10m"}
_SERVER_PARTS: Final = ("url", "credentials", "_make_queue", "_by_loop", "_portal")
_LIFESPAN: Final = "a function that takes the app, decorated with @asynccontextmanager"


class AppOutbox(Protocol):
    """An outbox whose rows the workers of an app move."""

    def relay(self) -> Runnable:
        """What moves them; each worker makes its own."""


class App(FlowRouter):
    """Declares tasks and adds their jobs; an `AppWorker` runs them.

    It connects on first use. `url` and the options are those of its queues, as for `Queue`. A task
    that names no queue uses `default_queue`. `middleware` applies to every task. A worker enters
    `lifespan(app)` when it starts and leaves it when it stops. `worker` has options for all
    workers; `max_payload`, `group` and `telemetry` default to those of the queues. Workers of an
    app store results for ten minutes, unless `worker` says otherwise. They import the modules that
    `imports` names, for tasks that are declared elsewhere. With `prune_schedules` a worker that
    starts removes the schedules that the app has declared before and no longer declares. Workers
    watch for `alerts` and tell `notify` of them: a task or its name, or another notifier.
    """

    def __init__(
        self,
        url: Target = None,
        *,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        default_queue: str = "default",
        credentials: CredentialCallback | None = None,
        **options: Unpack[AppOptions],
    ) -> None:
        super().__init__(queue=check_name("default_queue", default_queue), middleware=middleware)
        check_target(url, credentials)
        settings = parse_options(AppSettings, "App", options)
        self.worker = _RESULTS | worker_defaults(options) | (settings.worker or {})
        self.imports, self.prune_schedules = settings.imports, settings.prune_schedules
        self._owner = self
        self._default_queue = default_queue
        self._lifespan = _check_lifespan(lifespan)
        self._routers: list[Router] = []
        self._options = queue_options(options)
        self._make_queue: MakeQueue = AppQueue
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopQueues] = {}
        self._lock = threading.Lock()
        self._portal: tuple[int, Portal] | None = None  # with the id of its process
        self._overrides = NO_OVERRIDES
        self.outboxes: list[AppOutbox] = []  # with a database: its workers move their rows
        self.any_task: AnyTask | None = None  # one of its tasks; runs jobs that no task is named as
        self._states: dict[object, object] = {}  # of each running worker, the latest last
        self.url, self.credentials = url, credentials

    def __repr__(self) -> str:
        return f"<App with {len(self.tasks)} tasks>"

    async def __aenter__(self) -> Self:
        await self._loop_queues().blocks.acquire()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._loop_queues().blocks.release()

    async def close(self) -> None:
        """Close the queues that this event loop has used; they connect again when needed."""
        await self._loop_queues().close()

    def close_sync(self) -> None:
        """Close what `enqueue_sync` has opened; happens automatically when the program ends."""
        with self._lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            portal[1].close(self.close)
            atexit.unregister(self.close_sync)

    # --- declaring ------------------------------------------------------------------------------

    @property
    def default_queue(self) -> str:
        """The queue of tasks that name none."""
        return self._default_queue

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """The middleware of all tasks, outermost first."""
        return self._middleware

    def add_middleware(self, *middleware: Middleware) -> None:
        """Put middleware around all tasks, outside of what is there, for workers created later."""
        self._middleware = (*check_middleware(middleware), *self._middleware)

    @property
    def schedules(self) -> Sequence[DeclaredSchedule]:
        """The declared schedules, including those of its routers."""
        routed = [each for router in self._routers for each in router.schedules]
        return [*self._schedules, *routed]

    @property
    def queues(self) -> list[str]:
        """The queues of its tasks."""
        return sorted({task.queue for task in self.tasks.values()})

    def check_schedules(self, queues: Collection[str]) -> list[DeclaredSchedule]:
        """The schedules of these queues; `OptionError` if one is invalid or a key is not unique."""
        found: dict[tuple[str, str], DeclaredSchedule] = {}
        for each in self.schedules:
            own, queue = self.tasks.get(each.task.name), each.task.queue
            if own is None or own.function is not each.task.function:
                raise OptionError("schedule", each.task, "its task does not belong to the app")
            each.place(self.limits)  # refuses arguments that do not fit
            if (queue, each.key) in found:
                problem = f"declared twice for queue {queue}; give each schedule its own key"
                raise OptionError("key", each.key, problem)
            found[queue, each.key] = each
        return [each for (queue, _), each in found.items() if queue in queues]

    async def store_schedules(self, schedules: Iterable[DeclaredSchedule]) -> None:
        """Store schedules on their queues, as a worker does when it starts."""
        for each in schedules:
            await self.queue(each.task.queue).store_schedule(each)

    def include(self, router: Router) -> None:
        """Add the tasks and schedules of a router."""
        check_type("router", router, Router, accepted="a Router")
        router.attach(self)
        self._routers.append(router)

    def import_tasks(self) -> None:
        """Import the modules that `imports` names; a worker does that when it is created."""
        for name in self.imports:
            importlib.import_module(name)

    def register(self, task: AnyTask) -> None:
        """Add a task of a router; a second one with the same name is refused."""
        check_unique(self._tasks, task)
        self._tasks[task.name] = task

    # --- producing ------------------------------------------------------------------------------

    def queue(self, name: str | None = None) -> "AppQueue":
        """The queue with this name, or the default one. One event loop always gets the same.

        It is closed by `close()` and at the end of `async with app:`.
        """
        name = self._default_queue if name is None else name
        here = self._loop_queues()
        found = here.queues.get(name)
        if found is None:
            make, limits = self._make_queue, self.limits
            found = here.queues[name] = make(here.shared, name, limits, **self._options)
        return found

    async def health(self, *, timeout: Duration = 2) -> AppHealth:
        """Whether the server answers within `timeout`, and the workers and jobs of each queue.

        For a health route. A server that is away raises nothing: `ok` is False then.
        """
        queues = [self.queue(name) for name in self.queues]
        return await read_app_health(
            self.queue(self.queues[0] if queues else None).server_version,
            [each.summary for each in queues],
            limit_s=to_positive_ms("timeout", timeout) / 1000,
        )

    def health_sync(self, *, timeout: Duration = 2) -> AppHealth:
        """As `health`, for code without an event loop."""
        return self.portal().call(lambda: self.health(timeout=timeout))

    @property
    def job_rules(self) -> JobRules:
        """The limits of each job."""
        rules = parse_options(QueueSettings, "Queue", self._options).job_rules
        return replace(rules, limits=self.limits)

    def trace_headers(self) -> dict[str, str]:
        """What jobs carry that are added later, so that they belong to the trace of now."""
        traced = make_traced(self._options.get("telemetry"), self._default_queue)
        return {} if traced is None else traced.headers()

    async def add_draft(self, draft: Draft, following: Sequence[Draft]) -> None:
        """Add a job whose request has its id; make known what those need that follow it."""
        await self.prepare_gates(following)
        await self.queue(draft.queue).add_request(draft.request)

    def portal(self) -> Portal:
        """The portal that `enqueue_sync` uses: an event loop in a thread, one per process."""
        with self._lock:
            if self._portal is None or self._portal[0] != os.getpid():
                self._portal = os.getpid(), Portal("the app")
                atexit.register(self.close_sync)
            return self._portal[1]

    @property
    def shared_parts(self) -> Shared[SharedParts]:
        """The connections that the queues of this event loop have together."""
        return self._loop_queues().shared

    def _loop_queues(self) -> LoopQueues:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            reason = "no event loop is running; use enqueue_sync in code without one"
            raise WrongContext("use a queue of the app", reason) from None
        found = self._by_loop.get(loop)
        if found is None:
            with self._lock:  # other loops run in other threads
                # Without closed loops: otherwise each `asyncio.run` would leave its queues here.
                running = {each: it for each, it in self._by_loop.items() if not each.is_closed()}
                found = running[loop] = LoopQueues(share(self.url, self.credentials))
                self._by_loop = running
        return found

    # --- lifespan -------------------------------------------------------------------------------

    @property
    def state(self) -> Any:  # noqa: ANN401 - whatever the user's lifespan yields
        """The value that `lifespan` has yielded, while a worker runs."""
        if not self._states:
            raise WrongContext(
                "read app.state", "it exists only while a worker runs and the app has a lifespan"
            )
        return next(reversed(self._states.values()))

    @asynccontextmanager
    async def serve(self, steps: Sequence[Step], runtime: Runtime) -> AsyncIterator[None]:
        """What a worker runs in: the lifespan, then the dependencies with scope="app"."""

        async def enter(stack: AsyncExitStack) -> None:
            await self._enter_lifespan(stack)
            await stack.enter_async_context(app_dependencies(steps, runtime.values))

        async with in_own_task("lifespan", enter):
            yield

    async def _enter_lifespan(self, stack: AsyncExitStack) -> None:
        if self._lifespan is not None:
            worker, manager = object(), self._lifespan(self)
            check_type("lifespan", manager, AbstractAsyncContextManager, accepted=_LIFESPAN)
            self._states[worker] = await stack.enter_async_context(manager)
            stack.callback(self._states.pop, worker)

    # --- replacing parts, for tests ---------------------------------------------------------------

    @property
    def overrides(self) -> Overrides:
        """The factories that are overridden now; another object after each change."""
        return self._overrides

    @contextmanager
    def override(
        self, factory: Callable[..., Any], replacement: Callable[..., Any]
    ) -> Iterator[None]:
        """Inside the block, `Depends(factory)` gets its value from another factory.

        It applies to workers that start inside the block, and to the test kit at once. Blocks can
        be nested. `OptionError` if no task uses the factory, or if the replacement has a parameter
        that nothing fills.
        """
        check_override(self.tasks.values(), factory, replacement)
        before, after = self._overrides, {**self._overrides, factory: replacement}
        for task in self.tasks.values():
            task.definition.override(after)  # refuses what no worker could create
        self._overrides = after
        try:
            yield
        finally:
            self._overrides = before

    @contextmanager
    def move(self, url: str, *, portal: Portal, make_queue: MakeQueue) -> Iterator[None]:
        """Inside the block, use another server, portal and kind of queue; nothing is closed."""
        before = {name: getattr(self, name) for name in _SERVER_PARTS}
        self.url, self.credentials, self._make_queue = url, None, make_queue
        self._by_loop, self._portal = {}, (os.getpid(), portal)
        try:
            yield
        finally:
            self.__dict__.update(before)


def held_app(given: object) -> App | None:
    """The app itself, or the one that an object has as its property `tampu`; None if neither.

    Objects with the interface of another package hold an app in this way.
    """
    if isinstance(given, App):
        return given
    # Asks the class: other objects in a module may do anything when they are asked.
    if isinstance(getattr(type(given), "tampu", None), property):
        held = getattr(given, "tampu", None)
        return held if isinstance(held, App) else None
    return None


def _check_lifespan(given: Lifespan | None) -> Lifespan | None:
    checked: object = given
    if checked is None:
        return None
    if not callable(checked) or is_async(checked) or yields(checked):
        raise OptionError("lifespan", given, f"expected {_LIFESPAN}")
    return given
