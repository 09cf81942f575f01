"""The slots in which handlers run: long-lived tasks that take deliveries from one deque.

Hot path. A task or a future a job would cost more than all the rest of it.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Final, Protocol

from tampu.consumer.intake import Delivery
from tampu.outcome import Failed, Outcome, Released, outcome_of_error
from tampu.wire.dead import Failure

logger = logging.getLogger(__name__)

# When slots have had the loop for this long they let it come round: handlers need not ever suspend.
_TURN_NS: Final = 5_000_000
_WAKE_MORE: Final = 2
_UNWINDING_S: Final = 5.0


class Settles(Protocol):
    """Takes what a run ended in."""

    @property
    def start(self) -> Callable[[Delivery], None] | None:
        """To be told when a run begins; None if nobody wants to know."""

    def put(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        """A run ended."""


class Pool:
    """Runs deliveries in as many slots as there may be handlers at a time."""

    def __init__(self, size: int, settler: Settles, *, on_room: Callable[[], None]) -> None:
        self._size = size
        self._settler = settler
        self._on_room = on_room  # called when a slot finds nothing to do, or little is left
        self._todo: deque[Delivery] = deque()
        self._running: list[Delivery | None] = [None] * size
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._ending = False  # what is cancelled now is cancelled by us
        self._late = asyncio.Event()  # the grace is over
        self._late_at = math.inf
        self._limit: asyncio.TimerHandle | None = None  # sets it then
        self._turn = perf_counter_ns()  # when the loop last came round, as far as slots know
        self._giving_way = False
        self.low_mark = 0  # how few waiting deliveries call for more

    def start(self) -> None:
        """Open the slots."""
        self._tasks = [self._opened(number) for number in range(self._size)]

    @property
    def size(self) -> int:
        """How many slots there are."""
        return self._size

    @property
    def waiting(self) -> int:
        """Deliveries that no slot has taken yet."""
        return len(self._todo)

    @property
    def free(self) -> int:
        """Slots with nothing to do."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """Handlers that run now."""
        return sum(1 for delivery in self._running if delivery is not None)

    def held(self) -> list[Delivery]:
        """All that wait or run here."""
        return [*self._todo, *(each for each in self._running if each is not None)]

    def offer(self, deliveries: Iterable[Delivery], *, first: bool = False) -> None:
        """Give work to the slots; `first` puts it before what waits already."""
        if first:
            self._todo.extendleft(reversed(list(deliveries)))
        else:
            self._todo.extend(deliveries)
        # Those who are woken wake others while there is work: a batch of short jobs is done by
        # a few of them, and a batch of long ones reaches all within a few turns of the loop.
        self._wake(_WAKE_MORE)

    def withdraw(self, *, keep: int = 0) -> list[Delivery]:
        """Take back what no slot has taken yet, the youngest first, but for so many."""
        todo = self._todo
        return [todo.pop() for _ in range(len(todo) - keep)]

    def oldest_wait_s(self, now: float) -> float:
        """How long the first in line has been waiting."""
        return now - self._todo[0].read_at if self._todo else 0.0

    async def drain(self, grace_s: float) -> None:
        """Take nothing more; give running handlers so long, then cancel them. Ends the slots."""
        self._closing = True
        self._wake(len(self._idle))
        self.limit_grace(grace_s)
        await self._until_idle_or_late()
        self._forget_limit()
        pending = {task for task in self._tasks if not task.done()}
        if pending:
            self._ending = True
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=_UNWINDING_S)

    def limit_grace(self, grace_s: float) -> None:
        """Give running handlers no longer than this from now on; the shortest limit holds."""
        loop = asyncio.get_running_loop()
        late_at = loop.time() + grace_s
        if late_at < self._late_at:
            self._forget_limit()
            self._late_at, self._limit = late_at, loop.call_later(grace_s, self._late.set)

    def _forget_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    async def _until_idle_or_late(self) -> None:
        pending = {task for task in self._tasks if not task.done()}
        if pending:
            late = asyncio.create_task(self._late.wait(), name="tampu-grace")
            idle = asyncio.create_task(asyncio.wait(pending), name="tampu-draining")
            await asyncio.wait({idle, late}, return_when=asyncio.FIRST_COMPLETED)
            late.cancel()
            idle.cancel()
            await asyncio.wait({idle, late})

    def _opened(self, number: int) -> asyncio.Task[None]:
        task = asyncio.create_task(self._slot(number), name=f"tampu-slot-{number}")
        task.add_done_callback(partial(self._ended, number))
        return task

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        """A slot that died of something unforeseen is opened anew; its entry stays pending."""
        if task.cancelled() or task.exception() is None:
            return
        logger.error("a slot died", exc_info=task.exception())
        self._running[number] = None
        if not self._closing:
            self._tasks[number] = self._opened(number)

    def _wake(self, count: int) -> None:
        idle = self._idle
        while count > 0 and idle:
            sleeper = idle.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                count -= 1

    async def _sleep(self) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._idle.append(sleeper)
        self._on_room()
        await sleeper
        if self._todo:
            self._wake(_WAKE_MORE)

    async def _slot(self, number: int) -> None:  # noqa: C901 - hot path: no call a job to spare
        todo, running, clock = self._todo, self._running, perf_counter_ns
        start, put = self._settler.start, self._settler.put
        task = _this_task()
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
                outcome = self._cancelled()
            except Exception as error:  # noqa: BLE001 - border: what it returns may be anything
                outcome = outcome_of_error(error)
            ended = clock()
            running[number] = None
            put(delivery, outcome, ended - began)
            if task.cancelling():
                await _forget_cancellation(task)
            if ended - self._turn > _TURN_NS:
                await self._give_way()

    async def _give_way(self) -> None:
        """Let the loop come round; until it has, other slots that come this way do so too."""
        if not self._giving_way:
            self._giving_way = True
            asyncio.get_running_loop().call_soon(self._new_turn)
        await asyncio.sleep(0)

    def _new_turn(self) -> None:
        self._giving_way = False
        self._turn = perf_counter_ns()

    def _cancelled(self) -> Outcome:
        """What a cancellation means: we ended the run, or the handler did it to itself."""
        if self._ending:
            return Released()
        return Failed(Failure("CancelledError", "the handler was cancelled"))


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a slot is one
    return task


async def _forget_cancellation(task: asyncio.Task[None]) -> None:
    """Have a cancellation that a handler left behind reach neither the next job nor the slot.

    If it is ours instead, it came with `_closing`, and the slot ends all the same.
    """
    while task.cancelling():
        task.uncancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
