"""A scheduler from its opening to its end: its loop, and the tasks in it."""

import asyncio
from typing import Any, Final

from tampu.duration import to_s
from tampu.errors import OptionError
from tampu.scheduler.alone import Alone
from tampu.scheduler.calling import Threads
from tampu.scheduler.coordinated_store import CoordinatedStore
from tampu.scheduler.course import Course
from tampu.scheduler.desk import Desk
from tampu.scheduler.events import StateDeleted, StopReason, TaskStopped
from tampu.scheduler.guard import Scope
from tampu.scheduler.handle import TaskHandle
from tampu.scheduler.observer import Telling
from tampu.scheduler.plan import plan_of
from tampu.scheduler.report import Report
from tampu.scheduler.settings import SchedulerSettings
from tampu.scheduler.task import ScheduledTask
from tampu.scheduler.together import Together
from tampu.settings import check_type
from tampu.timing import Overlap
from tampu.timing.zones import zone_of

_A_TURN: Final = 512  # tasks, before what was started gets its turn
_KEPT: Final = 1000  # reports of tasks that ended while nobody served


class Session:
    """The loop that gives each task its turn. It belongs to the event loop that opened it."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._courses: dict[str, Course] = {}
        self._desk = Desk(
            settings.clock, Telling(settings.observers), zone_of("timezone", settings.timezone)
        )
        self._threads = Threads(settings.threads, settings.clock)
        self._mode = self._chosen_mode()
        self._opening = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._failure: BaseException | None = None
        self._left: set[asyncio.Task[None]] = set()  # runs that a failure has cancelled
        self._ended: dict[str, Report] = {}  # the last ones, by id

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
        course = Course(task, plan, history=self._settings.history)
        self._courses[task.id] = course
        self._desk.call(course)
        return TaskHandle(course, self._desk)

    def handle(self, task_id: str) -> TaskHandle:
        """Of a task that was taken in."""
        return TaskHandle(self._courses[task_id], self._desk)

    def handles(self) -> list[TaskHandle]:
        """Of all of them."""
        return [TaskHandle(course, self._desk) for course in self._courses.values()]

    async def serve(self) -> dict[str, Report]:
        """Until there is no task left."""
        reports: dict[str, Report] = {}
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

    async def _end(self, over: list[Course]) -> None:
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

    def _keep(self, report: Report) -> None:
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

    def _chosen_mode(self) -> Alone | Together:
        store = self._settings.store
        if isinstance(store, CoordinatedStore):
            return Together(self._desk, store, threads=self._threads)
        return Alone(self._desk, store, guard=self._settings.guard, threads=self._threads)


def _check_unguarded(task: ScheduledTask[Any]) -> None:
    """Refuse what only a guard could see to."""
    accepted = "needs a scheduler with a guard"
    if task.resource is not None:
        raise OptionError("resource", task.resource, accepted)
    if task.scope is not Scope.OCCURRENCE:
        raise OptionError("scope", task.scope, accepted)
