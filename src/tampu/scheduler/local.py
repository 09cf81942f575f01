"""Tasks whose states are this scheduler's own, whoever else may run the same."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from tampu.scheduler.active import ActiveTask, SchedulerContext, StateRequest, completed, refused
from tampu.scheduler.decision import Hold, Run, Skip, decide, is_over
from tampu.scheduler.events import SkipReason, StoreOperation
from tampu.scheduler.guard import Guard
from tampu.scheduler.restore import restore_task, set_back
from tampu.scheduler.runs import Endings, Runs, Start, Threads
from tampu.scheduler.stores.store import Store, StoreRetries
from tampu.scheduler.task import RunRecord, TaskRun

_AT_A_TIME: Final = (
    64  # runs that begin before they go on: with 512, one took up to 25 us instead of 17
)
_MOST: Final = 1000  # decisions for one task before the others have their turn
T = TypeVar("T")


class LocalTasks(Endings):
    """Decides for all tasks that have their turn, stores what was decided, then starts the runs.

    So an occurrence is behind us before its run begins: whoever dies in between has lost it.
    """

    def __init__(
        self, desk: SchedulerContext, store: Store, *, guard: Guard | None, threads: Threads
    ) -> None:
        self._desk = desk
        self._store = store
        self._guard = guard
        self._runs = Runs(desk, threads, self)
        self._patience = StoreRetries(desk.telling)
        self._dirty: dict[str, ActiveTask] = {}

    async def open(self) -> None:
        """Get ready."""
        self._store.listen(self._desk.telling.tell)
        await self._store.open()
        if self._guard is not None:
            try:
                await self._guard.open()
            except BaseException:
                await self._store.close()
                raise

    async def close(self) -> None:
        """Store what is left to store, and let go."""
        try:
            await self._save()
        finally:
            if self._guard is not None:
                await self._guard.close()
            await self._store.close()

    def hurry(self) -> None:
        """Do not wait any longer for a store that cannot be reached."""
        self._patience.hurry()

    async def attend(self, due: Sequence[ActiveTask]) -> list[ActiveTask]:
        """Give each task its turn; those that nothing more will come of."""
        await self._open([course for course in due if not course.is_open])
        now_ms = self._desk.clock.now_ms()
        starts: list[Start] = []
        wishes: list[tuple[StateRequest, bool]] = []
        # One that is not open yet could not be loaded: it is to stop.
        for course in filter(_is_open, due):
            if course.wishes:
                wishes += self._grant(course, now_ms)
            if course.stopping is None:
                self._decide(course, now_ms, starts)
        if not await self._save():
            self._drop(starts)
        await self._begin(starts)
        for wish, granted in wishes:
            wish.answer(granted)
        return [course for course in due if self._is_done(course)]

    def set_back(self, courses: Sequence[ActiveTask]) -> None:
        """The clock was set back: have no task wait for an instant that is far ahead now."""
        now_ms = self._desk.clock.now_ms()
        for course in courses:
            found = set_back(course.plan, course.state, now_ms) if course.is_open else None
            if found is not None:
                self._desk.opened(course, found)
                self._dirty[course.task.id] = course
                self._desk.call(course)

    async def forget(self, courses: Sequence[ActiveTask]) -> Sequence[ActiveTask]:
        """Delete the states of tasks that have ended; those whose state is gone."""
        ids = [course.task.id for course in courses]
        gone = await self._asked(StoreOperation.DELETE, lambda: _done(self._store.delete(ids)))
        return courses if gone else ()

    def ended(self, course: ActiveTask, record: RunRecord) -> None:
        """A run is over."""
        course.state = completed(course.state, record)
        self._freed(course)
        self._desk.completed(course, record)

    def refused(self, course: ActiveTask, run: TaskRun[Any], reason: SkipReason) -> None:
        """The guard did not let a run begin."""
        course.state = refused(course.plan, course.state, course.closed_ms)
        self._freed(course)
        skip = Skip(course.state, reason, run.at_ms, run.at_ms, manual=run.manual)
        self._desk.skipped(course, skip)

    def _freed(self, course: ActiveTask) -> None:
        course.running -= 1
        self._dirty[course.task.id] = course
        state = course.state
        if course.turn_ms is None or state.queued is not None or state.asked is not None:
            self._desk.call(course)
        else:
            self._desk.wake()  # to have its state stored

    def _is_done(self, course: ActiveTask) -> bool:
        if course.running or course.task.id in self._dirty:
            return False
        return course.stopping is not None or is_over(course.state)

    async def _open(self, new: Sequence[ActiveTask]) -> None:
        if not new:
            return
        ids = [course.task.id for course in new]
        found = await self._asked(StoreOperation.LOAD, lambda: self._store.load(ids))
        now_ms = self._desk.clock.now_ms()
        if found is None:
            return  # given up: they are to stop
        for course, loaded in zip(new, found, strict=True):
            self._desk.opened(course, restore_task(course.drawn, loaded, now_ms))
            self._dirty[course.task.id] = course

    def _grant(self, course: ActiveTask, now_ms: int) -> list[tuple[StateRequest, bool]]:
        answers = []
        wishes, course.wishes = course.wishes, []
        for wish in wishes:
            granted = wish.grant(course.state, now_ms)
            course.state = granted.state
            self._dirty[course.task.id] = course
            if granted.event is not None:
                self._desk.telling.tell(granted.event)
            answers.append((wish, granted.event is not None))
        return answers

    def _decide(self, course: ActiveTask, now_ms: int, starts: list[Start]) -> None:
        plan = course.plan
        for _ in range(_MOST):
            decision = decide(plan, course.state, now_ms, running=course.running)
            if isinstance(decision, Run):
                course.state = state = decision.state
                course.running += 1
                starts.append(Start(course, decision, self._guard))
                self._dirty[course.task.id] = course
                next_ms = state.next_ms
                if next_ms is not None and next_ms > now_ms and state.asked is None:
                    # The usual case needs no second decision to know when the next one comes.
                    self._desk.agenda.set(course, plan.starts_ms(next_ms))
                    return
                if next_ms is None:
                    course.closed_ms = now_ms
            elif isinstance(decision, Skip):
                course.state = decision.state
                self._dirty[course.task.id] = course
                self._desk.skipped(course, decision)
            elif isinstance(decision, Hold):
                course.state = decision.state
                self._dirty[course.task.id] = course
                self._desk.held(course, decision.occurrence)
            else:
                self._desk.agenda.set(course, decision.until_ms)
                return
        self._desk.call(course)

    async def _begin(self, starts: list[Start]) -> None:
        for number, start in enumerate(starts, 1):
            self._runs.start(start)
            if number % _AT_A_TIME == 0:
                await asyncio.sleep(0)

    def _drop(self, starts: list[Start]) -> None:
        """Begin none of these: that they are behind us was not stored, so they are still to run."""
        for start in starts:
            start.course.running -= 1
        starts.clear()

    async def _save(self) -> bool:
        """Store what has changed; False if that was given up."""
        if not self._dirty:
            return True
        states = [course.state for course in self._dirty.values()]
        self._dirty.clear()
        save = self._store.save
        return bool(await self._asked(StoreOperation.SAVE, lambda: _done(save(states))))

    async def _asked(self, operation: StoreOperation, ask: Callable[[], Awaitable[T]]) -> T | None:
        return await self._patience.until_answered(operation, ask)


async def _done(asked: Awaitable[None]) -> bool:
    """True, as the answer of a store that has none."""
    await asked
    return True


def _is_open(course: ActiveTask) -> bool:
    return course.is_open
