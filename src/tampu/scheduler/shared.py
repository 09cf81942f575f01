"""Tasks that several schedulers share through a `CoordinatedStore`.

Each occurrence is claimed by one scheduler. Its run is in flight from the claim to the completion.
If the scheduler dies in between, another one takes the run over when the lease has expired: each
occurrence runs at least once.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from tampu.errors import ServerError, Verdict
from tampu.scheduler.active import ActiveTask, SchedulerContext, apply_run
from tampu.scheduler.decision import Hold, Run, Skip, Wait, decide, is_over
from tampu.scheduler.events import RunStatus, SkipReason, Source, StoreOperation
from tampu.scheduler.guard import Guard, Lease, Slot
from tampu.scheduler.restore import restore_task
from tampu.scheduler.runs import LEASE_LOST, RunOwner, Runs, Threads
from tampu.scheduler.stores.coordinated import CoordinatedStore, RunInFlight, SharedTaskView
from tampu.scheduler.stores.store import StoreRetries
from tampu.scheduler.task import RunRecord, TaskRun
from tampu.server.scripts.scheduler import Completion
from tampu.wire.task_state import TaskState, Waiting

_AT_ONCE: Final = 0
_DELETES_AT_ONCE: Final = 512
_LAST_RUN_MS: Final = 1000  # how often to look whether the last run, elsewhere, has ended


class SharedTasks(RunOwner):
    """Reads the shared state of each task that is due, and claims what is to run."""

    def __init__(
        self, context: SchedulerContext, store: CoordinatedStore, *, threads: Threads
    ) -> None:
        self._context = context
        self._store = store
        self._runs = Runs(context, threads, self)
        self._retries = StoreRetries(context.observers)
        self._claims: dict[str, str] = {}  # the token of our run, by task
        self._processing: dict[str, asyncio.Task[None]] = {}
        self._completing: set[asyncio.Task[None]] = set()
        self._due_again: set[str] = set()  # tasks that became due while they were processed
        self._done: dict[ActiveTask, None] = {}  # in order
        self._lease_ms = round(store.lease_s * 1000)
        self._failure: Exception | None = None
        self._gives_up = False

    async def open(self) -> None:
        """Open the store."""
        await self._store.open()

    async def close(self) -> None:
        """Cancel what is under way, and close the store."""
        tasks = [*self._processing.values(), *self._completing]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._store.close()

    def stop_retrying(self) -> None:
        """From now on, give up on a store that cannot be reached."""
        self._gives_up = True
        self._retries.stop()

    async def process(self, due: Sequence[ActiveTask]) -> list[ActiveTask]:
        """Process each task in the background; returns the tasks that have nothing left to do."""
        if self._failure is not None:
            raise self._failure
        done, self._done = self._done, {}
        for active in due:
            if active in done or active.stopped is not None:
                continue
            task_id = active.task.id
            if task_id in self._processing:
                self._due_again.add(task_id)
            else:
                turn = asyncio.create_task(self._process(active), name="tampu-scheduler-turn")
                self._processing[task_id] = turn
        return list(done)

    def adjust_to_clock(self, tasks: Sequence[ActiveTask]) -> None:
        """After the clock was set back, look at each task again: the server's clock decides."""
        for active in tasks:
            self._context.schedule(active)

    async def delete_states(self, tasks: Sequence[ActiveTask]) -> Sequence[ActiveTask]:
        """Delete the states of tasks that have ended, unless another scheduler restarted them."""
        deleted: list[ActiveTask] = []
        for start in range(0, len(tasks), _DELETES_AT_ONCE):
            some = tasks[start : start + _DELETES_AT_ONCE]
            answers = await asyncio.gather(*map(self._delete_state, some))
            deleted += [active for active, answer in zip(some, answers, strict=True) if answer]
        return deleted

    def on_run_ended(self, active: ActiveTask, record: RunRecord) -> None:
        """Store the end of a run; it counts if the run is still ours."""
        completing = asyncio.create_task(
            self._complete(active, record), name="tampu-scheduler-completion"
        )
        self._completing.add(completing)
        completing.add_done_callback(self._completing.discard)

    def on_run_refused(self, active: ActiveTask, run: TaskRun[Any], reason: SkipReason) -> None:
        """The claim could not be kept. It is ours until its lease expires, so the run is lost."""
        now_ms = self._context.clock.now_ms()
        lost = RunRecord(run.at_ms, run.started_ms or now_ms, now_ms, RunStatus.LOST, reason.name)
        self.on_run_ended(active, structs.replace(lost, catch_up=run.catch_up, manual=run.manual))

    # --- processing a task ----------------------------------------------------------------------

    async def _process(self, active: ActiveTask) -> None:
        """Do what is due for one task, and schedule the next look at it."""
        task_id = active.task.id
        until_ms: int | None = None
        try:
            until_ms = await self._do_steps(active)
            self._retries.note_answer()
        except ServerError as error:
            if error.verdict is Verdict.GIVE_UP:
                self._fail(error)
            else:
                self._retries.note_failure(StoreOperation.LOAD, error)
                await self._retries.pause()
                until_ms = _AT_ONCE
                if self._gives_up and active.stopping is not None:
                    self._finish(active)
        except Exception as error:  # noqa: BLE001 - passed on to all who wait
            self._fail(error)
        finally:
            del self._processing[task_id]
        due_again = task_id in self._due_again
        self._due_again.discard(task_id)
        if active not in self._done:
            self._context.schedule(active, _AT_ONCE if due_again else until_ms)

    async def _do_steps(self, active: ActiveTask) -> int | None:
        """Do everything that is due now; returns when to look again, by this machine's clock."""
        while True:
            view = await self._read(active)
            if view.ended:
                self._finish(active)
                return None
            if active.requests:
                await self._apply_request(active, view)
            elif active.stopping is not None:
                self._finish(active)
                return None
            elif active.state.fingerprint != active.plan.fingerprint:
                return self._context.clock.now_ms() + self._lease_ms
            elif (wait := await self._do_step(active, view)) is not None:
                return self._next_look_ms(active, view, wait)

    async def _read(self, active: ActiveTask) -> SharedTaskView:
        """The stored task; a new or changed one is stored first.

        A task that another scheduler keeps with a newer rule than ours is left as it is.
        """
        while True:
            view = await self._store.read(active.task.id)
            if active.is_loaded and (view.ended or self._is_newer(active, view)):
                if isinstance(view.state, TaskState):
                    active.state = view.state
                return view
            loaded = None if view.ended else view.state
            restored = restore_task(active.base_plan, loaded, view.now_ms)
            if restored.source is not Source.RESTORED or not view.version:
                if await self._store.advance(view.version, restored.state):
                    self._context.note_restored(active, restored)
                continue
            if not active.is_loaded:
                self._context.note_restored(active, restored)
            active.plan, active.state = restored.plan, restored.state
            return view

    async def _apply_request(self, active: ActiveTask, view: SharedTaskView) -> None:
        request = active.requests[0]
        change = request.change(active.state, view.now_ms)
        if change is not None:
            state, event = change
            if not await self._store.advance(view.version, state):
                return  # another scheduler changed the state: try again with the new one
            self._context.observers.notify(event)
        active.requests.remove(request)
        request.resolve(changed=change is not None)

    async def _do_step(self, active: ActiveTask, view: SharedTaskView) -> Wait | None:
        """Do one thing; returns the decision to wait if there is nothing to do."""
        flight = view.in_flight
        if active.running and (flight is None or not self._is_ours(active, flight)):
            return Wait(None)  # our lost run has not ended yet; other schedulers continue
        if flight is not None and flight.left_ms <= 0 and not self._is_ours(active, flight):
            await self._take_over(active, flight)
            return None
        decision = decide(
            active.plan, active.state, view.now_ms, running=0 if flight is None else 1
        )
        if isinstance(decision, Wait):
            return decision
        if isinstance(decision, Run):
            await self._claim(active, view, decision)
        elif await self._store.advance(view.version, decision.state):
            self._note(active, decision)
        return None

    def _note(self, active: ActiveTask, decision: Skip | Hold) -> None:
        active.state = decision.state
        if isinstance(decision, Skip):
            self._context.note_skip(active, decision)
        else:
            self._context.note_hold(active, decision.occurrence)

    async def _claim(self, active: ActiveTask, view: SharedTaskView, decision: Run) -> None:
        token = await self._store.claim(view.version, decision.state, decision.occurrence)
        if token is not None:
            active.state = decision.state
            self._start(active, decision, token)

    async def _take_over(self, active: ActiveTask, flight: RunInFlight) -> None:
        """Run what another scheduler started and did not finish."""
        token = await self._store.reclaim(active.task.id, flight.token)
        if token is not None:
            occurrence = Waiting(flight.at_ms, flight.catch_up, flight.manual)
            self._start(active, Run(active.state, occurrence), token, replayed=True)

    def _start(self, active: ActiveTask, run: Run, token: str, *, replayed: bool = False) -> None:
        active.running += 1
        self._claims[active.task.id] = token
        guard = _ClaimGuard(self._store, token)
        self._runs.start(active, run, guard=guard, replayed=replayed)

    def _is_ours(self, active: ActiveTask, flight: RunInFlight) -> bool:
        return self._claims.get(active.task.id) == flight.token

    def _next_look_ms(self, active: ActiveTask, view: SharedTaskView, wait: Wait) -> int | None:
        """When to look again: at the next occurrence, or when a lease elsewhere may expire."""
        if is_over(active.state) and view.in_flight is None:
            self._finish(active)
            return None
        # By the server's clock, because that of this machine may be wrong.
        waits_ms = [self._lease_ms]  # others may change the state meanwhile
        if wait.until_ms is not None:
            waits_ms.append(wait.until_ms - view.now_ms)
        if view.in_flight is not None and not self._is_ours(active, view.in_flight):
            waits_ms.append(max(1, view.in_flight.left_ms))
            if is_over(active.state):
                waits_ms.append(_LAST_RUN_MS)
        return self._context.clock.now_ms() + min(waits_ms)

    def _is_newer(self, active: ActiveTask, view: SharedTaskView) -> bool:
        """Whether a scheduler that started later changed the rule and still keeps the task.

        If both insisted on their own rule, the next occurrence would be postponed for ever.
        """
        state = view.state
        if not isinstance(state, TaskState) or state.next_ms is None:
            return False
        known = state.fingerprint in {"", active.plan.fingerprint}
        return not known and view.now_ms < state.next_ms + 2 * self._lease_ms

    def _finish(self, active: ActiveTask) -> None:
        """Mark a task as done; one with an active run is looked at again when that ends."""
        if not active.running:
            self._done[active] = None
            self._context.wake()

    # --- the end of a run -----------------------------------------------------------------------

    async def _complete(self, active: ActiveTask, record: RunRecord) -> None:
        token = self._claims[active.task.id]
        try:
            state = None
            if record.status is not RunStatus.LOST:
                state = await self._retries.ask(
                    StoreOperation.SAVE, lambda: self._store_end(active, record, token)
                )
        except Exception as error:  # noqa: BLE001 - passed on to all who wait
            self._fail(error)
            return
        if state is not None:
            active.state = state
        elif record.status is not RunStatus.LOST:
            record = structs.replace(record, status=RunStatus.LOST, error=LEASE_LOST)
        del self._claims[active.task.id]
        active.running -= 1
        self._context.note_end(active, record)
        self._context.schedule(active)

    async def _store_end(
        self, active: ActiveTask, record: RunRecord, token: str
    ) -> TaskState | None:
        """Store that a run has ended; returns the new state, or None if it is no longer ours."""
        while True:
            view = await self._store.read(active.task.id)
            if not isinstance(view.state, TaskState):
                return None
            state = apply_run(view.state, record)
            match await self._store.complete(view.version, token, state):
                case Completion.DONE:
                    return state
                case Completion.LOST:
                    return None
                case Completion.STALE:
                    continue

    async def _delete_state(self, active: ActiveTask) -> bool | None:
        return await self._retries.ask(
            StoreOperation.DELETE, lambda: self._delete_if_over(active.task.id)
        )

    async def _delete_if_over(self, task_id: str) -> bool:
        view = await self._store.read(task_id)
        over = isinstance(view.state, TaskState) and is_over(view.state)
        return over and await self._store.forget(task_id, view.version)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._context.wake()


class _ClaimGuard(Guard):
    """A claim as a lease: we already hold it, and the completion releases it."""

    def __init__(self, store: CoordinatedStore, token: str) -> None:
        self.lease_s, self.renew_every_s = store.lease_s, store.renew_every_s
        self._store = store
        self._token = token

    async def acquire(self, slot: Slot) -> Lease:
        """The lease that we hold."""
        return Lease(slot, self._token)

    async def renew(self, lease: Lease) -> bool:
        """Extend the claim."""
        return await self._store.renew(lease.slot.task_id, self._token)

    async def release(self, lease: Lease) -> bool:
        """Whether the claim is still ours; the completion releases it."""
        return await self.renew(lease)
