"""Tasks whose states belong to one scheduler, in a plain store."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from tampu.scheduler.active import (
    ActiveTask,
    SchedulerContext,
    StateRequest,
    apply_refusal,
    apply_run,
)
from tampu.scheduler.decision import Hold, Run, Skip, decide, is_over
from tampu.scheduler.events import SkipReason, StoreOperation
from tampu.scheduler.guard import Guard
from tampu.scheduler.restore import adjust_to_clock, restore_task
from tampu.scheduler.runs import RunOwner, Runs, Threads
from tampu.scheduler.stores.store import Store, StoreRetries
from tampu.scheduler.task import RunRecord, TaskRun

_STARTS_AT_ONCE: Final = 64
"""Runs to start before they make progress: with 512, a run took up to 25 us instead of 17."""
_MAX_DECISIONS: Final = 1000  # for one task, before the others are looked at


class LocalTasks(RunOwner):
    """Decides for all tasks that are due, saves the decisions, then starts the runs.

    An occurrence is saved as done before its run starts. If the process dies in between, that run
    is lost: each occurrence runs at most once.
    """

    def __init__(
        self, context: SchedulerContext, store: Store, *, guard: Guard | None, threads: Threads
    ) -> None:
        self._context = context
        self._store = store
        self._guard = guard
        self._runs = Runs(context, threads, self)
        self._retries = StoreRetries(context.observers)
        self._unsaved: dict[str, ActiveTask] = {}

    async def open(self) -> None:
        """Open the store and the guard."""
        self._store.listen(self._context.observers.notify)
        await self._store.open()
        if self._guard is not None:
            try:
                await self._guard.open()
            except BaseException:
                await self._store.close()
                raise

    async def close(self) -> None:
        """Save what is unsaved, and close the store and the guard."""
        try:
            await self._save()
        finally:
            if self._guard is not None:
                await self._guard.close()
            await self._store.close()

    def stop_retrying(self) -> None:
        """From now on, give up on a store that cannot be reached."""
        self._retries.stop()

    async def process(self, due: Sequence[ActiveTask]) -> list[ActiveTask]:
        """Do what is due for each task; returns the tasks that have nothing left to do."""
        await self._load([active for active in due if not active.is_loaded])
        now_ms = self._context.clock.now_ms()
        starts: list[tuple[ActiveTask, Run]] = []
        answers: list[tuple[StateRequest, bool]] = []
        for active in due:
            if not active.is_loaded:
                continue  # the store was given up, because the scheduler stops
            if active.requests:
                answers += self._apply_requests(active, now_ms)
            if active.stopping is None:
                self._decide(active, now_ms, starts)
        if await self._save():
            await self._start_runs(starts)
        else:  # they were not saved as done, so they will run later
            for active, _ in starts:
                active.running -= 1
        for request, changed in answers:
            request.resolve(changed=changed)
        return [active for active in due if self._is_done(active)]

    def adjust_to_clock(self, tasks: Sequence[ActiveTask]) -> None:
        """After the clock was set back, let no task wait for an instant that is now far away."""
        now_ms = self._context.clock.now_ms()
        for active in tasks:
            if active.is_loaded:
                adjusted = adjust_to_clock(active.plan, active.state, now_ms)
                if adjusted is not None:
                    self._context.note_restored(active, adjusted)
                    self._unsaved[active.task.id] = active
                    self._context.schedule(active)

    async def delete_states(self, tasks: Sequence[ActiveTask]) -> Sequence[ActiveTask]:
        """Delete the states of tasks that have ended; returns those whose state was deleted."""
        ids = [active.task.id for active in tasks]
        deleted = await self._retries.ask(
            StoreOperation.DELETE, lambda: _finish(self._store.delete(ids))
        )
        return tasks if deleted else ()

    def on_run_ended(self, active: ActiveTask, record: RunRecord) -> None:
        """Apply the end of a run to the state."""
        active.state = apply_run(active.state, record)
        self._free_slot(active)
        self._context.note_end(active, record)

    def on_run_refused(self, active: ActiveTask, run: TaskRun[Any], reason: SkipReason) -> None:
        """Count a run that the guard refused as skipped."""
        active.state = apply_refusal(active.plan, active.state, active.last_decided_ms)
        self._free_slot(active)
        skip = Skip(active.state, reason, run.at_ms, run.at_ms, manual=run.manual)
        self._context.note_skip(active, skip)

    def _free_slot(self, active: ActiveTask) -> None:
        active.running -= 1
        self._unsaved[active.task.id] = active
        state = active.state
        if active.due_ms is None or state.queued is not None or state.asked is not None:
            self._context.schedule(active)
        else:
            self._context.wake()  # only to save the state

    def _is_done(self, active: ActiveTask) -> bool:
        if active.running or active.task.id in self._unsaved:
            return False
        return active.stopping is not None or is_over(active.state)

    async def _load(self, new: Sequence[ActiveTask]) -> None:
        if not new:
            return
        ids = [active.task.id for active in new]
        found = await self._retries.ask(StoreOperation.LOAD, lambda: self._store.load(ids))
        now_ms = self._context.clock.now_ms()
        if found is None:
            return  # given up, because the scheduler stops
        for active, loaded in zip(new, found, strict=True):
            self._context.note_restored(active, restore_task(active.base_plan, loaded, now_ms))
            self._unsaved[active.task.id] = active

    def _apply_requests(self, active: ActiveTask, now_ms: int) -> list[tuple[StateRequest, bool]]:
        answers = []
        requests, active.requests = active.requests, []
        for request in requests:
            change = request.change(active.state, now_ms)
            if change is not None:
                active.state, event = change
                self._unsaved[active.task.id] = active
                self._context.observers.notify(event)
            answers.append((request, change is not None))
        return answers

    def _decide(
        self, active: ActiveTask, now_ms: int, starts: list[tuple[ActiveTask, Run]]
    ) -> None:
        plan = active.plan
        for _ in range(_MAX_DECISIONS):
            decision = decide(plan, active.state, now_ms, running=active.running)
            if isinstance(decision, Run):
                active.state = state = decision.state
                active.running += 1
                starts.append((active, decision))
                self._unsaved[active.task.id] = active
                next_ms = state.next_ms
                if next_ms is not None and next_ms > now_ms and state.asked is None:
                    # The usual case: no second decision is needed to know when to look again.
                    self._context.due.set(active, plan.start_ms(next_ms))
                    return
                if next_ms is None:
                    active.last_decided_ms = now_ms
            elif isinstance(decision, Skip):
                active.state = decision.state
                self._unsaved[active.task.id] = active
                self._context.note_skip(active, decision)
            elif isinstance(decision, Hold):
                active.state = decision.state
                self._unsaved[active.task.id] = active
                self._context.note_hold(active, decision.occurrence)
            else:
                self._context.due.set(active, decision.until_ms)
                return
        self._context.schedule(active)

    async def _start_runs(self, starts: list[tuple[ActiveTask, Run]]) -> None:
        for number, (active, decision) in enumerate(starts, 1):
            self._runs.start(active, decision, guard=self._guard)
            if number % _STARTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _save(self) -> bool:
        """Save the states that have changed; False if the store was given up."""
        if not self._unsaved:
            return True
        states = [active.state for active in self._unsaved.values()]
        self._unsaved.clear()
        saved = await self._retries.ask(
            StoreOperation.SAVE, lambda: _finish(self._store.save(states))
        )
        return bool(saved)


async def _finish(call: Awaitable[None]) -> bool:
    """True, where a call has no answer of its own."""
    await call
    return True
