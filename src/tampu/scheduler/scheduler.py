"""The scheduler: its options, the loop that runs its tasks, and what users call."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypedDict, Unpack

from tampu.errors import OptionError, WrongContext
from tampu.scheduler.active import ActiveTask, SchedulerContext
from tampu.scheduler.clock import Clock, WallClock
from tampu.scheduler.decision import plan_task
from tampu.scheduler.events import Observer, ObserverList, StateDeleted, StopReason, TaskStopped
from tampu.scheduler.guard import Guard, Scope
from tampu.scheduler.handle import TaskHandle
from tampu.scheduler.local import LocalTasks
from tampu.scheduler.runs import Threads
from tampu.scheduler.shared import SharedTasks
from tampu.scheduler.stores.coordinated import CoordinatedStore
from tampu.scheduler.stores.store import MemoryStore, Store
from tampu.scheduler.task import ScheduledTask, TaskReport
from tampu.timing import Overlap
from tampu.timing.zones import parse_zone
from tampu.util.clock import Duration, to_ms, to_s
from tampu.util.options import at_least, check_flag, check_type, parse_options

_TASKS_AT_ONCE: Final = 512  # to process before the started runs make progress
_MAX_ENDED_REPORTS: Final = 1000  # of tasks that ended before `serve`


class SchedulerOptions(TypedDict, total=False):
    """Keyword options of a `Scheduler`."""

    store: Store | CoordinatedStore
    guard: Guard | None
    timezone: str
    history: int
    observers: Sequence[Observer]
    keep_ended: bool
    grace: Duration | None
    threads: int
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Options of a `Scheduler`, validated."""

    store: Store | CoordinatedStore = field(default_factory=MemoryStore)
    guard: Guard | None = None  # asked before each run
    timezone: str = "UTC"  # of cron rules and windows without a zone
    history: int = 32  # records of runs that are kept for each task
    observers: Sequence[Observer] = ()
    keep_ended: bool = True  # keep the state of a task that has ended
    grace: Duration | None = None  # for active runs when it closes; None: until they end
    threads: int = 32  # for blocking functions
    clock: Clock = field(default_factory=WallClock)

    def __post_init__(self) -> None:
        expected = "a store, such as MemoryStore() or RedisStore(...)"
        check_type("store", self.store, Store | CoordinatedStore, accepted=expected)
        if self.guard is not None:
            check_type("guard", self.guard, Guard, accepted="a guard, such as RedisGuard(...)")
            if isinstance(self.store, CoordinatedStore):
                problem = "cannot be combined with a CoordinatedStore, which needs no guard"
                raise OptionError("guard", self.guard, problem)
        parse_zone("timezone", self.timezone)
        at_least("history", self.history, 0)
        at_least("threads", self.threads, 1)
        check_flag("keep_ended", self.keep_ended)
        check_type("clock", self.clock, Clock, accepted="a Clock")
        if self.grace is not None:
            to_ms("grace", self.grace)
        check_type("observers", self.observers, Sequence, accepted="a list of observers")
        for observer in self.observers:
            if isinstance(observer, type) or not callable(getattr(observer, "on_event", None)):
                problem = "expected an object with a method on_event(event)"
                raise OptionError("observers", observer, problem)


class Session:
    """One opening of a scheduler: its tasks and its loop. Belongs to one event loop."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._tasks: dict[str, ActiveTask] = {}
        self._context = SchedulerContext(
            settings.clock,
            ObserverList(settings.observers),
            parse_zone("timezone", settings.timezone),
        )
        self._threads = Threads(settings.threads, settings.clock)
        self._mode = self._choose_mode()
        self._opening = asyncio.Lock()
        self._loop: asyncio.Task[None] | None = None
        self._closing = False
        self._failure: BaseException | None = None
        self._cancelled_runs: set[asyncio.Task[None]] = set()  # by a failure
        self._ended: dict[str, TaskReport] = {}  # the last ones, by id

    async def open(self) -> None:
        """Start the loop; a second call changes nothing."""
        async with self._opening:
            if self._loop is None:
                await self._mode.open()
                self._loop = asyncio.create_task(self._run(), name="tampu-scheduler")

    def add(self, task: ScheduledTask[Any]) -> TaskHandle:
        """Add a task."""
        check_type("task", task, ScheduledTask, accepted="a ScheduledTask")
        if self._failure is not None:
            raise self._failure
        if task.id in self._tasks:
            raise OptionError("id", task.id, "this scheduler already has a task with this id")
        shared = isinstance(self._settings.store, CoordinatedStore)
        if shared and task.overlap not in {Overlap.SKIP, Overlap.QUEUE_ONE}:
            name = task.overlap.name
            problem = f"{name} is not supported with a CoordinatedStore; use SKIP or QUEUE_ONE"
            raise OptionError("overlap", task.overlap, problem)
        if self._settings.guard is None:
            _check_unguarded(task)
        plan = plan_task(task, self._settings.timezone)
        active = ActiveTask(task, plan, history=self._settings.history)
        self._tasks[task.id] = active
        self._context.schedule(active)
        return TaskHandle(active, self._context)

    def handle(self, task_id: str) -> TaskHandle:
        """The handle of a task."""
        return TaskHandle(self._tasks[task_id], self._context)

    def handles(self) -> list[TaskHandle]:
        """The handles of all tasks."""
        return [TaskHandle(active, self._context) for active in self._tasks.values()]

    async def serve(self) -> dict[str, TaskReport]:
        """Wait until no task is left."""
        reports: dict[str, TaskReport] = {}
        while self._tasks:
            tasks = list(self._tasks.values())
            await asyncio.wait([active.finished for active in tasks])
            reports |= {active.task.id: active.report() for active in tasks}
        if self._failure is not None:
            raise self._failure
        return reports | self._ended

    async def close(self, *, cancel_runs: bool) -> None:
        """Stop all tasks, wait for their runs, and close the store and the guard."""
        for handle in self.handles():
            handle.shutdown()
        grace = self._settings.grace
        grace_s = None if grace is None else to_s("grace", grace)
        try:
            await self._wait_for_tasks(0.0 if cancel_runs else grace_s)
        finally:
            for active in self._tasks.values():
                active.cancel_all_runs()  # if the wait was cancelled
            if self._loop is not None:
                self._closing = True
                self._loop.cancel()
                await asyncio.wait([self._loop])
            self._threads.close()
            await self._mode.close()

    async def _wait_for_tasks(self, grace_s: float | None) -> None:
        self._mode.stop_retrying()
        ends = [active.finished for active in self._tasks.values()]
        pending = (await asyncio.wait(ends, timeout=grace_s))[1] if ends else None
        if pending:
            for active in self._tasks.values():
                active.cancel_all_runs()
            await asyncio.wait(pending)
        if self._cancelled_runs:
            await asyncio.wait(self._cancelled_runs)

    async def _run(self) -> None:
        context, mode = self._context, self._mode
        try:
            while True:
                due = context.due.pop_due(context.clock.now_ms(), _TASKS_AT_ONCE)
                done = await mode.process(due)
                if done:
                    await self._end(done)
                if await context.wait() < 0:
                    mode.adjust_to_clock(list(self._tasks.values()))
        except Exception as failure:  # noqa: BLE001 - passed on to all who wait
            self._fail(failure)
        except (asyncio.CancelledError, SystemExit, KeyboardInterrupt):
            # The program ends, and its event loop cancels everything: nobody may wait for us.
            if self._tasks or not self._closing:
                self._fail(asyncio.CancelledError())
            raise

    async def _end(self, done: list[ActiveTask]) -> None:
        """Remove tasks that have ended or were stopped."""
        # Fixed before the states are deleted: a `cancel` in the meantime comes too late.
        reasons = [active.stopping or StopReason.TERMINAL for active in done]
        ended = [active for active in done if active.stopping is None]
        if ended and not self._settings.keep_ended:
            for active in await self._mode.delete_states(ended):
                self._context.observers.notify(
                    StateDeleted(task_id=active.task.id, fired=active.state.fired)
                )
        for active, reason in zip(done, reasons, strict=True):
            self._tasks.pop(active.task.id, None)
            active.finish(reason)
            self._context.due.set(active, None)  # a request in the meantime came too late
            self._keep(active.report())
            self._notify_stop(active, reason)

    def _keep(self, report: TaskReport) -> None:
        """Keep the report of a task that ends before `serve` is called."""
        self._ended.pop(report.task_id, None)
        self._ended[report.task_id] = report
        if len(self._ended) > _MAX_ENDED_REPORTS:
            del self._ended[next(iter(self._ended))]

    def _fail(self, failure: BaseException) -> None:
        self._failure = failure
        tasks, self._tasks = self._tasks, {}
        for active in tasks.values():
            self._cancelled_runs.update(active.runs.values())
            active.cancel_all_runs()
            self._notify_stop(active, StopReason.FAILED)
            active.fail(failure)

    def _notify_stop(self, active: ActiveTask, reason: StopReason) -> None:
        self._context.observers.notify(
            TaskStopped(task_id=active.task.id, reason=reason, fired=active.state.fired)
        )

    def _choose_mode(self) -> LocalTasks | SharedTasks:
        store = self._settings.store
        if isinstance(store, CoordinatedStore):
            return SharedTasks(self._context, store, threads=self._threads)
        return LocalTasks(self._context, store, guard=self._settings.guard, threads=self._threads)


class Scheduler:
    """Runs functions of this program at the instants of their rules. Needs no server.

        await Scheduler().run(ScheduledTask("cache", Every("5m"), refresh))

        async with Scheduler(timezone="Europe/Berlin") as scheduler:
            scheduler.add(ScheduledTask("cache", Every("5m"), refresh))
            scheduler.add(ScheduledTask("report", Cron("0 9 * * *"), build))
            await scheduler.serve()

    The options are `store`, `guard`, `timezone`, `history`, `observers`, `keep_ended`, `grace`,
    `threads` and `clock`. When `async with` ends, all tasks are stopped; their active runs get
    `grace` and are then cancelled. A scheduler may be opened again, and several times at once.
    """

    def __init__(self, **options: Unpack[SchedulerOptions]) -> None:
        self._settings = parse_options(SchedulerSettings, "Scheduler", options)
        self._session: Session | None = None
        self._users = 0

    async def __aenter__(self) -> Self:
        self._users += 1
        try:
            if self._session is None:
                self._session = Session(self._settings)
            await self._session.open()
        except BaseException:
            self._users -= 1
            if not self._users:
                self._session = None
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._users -= 1
        if self._users or self._session is None:
            return
        session, self._session = self._session, None
        await session.close(cancel_runs=kind is not None)

    def add(self, task: ScheduledTask[Any]) -> TaskHandle:
        """Add a task; its stored state is loaded first, then it runs by its rule.

        Raises `OptionError` if the id is taken, or if this scheduler does not support an option.
        """
        return self._open_session("add a task").add(task)

    def handle(self, task_id: str) -> TaskHandle:
        """The handle of a task; `KeyError` if no active task has this id."""
        return self._open_session("get a handle").handle(task_id)

    def handles(self) -> list[TaskHandle]:
        """The handles of all tasks that have not ended, in the order they were added."""
        return self._open_session("get handles").handles()

    async def run(self, task: ScheduledTask[Any]) -> TaskReport:
        """Run one task until it ends or is stopped; raises the error if the scheduler fails."""
        async with self:
            handle = self.add(task)
            try:
                return await handle.wait()
            finally:
                handle.cancel()

    async def serve(self) -> dict[str, TaskReport]:
        """Wait until every task has ended or was stopped; returns their reports by id.

        Of tasks that ended before this call, only the last 1000 reports are kept. Raises the error
        if the scheduler fails, such as a store that denies access.
        """
        return await self._open_session("serve").serve()

    def cancel(self) -> None:
        """Call `cancel` of every task's handle."""
        for handle in self.handles():
            handle.cancel()

    def shutdown(self) -> None:
        """Call `shutdown` of every task's handle."""
        for handle in self.handles():
            handle.shutdown()

    def _open_session(self, action: str) -> Session:
        if self._session is None:
            raise WrongContext(action, "the scheduler is not open; use `async with scheduler`")
        return self._session


def _check_unguarded(task: ScheduledTask[Any]) -> None:
    """Refuse options that only a guard can provide."""
    problem = "needs a scheduler with a guard"
    if task.resource is not None:
        raise OptionError("resource", task.resource, problem)
    if task.scope is not Scope.OCCURRENCE:
        raise OptionError("scope", task.scope, problem)
