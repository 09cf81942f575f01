"""The app: tasks, where their jobs go, and what lives around them. Nothing is done at import."""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, Self, TypeAlias, Unpack

from tampu.consumer.options import WorkerOptions
from tampu.errors import OptionError, WrongContext
from tampu.producer.options import QueueOptions, QueueSettings
from tampu.queue import Queue
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, check_target
from tampu.sync import Portal
from tampu.tasks.handlers import settings_for
from tampu.tasks.middleware import Middleware
from tampu.tasks.router import DeclaredSchedule, Router, refuse_clash
from tampu.tasks.task import AnyTask
from tampu.util.functions import is_async, yields
from tampu.util.options import check_type, parse_options
from tampu.wire.keys import check_name

Lifespan: TypeAlias = Callable[["App"], AbstractAsyncContextManager[object]]
_LIFESPAN: Final = "a function of the app, decorated with @asynccontextmanager"


class _Opened:
    """The queues that one event loop uses, and how many hold them open."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.users = 0

    async def close(self) -> None:
        queues, self.queues = self.queues, {}
        async with AsyncExitStack() as stack:
            for queue in queues.values():
                stack.push_async_callback(queue.close)


class App(Router):
    """Declares tasks and adds their jobs; an `AppWorker` runs them.

    It connects on first use. `url` and the options of its queues are those of `Queue`. A task that
    names no queue goes to `default_queue`. `middleware` is around every run, and `lifespan(app)`
    around the life of a worker. `worker` are options for all of its workers, which have the
    queues' `max_payload` and `group` unless told otherwise.
    """

    def __init__(
        self,
        url: Target = None,
        *,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        default_queue: str = "default",
        credentials: CredentialCallback | None = None,
        worker: WorkerOptions | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        super().__init__(queue=check_name("default_queue", default_queue), middleware=middleware)
        check_target(url, credentials)
        parse_options(QueueSettings, "App", options)
        self.worker = _shared(options) | _check_worker(worker)
        self._owner = self
        self._default_queue = default_queue
        self._lifespan = _check_lifespan(lifespan)
        self._routers: list[Router] = []
        self._options = options
        self._opened: dict[asyncio.AbstractEventLoop, _Opened] = {}
        self._lock = threading.Lock()
        self._portal: tuple[int, Portal] | None = None  # with the process that it belongs to
        self._states: dict[object, object] = {}  # of each worker that runs, the last one last
        self.url, self.credentials = url, credentials

    def __repr__(self) -> str:
        return f"<App with {len(self.tasks)} tasks>"

    async def __aenter__(self) -> Self:
        self._here().users += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        opened = self._here()
        opened.users -= 1
        if opened.users == 0:
            await opened.close()

    async def close(self) -> None:
        """Close the queues that were used in this event loop; they are opened again when needed."""
        await self._here().close()

    def close_sync(self) -> None:
        """Close what `enqueue_sync` has opened; done by itself when the program ends."""
        with self._lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            portal[1].close(self.close)
            atexit.unregister(self.close_sync)

    # --- declaring ------------------------------------------------------------------------------

    @property
    def default_queue(self) -> str:
        """Where tasks go that name no queue."""
        return self._default_queue

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """What is around every run, outermost first."""
        return self._middleware

    @property
    def schedules(self) -> Sequence[DeclaredSchedule]:
        """The schedules that were declared, also by its routers."""
        routed = [each for router in self._routers for each in router.schedules]
        return [*self._schedules, *routed]

    @property
    def queues(self) -> list[str]:
        """The queues of its tasks."""
        return sorted({task.queue for task in self.tasks.values()})

    def include(self, router: Router) -> None:
        """Make the tasks and schedules of a router the app's."""
        check_type("router", router, Router, accepted="a Router")
        router.give_to(self)
        self._routers.append(router)

    def admit(self, task: AnyTask) -> None:
        """Take a task of a router; a second one of the same name is refused."""
        refuse_clash(self._tasks, task)
        self._tasks[task.name] = task

    # --- producing ------------------------------------------------------------------------------

    def queue(self, name: str | None = None) -> Queue:
        """The queue of a name, or the default one; the same each time in one event loop.

        It is closed by `close()`, or at the end of `async with app:`.
        """
        name = self._default_queue if name is None else name
        queues = self._here().queues
        found = queues.get(name)
        if found is None:
            found = Queue(name, self.url, credentials=self.credentials, **self._options)
            queues[name] = found
        return found

    def portal(self) -> Portal:
        """The event loop in a thread that `enqueue_sync` works through; one for each process."""
        with self._lock:
            if self._portal is None or self._portal[0] != os.getpid():
                self._portal = os.getpid(), Portal("the app")
                atexit.register(self.close_sync)
            return self._portal[1]

    def _here(self) -> _Opened:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            reason = "no event loop is running; use enqueue_sync in plain code"
            raise WrongContext("use a queue of the app", reason) from None
        found = self._opened.get(loop)
        if found is None:
            with self._lock:  # other loops are in other threads
                # Those that have ended go: each `asyncio.run` would leave its queues behind.
                alive = {each: it for each, it in self._opened.items() if not each.is_closed()}
                found = alive[loop] = _Opened()
                self._opened = alive
        return found

    # --- a worker's life ------------------------------------------------------------------------

    @property
    def state(self) -> Any:  # noqa: ANN401 - whatever the user's lifespan yields
        """What `lifespan` has yielded, while a worker runs."""
        if not self._states:
            raise WrongContext(
                "read app.state", "it exists while a worker runs an app that has a lifespan"
            )
        return next(reversed(self._states.values()))

    async def live(self, stack: AsyncExitStack) -> None:
        """Enter the lifespan, to be left with the stack."""
        if self._lifespan is not None:
            worker, manager = object(), self._lifespan(self)
            check_type("lifespan", manager, AbstractAsyncContextManager, accepted=_LIFESPAN)
            self._states[worker] = await stack.enter_async_context(manager)
            stack.callback(self._states.pop, worker)


def _check_worker(given: WorkerOptions | None) -> WorkerOptions:
    checked: object = {} if given is None else given
    if not isinstance(checked, dict):
        accepted = 'expected options of a worker, such as {"store_results": True}'
        raise OptionError("worker", checked, accepted)
    settings_for("a worker", given or {})
    return given or {}


def _shared(options: QueueOptions) -> WorkerOptions:
    """What must be the same on both sides of a queue: a worker buries what it may not read."""
    shared: WorkerOptions = {}
    if "max_payload" in options:
        shared["max_payload"] = options["max_payload"]
    if "group" in options:
        shared["group"] = options["group"]
    return shared


def _check_lifespan(given: Lifespan | None) -> Lifespan | None:
    checked: object = given
    if checked is None:
        return None
    if not callable(checked) or is_async(checked) or yields(checked):
        raise OptionError("lifespan", given, f"expected {_LIFESPAN}")
    return given
