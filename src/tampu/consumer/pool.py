"""The pool: long-lived tasks, its slots, that take deliveries from one deque and run handlers.

Hot path. A task or a future for each job would cost more than all the rest of it.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Final, Protocol

from tampu.consumer.intake import Delivery
from tampu.outcome import Failed, Outcome, Released, outcome_of_error
from tampu.wire.dead import Failure

logger = logging.getLogger(__name__)

# Slots yield to the loop after this long, because handlers may never suspend.
_TURN_NS: Final = 5_000_000
_WAKE_MORE: Final = 2
_UNWIND_S: Final = 5.0
_CANCELLED_ITSELF: Final = Failed(Failure("CancelledError", "the handler was cancelled"))


class Settles(Protocol):
    """Takes the outcomes of attempts."""

    @property
    def start(self) -> Callable[[Delivery], None] | None:
        """Called when an attempt begins; None if that is not reported."""

    def put(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        """Called when an attempt has ended."""


class Pool:
    """Runs deliveries, at most `size` at the same time."""

    def __init__(self, size: int, settler: Settles, *, on_room: Callable[[], None]) -> None:
        self._settler = settler
        self._on_room = on_room  # called when a slot has nothing to do, or little is left to do
        self._todo: deque[Delivery] = deque()
        self._running: list[Delivery | None] = [None] * size  # by slot
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []  # slots are opened when they are first needed
        self._closing = False
        self._cancelling = False  # handlers that are cancelled now are cancelled by us
        self._grace = _Grace()
        self._turn = _Turn()
        self.size = size
        self.offered = 0  # how many deliveries there have been
        self.low_mark = 0  # ask for more when so few deliveries wait

    @property
    def waiting(self) -> int:
        """How many deliveries wait for a slot."""
        return len(self._todo)

    @property
    def free(self) -> int:
        """How many slots have nothing to do."""
        return len(self._idle) + self.size - len(self._tasks)

    @property
    def busy(self) -> int:
        """How many handlers run now."""
        return sum(1 for delivery in self._running if delivery is not None)

    def deliveries(self) -> list[Delivery]:
        """All deliveries that wait or run."""
        return [*self._todo, *(each for each in self._running if each is not None)]

    def offer(self, deliveries: list[Delivery], *, first: bool = False) -> None:
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
        withdrawn = list(reversed(self._todo))
        self._todo.clear()
        return withdrawn

    def remove(self, delivery: Delivery) -> bool:
        """Take back a delivery that waits; False if it does not wait."""
        for place, each in enumerate(self._todo):
            if each is delivery:
                del self._todo[place]
                return True
        return False

    def cancel(self, entry_id: bytes) -> bool:
        """Cancel the handler that runs for an entry; False if none does."""
        for number, delivery in enumerate(self._running):
            if delivery is not None and delivery.entry_id == entry_id:
                self._tasks[number].cancel()
                return True
        return False

    def oldest_wait_s(self, now: float) -> float:
        """How long the next delivery has waited."""
        return now - self._todo[0].read_at if self._todo else 0.0

    async def drain(self, grace_s: float) -> None:
        """Start nothing more, give running handlers so long, then cancel them. Ends the slots."""
        self._closing = True
        self._wake(len(self._idle))
        self.limit_grace(grace_s)
        await self._grace.wait(self._unfinished())
        if pending := self._unfinished():
            self._cancelling = True
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=_UNWIND_S)

    def limit_grace(self, grace_s: float) -> None:
        """Give running handlers at most this long from now on; the shortest limit counts."""
        self._grace.limit(grace_s)

    def _unfinished(self) -> set[asyncio.Task[None]]:
        return {task for task in self._tasks if not task.done()}

    def _open_slot(self, number: int) -> asyncio.Task[None]:
        task = asyncio.create_task(self._slot(number), name=f"tampu-slot-{number}")
        task.add_done_callback(partial(self._replace_slot, number))
        return task

    def _replace_slot(self, number: int, task: asyncio.Task[None]) -> None:
        """Replace a slot that an unexpected error has ended; its entry stays pending."""
        if task.cancelled() or task.exception() is None:
            return
        logger.error(
            "a slot of the pool failed: its entry stays pending", exc_info=task.exception()
        )
        self._running[number] = None
        if not self._closing:
            self._tasks[number] = self._open_slot(number)

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

    async def _slot(self, number: int) -> None:  # noqa: C901 - hot path: calls cost too much
        todo, running, clock = self._todo, self._running, perf_counter_ns
        start, put = self._settler.start, self._settler.put
        task, turn = _this_task(), self._turn
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
            began = clock()
            try:
                outcome = await delivery.plan.runner.run(delivery)
            except asyncio.CancelledError:
                outcome = Released() if self._cancelling else _CANCELLED_ITSELF
            except Exception as error:  # noqa: BLE001 - border: a returned object may do anything
                outcome = outcome_of_error(error)
            ended = clock()
            running[number] = None
            put(delivery, outcome, ended - began)
            if task.cancelling():
                await _clear_cancellation(task)
            if ended - turn.began_ns > _TURN_NS:
                await turn.end()


class _Turn:
    """The time since the loop last ran other tasks, as far as the slots know."""

    def __init__(self) -> None:
        self.began_ns = perf_counter_ns()
        self._ending = False

    async def end(self) -> None:
        """Let other tasks run; slots that call this before they have run wait too."""
        if not self._ending:
            self._ending = True
            asyncio.get_running_loop().call_soon(self._begin)
        await asyncio.sleep(0)

    def _begin(self) -> None:
        self._ending = False
        self.began_ns = perf_counter_ns()


class _Grace:
    """The time that running handlers are given when the pool is drained."""

    def __init__(self) -> None:
        self._is_over = asyncio.Event()
        self._ends_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, grace_s: float) -> None:
        """End it so many seconds from now, unless it ends earlier anyway."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + grace_s
        if ends_at < self._ends_at:
            self._cancel_timer()
            self._ends_at, self._timer = ends_at, loop.call_later(grace_s, self._is_over.set)

    async def wait(self, tasks: set[asyncio.Task[None]]) -> None:
        """Return when the tasks are done or the grace is over."""
        if tasks:
            over = asyncio.create_task(self._is_over.wait(), name="tampu-grace")
            done = asyncio.create_task(asyncio.wait(tasks), name="tampu-drain")
            await asyncio.wait({done, over}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            done.cancel()
            await asyncio.wait({done, over})
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a slot is a task
    return task


async def _clear_cancellation(task: asyncio.Task[None]) -> None:
    """Clear a cancellation that a handler requested, so that it does not hit the next job.

    If we requested it, `_closing` is set and the slot ends all the same.
    """
    while task.cancelling():
        task.uncancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
