"""Tasks that several schedulers share: each occurrence is claimed by one of them.

A run is in flight from its claim to its completion. If its scheduler dies in between, another one
takes it over when the lease has run out: each occurrence runs at least once.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from tampu.errors import ServerError, Verdict
from tampu.scheduler.active import ActiveTask, SchedulerContext, completed
from tampu.scheduler.decision import Hold, Run, Skip, Wait, decide, is_over
from tampu.scheduler.events import RunStatus, SkipReason, Source, StoreOperation
from tampu.scheduler.guard import Guard, Lease, Slot
from tampu.scheduler.restore import restore_task
from tampu.scheduler.runs import LEASE_LOST, Endings, Runs, Start, Threads
from tampu.scheduler.stores.coordinated import CoordinatedStore, Inflight, Seen
from tampu.scheduler.stores.store import StoreRetries
from tampu.scheduler.task import RunRecord, TaskRun
from tampu.server.scripts.scheduler import Completion
from tampu.wire.task_state import TaskState, Waiting

_AT_ONCE: Final = 0
_AT_A_TIME: Final = 512  # tasks that are forgotten together
_ENDING_MS: Final = 1000  # how often to look whether the last run, elsewhere, has ended


class SharedTasks(Endings):
    """Looks at a task's shared state at each of its turns, and claims what is to run."""

    def __init__(
        self, desk: SchedulerContext, store: CoordinatedStore, *, threads: Threads
    ) -> None:
        self._desk = desk
        self._store = store
        self._runs = Runs(desk, threads, self)
        self._patience = StoreRetries(desk.telling)
        self._claims: dict[str, str] = {}  # the token of the run that is ours, by task
        self._attending: dict[str, asyncio.Task[None]] = {}
        self._completing: set[asyncio.Task[None]] = set()
        self._called: set[str] = set()  # again, while they were being attended to
        self._over: dict[ActiveTask, None] = {}  # in order
        self._lease_ms = round(store.lease_s * 1000)
        self._failure: Exception | None = None
        self._hurried = False

    async def open(self) -> None:
        """Get ready."""
        await self._store.open()

    async def close(self) -> None:
        """Let go."""
        tasks = [*self._attending.values(), *self._completing]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._store.close()

    def hurry(self) -> None:
        """Do not wait any longer for a store that cannot be reached."""
        self._hurried = True
        self._patience.hurry()

    async def attend(self, due: Sequence[ActiveTask]) -> list[ActiveTask]:
        """Give each task its turn; those that nothing more will come of."""
        if self._failure is not None:
            raise self._failure
        over, self._over = self._over, {}
        for course in due:
            if course in over or course.stopped is not None:
                continue
            task_id = course.task.id
            if task_id in self._attending:
                self._called.add(task_id)
            else:
                turn = asyncio.create_task(self._turn(course), name="tampu-scheduler-turn")
                self._attending[task_id] = turn
        return list(over)

    def set_back(self, courses: Sequence[ActiveTask]) -> None:
        """The clock was set back, and with it the instants at which to look again."""
        for course in courses:
            self._desk.call(course)

    async def forget(self, courses: Sequence[ActiveTask]) -> Sequence[ActiveTask]:
        """Delete the states of tasks that have ended, unless another has begun them anew."""
        gone: list[ActiveTask] = []
        for start in range(0, len(courses), _AT_A_TIME):
            some = courses[start : start + _AT_A_TIME]
            answers = await asyncio.gather(*map(self._forgotten, some))
            gone += [course for course, answer in zip(some, answers, strict=True) if answer]
        return gone

    def ended(self, course: ActiveTask, record: RunRecord) -> None:
        """A run is over; it counts if it is still ours."""
        completing = asyncio.create_task(
            self._complete(course, record), name="tampu-scheduler-completion"
        )
        self._completing.add(completing)
        completing.add_done_callback(self._completing.discard)

    def refused(self, course: ActiveTask, run: TaskRun[Any], reason: SkipReason) -> None:
        """It could not be kept; as it is ours until its lease has run out, it is lost."""
        now_ms = self._desk.clock.now_ms()
        lost = RunRecord(run.at_ms, run.started_ms or now_ms, now_ms, RunStatus.LOST, reason.name)
        self.ended(course, structs.replace(lost, catch_up=run.catch_up, manual=run.manual))

    # --- a turn -----------------------------------------------------------------------------

    async def _turn(self, course: ActiveTask) -> None:
        """Attend to one task, and say when it wants to be attended to again."""
        task_id = course.task.id
        until_ms: int | None = None
        try:
            until_ms = await self._attended(course)
            self._patience.answered()
        except ServerError as error:
            if error.verdict is Verdict.GIVE_UP:
                self._fail(error)
            else:
                self._patience.failed(StoreOperation.LOAD, error)
                await self._patience.pause()
                until_ms = _AT_ONCE
                if self._hurried and course.stopping is not None:
                    self._finish(course)
        except Exception as error:  # noqa: BLE001 - handed on to all who wait
            self._fail(error)
        finally:
            del self._attending[task_id]
        again = task_id in self._called
        self._called.discard(task_id)
        if course not in self._over:
            self._desk.call(course, _AT_ONCE if again else until_ms)

    async def _attended(self, course: ActiveTask) -> int | None:
        """Do all that is to be done now; when there is more, by this machine's clock."""
        while True:
            seen = await self._seen(course)
            if seen.ended:
                self._finish(course)
                return None
            if course.wishes:
                await self._grant(course, seen)
            elif course.stopping is not None:
                self._finish(course)
                return None
            elif course.state.fingerprint != course.plan.fingerprint:
                return self._desk.clock.now_ms() + self._lease_ms
            elif (wait := await self._step(course, seen)) is not None:
                return self._wait_ms(course, seen, wait)

    async def _seen(self, course: ActiveTask) -> Seen:
        """How a task stands at the store; one that is new or was changed is stored so first.

        One of a newer schedule than ours, that somebody looks after, is left as it is.
        """
        while True:
            seen = await self._store.look(course.task.id)
            if course.is_open and (seen.ended or self._is_newer(course, seen)):
                if isinstance(seen.state, TaskState):
                    course.state = seen.state
                return seen
            found = restore_task(course.drawn, None if seen.ended else seen.state, seen.now_ms)
            if found.source is not Source.RESTORED or not seen.version:
                if await self._store.advance(seen.version, found.state):
                    self._desk.opened(course, found)
                continue
            if not course.is_open:
                self._desk.opened(course, found)
            course.plan, course.state = found.plan, found.state
            return seen

    async def _grant(self, course: ActiveTask, seen: Seen) -> None:
        wish = course.wishes[0]
        granted = wish.grant(course.state, seen.now_ms)
        if granted.event is not None:
            if not await self._store.advance(seen.version, granted.state):
                return  # looked at once more, and granted then
            self._desk.telling.tell(granted.event)
        course.wishes.remove(wish)
        wish.answer(granted.event is not None)

    async def _step(self, course: ActiveTask, seen: Seen) -> Wait | None:
        """Do one thing; the decision to wait, if there is nothing to do."""
        flight = seen.inflight
        if course.running and (flight is None or not self._is_ours(course, flight)):
            return Wait(None)  # a run that we have lost is yet to end; the others go on meanwhile
        if flight is not None and flight.left_ms <= 0 and not self._is_ours(course, flight):
            await self._take_over(course, flight)
            return None
        decision = decide(
            course.plan, course.state, seen.now_ms, running=0 if flight is None else 1
        )
        if isinstance(decision, Wait):
            return decision
        if isinstance(decision, Run):
            await self._claim(course, seen, decision)
        elif await self._store.advance(seen.version, decision.state):
            self._note(course, decision)
        return None

    def _note(self, course: ActiveTask, decision: Skip | Hold) -> None:
        course.state = decision.state
        if isinstance(decision, Skip):
            self._desk.skipped(course, decision)
        else:
            self._desk.held(course, decision.occurrence)

    async def _claim(self, course: ActiveTask, seen: Seen, decision: Run) -> None:
        token = await self._store.claim(seen.version, decision.state, decision.occurrence)
        if token is not None:
            course.state = decision.state
            self._start(course, decision, token)

    async def _take_over(self, course: ActiveTask, flight: Inflight) -> None:
        """Run what another has begun and not finished."""
        token = await self._store.reclaim(course.task.id, flight.token)
        if token is not None:
            one = Waiting(flight.at_ms, flight.catch_up, flight.manual)
            self._start(course, Run(course.state, one), token, replayed=True)

    def _start(self, course: ActiveTask, run: Run, token: str, *, replayed: bool = False) -> None:
        course.running += 1
        self._claims[course.task.id] = token
        self._runs.start(Start(course, run, _Claimed(self._store, token), replayed))

    def _is_ours(self, course: ActiveTask, flight: Inflight) -> bool:
        return self._claims.get(course.task.id) == flight.token

    def _wait_ms(self, course: ActiveTask, seen: Seen, wait: Wait) -> int | None:
        """When to look again: at the next occurrence, or when a run elsewhere may be left."""
        if is_over(course.state) and seen.inflight is None:
            self._finish(course)
            return None
        # By the server's clock: that of this machine may be wrong.
        waits_ms = [self._lease_ms]  # others may change the state meanwhile
        if wait.until_ms is not None:
            waits_ms.append(wait.until_ms - seen.now_ms)
        if seen.inflight is not None and not self._is_ours(course, seen.inflight):
            waits_ms.append(max(1, seen.inflight.left_ms))
            if is_over(course.state):
                waits_ms.append(_ENDING_MS)
        return self._desk.clock.now_ms() + min(waits_ms)

    def _is_newer(self, course: ActiveTask, seen: Seen) -> bool:
        """Whether the schedule was changed by one that was started later and is still there.

        Two that both insisted on theirs would put the next occurrence off for ever.
        """
        state = seen.state
        if not isinstance(state, TaskState) or state.next_ms is None:
            return False
        known = state.fingerprint in {"", course.plan.fingerprint}
        return not known and seen.now_ms < state.next_ms + 2 * self._lease_ms

    def _finish(self, course: ActiveTask) -> None:
        """Be done with a task; if a run of it is yet to end, that calls it once more."""
        if not course.running:
            self._over[course] = None
            self._desk.wake()

    # --- the end of a run -------------------------------------------------------------------

    async def _complete(self, course: ActiveTask, record: RunRecord) -> None:
        token = self._claims[course.task.id]
        try:
            state = None
            if record.status is not RunStatus.LOST:
                state = await self._patience.until_answered(
                    StoreOperation.SAVE, lambda: self._completed(course, record, token)
                )
        except Exception as error:  # noqa: BLE001 - handed on to all who wait
            self._fail(error)
            return
        if state is None and record.status is not RunStatus.LOST:
            record = structs.replace(record, status=RunStatus.LOST, error=LEASE_LOST)
        if state is not None:
            course.state = state
        del self._claims[course.task.id]
        course.running -= 1
        self._desk.completed(course, record)
        self._desk.call(course)

    async def _completed(
        self, course: ActiveTask, record: RunRecord, token: str
    ) -> TaskState | None:
        """Store that a run is over; None if it was not ours any more."""
        while True:
            seen = await self._store.look(course.task.id)
            if not isinstance(seen.state, TaskState):
                return None
            state = completed(seen.state, record)
            match await self._store.complete(seen.version, token, state):
                case Completion.DONE:
                    return state
                case Completion.LOST:
                    return None
                case Completion.STALE:
                    continue

    async def _forgotten(self, course: ActiveTask) -> bool | None:
        return await self._patience.until_answered(
            StoreOperation.DELETE, lambda: self._forget(course)
        )

    async def _forget(self, course: ActiveTask) -> bool:
        seen = await self._store.look(course.task.id)
        ended = isinstance(seen.state, TaskState) and is_over(seen.state)
        return ended and await self._store.forget(course.task.id, seen.version)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._desk.wake()


class _Claimed(Guard):
    """A claim as a lease: taken already, and given back with the state that says it is done."""

    def __init__(self, store: CoordinatedStore, token: str) -> None:
        self.lease_s, self.renew_every_s = store.lease_s, store.renew_every_s
        self._store = store
        self._token = token

    async def acquire(self, slot: Slot) -> Lease:
        """It is ours."""
        return Lease(slot, self._token)

    async def renew(self, lease: Lease) -> bool:
        """Keep it for another while."""
        return await self._store.renew(lease.slot.task_id, self._token)

    async def release(self, lease: Lease) -> bool:
        """Whether it is still ours; the completion gives it back."""
        return await self.renew(lease)
