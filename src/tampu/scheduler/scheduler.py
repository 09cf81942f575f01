"""The options of a scheduler."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypedDict, Unpack

from tampu.errors import OptionError, WrongContext
from tampu.scheduler.active import ActiveTask, SchedulerContext
from tampu.scheduler.clock import Clock, WallClock
from tampu.scheduler.decision import plan_of
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
from tampu.timing.zones import zone_of
from tampu.util.clock import Duration, to_ms, to_s
from tampu.util.options import at_least, check_flag, check_type, parse_options


class SchedulerOptions(TypedDict, total=False):
    """What may be said of a scheduler."""

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
    """The options of a scheduler, checked."""

    store: Store | CoordinatedStore = field(default_factory=MemoryStore)
    guard: Guard | None = None  # asked before each run
    timezone: str = "UTC"  # of cron rules and windows that name none
    history: int = 32  # records of runs kept for each task
    observers: Sequence[Observer] = ()
    keep_ended: bool = True  # keep the state of a task whose schedule has ended
    grace: Duration | None = None  # how long runs have at the end; None: as long as they take
    threads: int = 32  # for blocking functions
    clock: Clock = field(default_factory=WallClock)

    def __post_init__(self) -> None:
        accepted = "a store, such as MemoryStore() or RedisStore(...)"
        check_type("store", self.store, Store | CoordinatedStore, accepted=accepted)
        if self.guard is not None:
            check_type("guard", self.guard, Guard, accepted="a guard, such as RedisGuard(...)")
            if isinstance(self.store, CoordinatedStore):
                accepted = "cannot be given along with a CoordinatedStore, which guards by itself"
                raise OptionError("guard", self.guard, accepted)
        zone_of("timezone", self.timezone)
        at_least("history", self.history, 0)
        at_least("threads", self.threads, 1)
        check_flag("keep_ended", self.keep_ended)
        check_type("clock", self.clock, Clock, accepted="a Clock")
        if self.grace is not None:
            to_ms("grace", self.grace)
        check_type("observers", self.observers, Sequence, accepted="a list of observers")
        for observer in self.observers:
            if isinstance(observer, type) or not callable(getattr(observer, "on_event", None)):
                raise OptionError(
                    "observers", observer, "must be an object with a method on_event(event)"
                )


_A_TURN: Final = 512  # tasks, before what was started gets its turn
_KEPT: Final = 1000  # reports of tasks that ended while nobody served


class Session:
    """The loop that gives each task its turn. It belongs to the event loop that opened it."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._courses: dict[str, ActiveTask] = {}
        self._desk = SchedulerContext(
            settings.clock, ObserverList(settings.observers), zone_of("timezone", settings.timezone)
        )
        self._threads = Threads(settings.threads, settings.clock)
        self._mode = self._chosen_mode()
        self._opening = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._failure: BaseException | None = None
        self._left: set[asyncio.Task[None]] = set()  # runs that a failure has cancelled
        self._ended: dict[str, TaskReport] = {}  # the last ones, by id

    async def open(self) -> None:
        """Begin; a second call changes nothing."""
        async with self._opening:
            if self._task is None:
                await self._mode.open()
                self._task = asyncio.create_task(self._run(), name="tampu-scheduler")

    def add(self, task: ScheduledTask[Any]) -> TaskHandle:
        """Take a task in."""
        check_type("task", task, ScheduledTask, accepted="a ScheduledTask")
        if self._failure is not None:
            raise self._failure
        if task.id in self._courses:
            raise OptionError("id", task.id, "is taken by another task of this scheduler")
        shared = isinstance(self._settings.store, CoordinatedStore)
        if shared and task.overlap not in {Overlap.SKIP, Overlap.QUEUE_ONE}:
            accepted = "cannot be had with a CoordinatedStore: SKIP and QUEUE_ONE can"
            raise OptionError("overlap", task.overlap, accepted)
        if self._settings.guard is None:
            _check_unguarded(task)
        plan = plan_of(task, self._settings.timezone)
        course = ActiveTask(task, plan, history=self._settings.history)
        self._courses[task.id] = course
        self._desk.call(course)
        return TaskHandle(course, self._desk)

    def handle(self, task_id: str) -> TaskHandle:
        """Of a task that was taken in."""
        return TaskHandle(self._courses[task_id], self._desk)

    def handles(self) -> list[TaskHandle]:
        """Of all of them."""
        return [TaskHandle(course, self._desk) for course in self._courses.values()]

    async def serve(self) -> dict[str, TaskReport]:
        """Until there is no task left."""
        reports: dict[str, TaskReport] = {}
        while self._courses:
            courses = list(self._courses.values())
            await asyncio.wait([course.ended for course in courses])
            reports |= {course.task.id: course.report() for course in courses}
        if self._failure is not None:
            raise self._failure
        return reports | self._ended

    async def close(self, *, cancel_runs: bool) -> None:
        """Stop all tasks, wait for their runs, and let go."""
        for handle in self.handles():
            handle.shutdown()
        grace = self._settings.grace
        grace_s = None if grace is None else to_s("grace", grace)
        try:
            await self._until_stopped(0.0 if cancel_runs else grace_s)
        finally:
            for course in self._courses.values():
                course.hurry()  # if nobody waits for them any more
            if self._task is not None:
                self._closing = True
                self._task.cancel()
                await asyncio.wait([self._task])
            self._threads.close()
            await self._mode.close()

    async def _until_stopped(self, grace_s: float | None) -> None:
        self._mode.hurry()
        ends = [course.ended for course in self._courses.values()]
        waiting = (await asyncio.wait(ends, timeout=grace_s))[1] if ends else None
        if waiting:
            for course in self._courses.values():
                course.hurry()
            await asyncio.wait(waiting)
        if self._left:
            await asyncio.wait(self._left)

    async def _run(self) -> None:
        desk, mode = self._desk, self._mode
        try:
            while True:
                due = desk.agenda.due(desk.clock.now_ms(), _A_TURN)
                over = await mode.attend(due)
                if over:
                    await self._end(over)
                if await desk.wait() < 0:
                    mode.set_back(list(self._courses.values()))
        except Exception as failure:  # noqa: BLE001 - handed on to all who wait
            self._fail(failure)
        except (asyncio.CancelledError, SystemExit, KeyboardInterrupt):
            # The program ends, and its loop cancels whatever is left: nobody must wait for us.
            if self._courses or not self._closing:
                self._fail(asyncio.CancelledError())
            raise

    async def _end(self, over: list[ActiveTask]) -> None:
        """Be done with tasks whose schedules have ended, or that were stopped."""
        # Known before the states are deleted: who stops them meanwhile is too late.
        reasons = [course.stopping or StopReason.TERMINAL for course in over]
        ended = [course for course in over if course.stopping is None]
        if ended and not self._settings.keep_ended:
            for course in await self._mode.forget(ended):
                state = course.state
                self._desk.telling.tell(StateDeleted(task_id=state.task_id, fired=state.fired))
        for course, reason in zip(over, reasons, strict=True):
            fired = course.state.fired
            self._courses.pop(course.task.id, None)
            course.end(reason)
            self._desk.agenda.set(course, None)  # whoever called it was too late
            self._keep(course.report())
            self._desk.telling.tell(TaskStopped(task_id=course.task.id, reason=reason, fired=fired))

    def _keep(self, report: TaskReport) -> None:
        """For who begins to serve when the task has ended already."""
        self._ended.pop(report.task_id, None)
        self._ended[report.task_id] = report
        if len(self._ended) > _KEPT:
            del self._ended[next(iter(self._ended))]

    def _fail(self, failure: BaseException) -> None:
        self._failure = failure
        courses, self._courses = self._courses, {}
        for course in courses.values():
            self._left.update(course.runs.values())
            course.hurry()
            reason, fired = StopReason.FAILED, course.state.fired
            self._desk.telling.tell(TaskStopped(task_id=course.task.id, reason=reason, fired=fired))
            course.fail(failure)

    def _chosen_mode(self) -> LocalTasks | SharedTasks:
        store = self._settings.store
        if isinstance(store, CoordinatedStore):
            return SharedTasks(self._desk, store, threads=self._threads)
        return LocalTasks(self._desk, store, guard=self._settings.guard, threads=self._threads)


def _check_unguarded(task: ScheduledTask[Any]) -> None:
    """Refuse what only a guard could see to."""
    accepted = "needs a scheduler with a guard"
    if task.resource is not None:
        raise OptionError("resource", task.resource, accepted)
    if task.scope is not Scope.OCCURRENCE:
        raise OptionError("scope", task.scope, accepted)


class Scheduler:
    """Runs one task with `run`, or many with `add` and `serve` inside of `async with`.

    It may be opened again after it was closed, and by several who share it. Options are those of
    `SchedulerSettings`.
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
        """Have a task run by its rule from now on; its state is looked up first.

        `OptionError` names what this scheduler cannot do, or an id that it has already.
        """
        return self._here("add").add(task)

    def handle(self, task_id: str) -> TaskHandle:
        """The handle of a task that was added; `KeyError` if there is none of this id."""
        return self._here("handle").handle(task_id)

    def handles(self) -> list[TaskHandle]:
        """Of all tasks that were added and have not ended, in that order."""
        return self._here("handles").handles()

    async def run(self, task: ScheduledTask[Any]) -> TaskReport:
        """Run one task until its schedule ends or it is stopped; raises what makes it fail."""
        async with self:
            handle = self.add(task)
            try:
                return await handle.wait()
            finally:
                handle.cancel()

    async def serve(self) -> dict[str, TaskReport]:
        """Until every task has ended or was stopped; a report for each, by its id.

        Of tasks that had ended before, or that came and went meanwhile, it is the last 1000.
        Raises what makes the scheduler fail: a store that refuses.
        """
        return await self._here("serve").serve()

    def cancel(self) -> None:
        """Stop all tasks as by their handles' `cancel`."""
        for handle in self.handles():
            handle.cancel()

    def shutdown(self) -> None:
        """Stop all tasks as by their handles' `shutdown`."""
        for handle in self.handles():
            handle.shutdown()

    def _here(self, what: str) -> Session:
        if self._session is None:
            raise WrongContext(what, "it works only inside `async with scheduler`")
        return self._session
