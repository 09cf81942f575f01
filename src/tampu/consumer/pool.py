"""The pool: long-lived tasks, its slots, that take deliveries from one deque and run handlers.

Hot path. A task or a future for each job would cost more than all the rest of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from enum import Enum, auto
from functools import partial
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

from tampu.consumer.batching import BatchDelivery, Work, jobs_of
from tampu.consumer.handler import Place
from tampu.consumer.timers import ALONE, NEVER_NS, Grace, LimitTimer, LoopShare, Turn
from tampu.job import enter_job, mark_cancelled, unmark_cancelled
from tampu.outcome import (
    Cancelled,
    Done,
    Failed,
    Outcome,
    Released,
    outcome_after_limit,
    outcome_of_error,
)
from tampu.wire.dead import Failure

if TYPE_CHECKING:
    from tampu.consumer.intake import Delivery

logger = logging.getLogger(__name__)

_WAKE_MORE: Final = 2
_UNWIND_S: Final = 5.0
# An enum's class looks up its members slowly.
_LOOP, _THREAD, _PROCESS = Place.LOOP, Place.THREAD, Place.PROCESS
_CANCELLED_ITSELF: Final = Failed(Failure("CancelledError", "the handler was cancelled"))


class _Stop(Enum):
    """How far the cancellation of a job is, by the task that runs it."""

    REQUESTED = auto()  # its handler has the grace to end
    ABANDONED = auto()  # it had its chance: its entry is settled, and another slot took its place


class Settles(Protocol):
    """Takes the outcomes of attempts."""

    @property
    def start(self) -> Callable[[Any], None] | None:
        """Called when an attempt begins; None if that is not reported."""

    def put(self, delivery: Any, outcome: Outcome, duration_ns: int) -> None:  # noqa: ANN401 - what it was made for
        """Called when an attempt has ended."""

    def cancel(self, delivery: Delivery) -> None:
        """Called when a job was cancelled before its attempt began."""


class Pool:
    """Runs deliveries, at most `size` at the same time; a batch of jobs counts as one."""

    def __init__(
        self,
        size: int,
        settler: Settles,
        *,
        on_room: Callable[[], None],
        share: LoopShare = ALONE,
    ) -> None:
        self._settler = settler
        self.share = share
        self._on_room = on_room  # called when a slot has nothing to do, or little is left to do
        self._todo: deque[Work] = deque()
        self._running: list[Work | None] = [None] * size  # by slot
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []  # slots are opened when they are first needed
        self._closing = False
        self._cancelling = False  # handlers that are cancelled now are cancelled by us
        self._stops: dict[asyncio.Task[None], _Stop] = {}
        self._due_ns = [NEVER_NS] * size  # when to cancel the handler, by slot
        self._limits = LimitTimer(self._cancel_overdue)
        self._context = copy_context()  # what the handler of every job finds
        self._grace = Grace()
        self._turn = Turn()
        self.size = size
        self.offered = 0  # how many deliveries there have been
        self.low_mark = 0  # ask for more when so few deliveries wait

    @property
    def waiting(self) -> int:
        """How many deliveries wait for a slot."""
        return len(self._todo)

    @property
    def waiting_alone(self) -> int:
        """How many of them are no batches."""
        return sum(type(each) is not BatchDelivery for each in self._todo)

    @property
    def free(self) -> int:
        """How many slots have nothing to do."""
        return len(self._idle) + self.size - len(self._tasks)

    @property
    def busy(self) -> int:
        """How many handlers run now."""
        return sum(1 for delivery in self._running if delivery is not None)

    def running(self) -> list[Delivery]:
        """The deliveries whose handlers run now."""
        return jobs_of(each for each in self._running if each is not None)

    def deliveries(self) -> list[Delivery]:
        """All deliveries that wait or run."""
        return [*jobs_of(self._todo), *self.running()]

    def offer(self, deliveries: Sequence[Work], *, first: bool = False) -> None:
        """Add deliveries; with `first`, before those that wait already."""
        self.offered += len(deliveries)
        if first:
            self._todo.extendleft(reversed(deliveries))
        else:
            self._todo.extend(deliveries)
        # A slot that wakes up wakes others while there is work: a few slots do a batch of short
        # jobs, and a batch of long ones reaches all slots within a few turns of the loop.
        self._wake(_WAKE_MORE)

    def withdraw(self) -> list[Delivery]:
        """Take back all deliveries that wait, the youngest first."""
        withdrawn = [
            each
            for work in self._todo
            for each in (work.withdraw() if isinstance(work, BatchDelivery) else (work,))
        ]
        self._todo.clear()
        return withdrawn[::-1]

    def oldest_wait_s(self, now: float) -> float:
        """How long the next delivery has waited."""
        return now - self._todo[0].read_at if self._todo else 0.0

    def cancel(self, job_id: str, *, grace_s: float) -> bool:
        """Cancel a job that waits or runs here; False if there is none.

        An async handler is cancelled, a child process is killed, and a plain function sees
        `job.cancelled`. The outcome is `Cancelled`, unless the handler still returns. A handler
        that has not ended after the grace is abandoned: its slot takes other jobs. A batch that
        runs goes on until all of its jobs were cancelled.
        """
        waiting = [
            (work, each)
            for work in self._todo
            for each in jobs_of((work,))
            if each.job.id == job_id
        ]
        for work, delivery in waiting:
            if isinstance(work, BatchDelivery):
                work.take_out(delivery)
            if not isinstance(work, BatchDelivery) or not len(work):
                self._todo.remove(work)
            self._settler.cancel(delivery)
        running = [
            (number, work, each)
            for number, work in enumerate(self._running)
            if work is not None
            for each in jobs_of((work,))
            if each.job.id == job_id
        ]
        for number, work, delivery in running:
            if not isinstance(work, BatchDelivery) or work.cancel(delivery):
                self._stop(number, work, grace_s)
        if waiting:
            self._on_room()
        return bool(waiting or running)

    async def drain(self, grace_s: float) -> None:
        """Start nothing more, give running handlers so long, then cancel them. Ends the slots."""
        self._closing = True
        self._wake(len(self._idle))
        self.limit_grace(grace_s)
        await self._grace.wait(self._open_tasks())
        if pending := self._open_tasks() | self._stops.keys():
            self._cancelling = True
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=_UNWIND_S)
        self._limits.cancel()

    def limit_grace(self, grace_s: float) -> None:
        """Give running handlers at most this long from now on; the shortest limit counts."""
        self._grace.limit(grace_s)

    def _open_tasks(self) -> set[asyncio.Task[None]]:
        return {task for task in self._tasks if not task.done()}

    def _open_slot(self, number: int) -> asyncio.Task[None]:
        context = self._context.copy()
        task = asyncio.create_task(
            self._slot(number, context), name=f"tampu-slot-{number}", context=context
        )
        task.add_done_callback(partial(self._note_failure, number))
        return task

    def _replace_slot(self, number: int) -> None:
        self._running[number], self._due_ns[number] = None, NEVER_NS
        if not self._closing:
            self._tasks[number] = self._open_slot(number)

    def _note_failure(self, number: int, task: asyncio.Task[None]) -> None:
        """Replace a slot that an unexpected error has ended; its entry stays pending."""
        if task.cancelled() or task.exception() is None:
            return
        logger.error(
            "slot %d of the pool failed: its entry stays pending",
            number,
            exc_info=task.exception(),
            extra={"slot": number},
        )
        if self._stops.pop(task, None) is not _Stop.ABANDONED:
            self._replace_slot(number)

    def _stop(self, number: int, delivery: Work, grace_s: float) -> None:
        task, place = self._tasks[number], delivery.plan.runner.place
        if task in self._stops:
            return
        self._stops[task] = _Stop.REQUESTED
        mark_cancelled(delivery.job)
        if place is not _THREAD:
            task.cancel()
        if place is not _PROCESS:  # a killed process ends
            asyncio.get_running_loop().call_later(grace_s, self._abandon, number, delivery, grace_s)

    def _abandon(self, number: int, delivery: Work, grace_s: float) -> None:
        """Settle the job of a handler that ignored its cancellation, and go on without it."""
        task, job = self._tasks[number], delivery.job
        if self._running[number] is not delivery or self._closing:
            return
        self._stops[task] = _Stop.ABANDONED
        self._replace_slot(number)
        if delivery.plan.runner.place is _THREAD:
            task.cancel()  # it only waits for the thread
        delivery.plan.runner.abandon()
        logger.warning(
            "job %s (%s) was cancelled but still runs after %g s: it is abandoned",
            job.id,
            job.name,
            grace_s,
            extra={"job_id": job.id, "job_name": job.name, "attempt": job.attempt},
        )
        since_read_s = monotonic() - delivery.read_at  # its start is not kept: that costs time
        self._settler.put(delivery, Cancelled(), round(since_read_s * 1e9))

    def _cancel_overdue(self) -> int:
        """Cancel handlers whose time limit is over; when the next limit ends."""
        now_ns, next_ns, due = perf_counter_ns(), NEVER_NS, self._due_ns
        for number, task in enumerate(self._tasks):
            if due[number] <= now_ns:
                due[number] = NEVER_NS
                task.cancel()
            next_ns = min(next_ns, due[number])
        return next_ns

    def _wake(self, count: int) -> None:
        idle, tasks = self._idle, self._tasks
        while count > 0 and idle:
            sleeper = idle.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                count -= 1
        if not self._closing:
            # A slot that starts wakes no others, so as many are opened as there is work for.
            count = max(count, len(self._todo)) if count else 0
            for number in range(len(tasks), min(len(tasks) + count, self.size)):
                tasks.append(self._open_slot(number))

    async def _sleep(self) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._idle.append(sleeper)
        self._on_room()
        await sleeper
        if self._todo:
            self._wake(_WAKE_MORE)

    def _watch(self, number: int, place: Place, due_ns: int) -> int:
        """Have a handler on the loop cancelled at its time limit; when the pool checks a limit."""
        if place is _LOOP:
            self._due_ns[number] = due_ns
            if due_ns < self._limits.due_ns:
                self._limits.set(due_ns)
        return NEVER_NS if place is _PROCESS else due_ns

    async def _slot(self, number: int, context: Context) -> None:  # noqa: C901, PLR0912, PLR0915 - hot path: calls cost too much
        todo, running, clock = self._todo, self._running, perf_counter_ns
        start, put, dues = self._settler.start, self._settler.put, self._due_ns
        task, stops = _this_task(), self._stops
        turn, turn_ns = self._turn, self.share.turn_ns
        while not self._closing:
            if not todo:
                await self._sleep()
                continue
            delivery = todo.popleft()
            running[number] = delivery
            if len(todo) == self.low_mark:
                self._on_room()
            if start is not None:
                start(delivery)
            enter_job(delivery.job)
            entered = context.copy()
            runner, limit_s, due = delivery.plan.runner, delivery.timeout_s, NEVER_NS
            began = clock()
            if limit_s is not None:
                due = self._watch(number, runner.place, began + int(limit_s * 1e9))
            try:
                outcome = await runner.run(delivery)
            except asyncio.CancelledError:
                outcome = Released() if self._cancelling else _CANCELLED_ITSELF
            except Exception as error:  # noqa: BLE001 - border: a returned object may do anything
                outcome = outcome_of_error(error)
            ended = clock()
            if ended > due or stops:
                stop = stops.pop(task, None)
                if stop is not None and runner.place is not _THREAD:
                    unmark_cancelled(delivery.job)  # a thread may still look at it
                if stop is _Stop.ABANDONED:
                    return
                outcome = _outcome_of_stop(stop, outcome, delivery, is_late=ended > due)
            running[number] = None
            if limit_s is not None:
                dues[number] = NEVER_NS
            put(delivery, outcome, ended - began)
            try:
                is_used = context != entered or task.cancelling() > 0
            except Exception:  # noqa: BLE001 - border: values of context variables are compared
                is_used = True
            if is_used:  # the next job must not see what this one set, or be cancelled for it
                self._replace_slot(number)
                return
            if ended - turn.began_ns > turn_ns:
                await turn.end()


def _outcome_of_stop(
    stop: _Stop | None, outcome: Outcome, delivery: Work, *, is_late: bool
) -> Outcome:
    """The outcome of an attempt whose job was cancelled, or that ended after its time limit."""
    if is_late and delivery.timeout_s is not None:
        outcome = outcome_after_limit(outcome, delivery.timeout_s)
    return outcome if stop is None or isinstance(outcome, Done) else Cancelled()


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a slot is a task
    return task
