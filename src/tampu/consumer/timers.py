"""The clocks of a pool: time limits of handlers, turns of the loop, the grace of a stop."""

import asyncio
import math
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from msgspec import Struct

NEVER_NS: Final = 2**63


class LimitTimer:
    """One timer for the time limits of all handlers; one for each costs as much as a whole job.

    It is set for the limit that ends first. Most handlers have ended by then, so it is set again
    for one of those that run, and with steady limits that is once in as long as a limit.
    """

    def __init__(self, cancel_overdue: Callable[[], int]) -> None:
        self._cancel_overdue = cancel_overdue
        self._timer: asyncio.TimerHandle | None = None
        self.due_ns = NEVER_NS

    def set(self, due_ns: int) -> None:
        """Fire at this time instead of any other."""
        self.cancel()
        self.due_ns = due_ns
        # uvloop counts whole milliseconds, and may fire half of one early.
        wait_s = max((due_ns - perf_counter_ns()) / 1e9, 0.001)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._fire)

    def cancel(self) -> None:
        """Do not fire."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.due_ns = None, NEVER_NS

    def _fire(self) -> None:
        self.cancel()
        next_ns = self._cancel_overdue()
        if next_ns != NEVER_NS:
            self.set(next_ns)


class LoopShare(Struct, frozen=True):
    """How much of the loop's time a queue takes at once: entries of one read, and slots' work."""

    most_a_read: int
    turn_ns: int  # slots yield to the loop after this long, because handlers may never suspend


ALONE: Final = LoopShare(512, 5_000_000)
"""For a worker of one queue."""
AMONG_OTHERS: Final = LoopShare(128, 400_000)
"""For a worker of several queues: a flooded one must not delay the others (internals/fleets.md)."""


class Turn:
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


class Grace:
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
