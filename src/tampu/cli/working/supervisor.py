"""The process that looks after worker processes: starts them, starts them anew, ends them."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final

from tampu.cli.ending import Ended, ExitCode
from tampu.cli.working.changes import Changes, directory_of
from tampu.cli.working.child import Child
from tampu.cli.working.health import TOO_SILENT_S, Health, shown
from tampu.cli.working.orders import Orders
from tampu.cli.working.restart import Again, End, NotAgain, WhenChanged, in_words, next_step
from tampu.cli.working.stopper import Stopper, first_of
from tampu.cli.working.words import Started

logger = logging.getLogger("tampu.supervisor")

_LOOK_AGAIN_S: Final = 0.2
_BEYOND_GRACE_S: Final = 30.0
_NO_ROOM_S: Final = 1.0


class _Place:
    """One of the processes that there are to be: who has it now, and how it went before."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.failures = 0


class Supervisor:
    """Keeps as many worker processes as were asked for. Used once.

    SIGTERM and SIGINT end them with the grace, a second one at once. SIGHUP replaces them one by
    one. If this process is killed they end by themselves: a pipe closes that only it holds.
    """

    def __init__(self, orders: Orders, show: Callable[[Started], None]) -> None:
        self._orders = orders
        self._show = show
        self._stopper = Stopper()
        self._roll = asyncio.Event()
        self._places = [_Place() for _ in range(orders.crew.size)]
        self._living: set[Child] = set()
        self._grace_s = 0.0
        self._has_begun = False
        self._failed: Ended | None = None
        self._life, self._held = os.pipe()
        self._watchers = asyncio.TaskGroup()

    async def run(self) -> None:
        """Until all have ended. `Ended` if the first one cannot even start."""
        with self._stopper.listening():
            async with (
                shown(self._orders.probes, self._health),
                self._alongside(),
                self._watchers,
            ):
                first, *others = self._places
                if await self._works(first):
                    for place in others:
                        self._watchers.create_task(self._fill(place, None), name="tampu-fill")
        if self._failed is not None:
            raise self._failed
        logger.info("ended")

    async def _works(self, place: _Place) -> bool:
        """Start one alone: what keeps it from working is told once, not by each of them."""
        if not self._start(place):
            self._failed = Ended(ExitCode.NO)
        while (child := place.child) is not None and not self._is_ending:
            if await child.is_started() and child.started is not None:
                self._has_begun = True
                self._grace_s = child.started.grace_s
                self._show(child.started)
                return True
            if not self._orders.crew.reload and not self._is_ending:
                self._failed = _as_told(await child.ended())
                return False
            await first_of(child.replaced, self._stopper.asked)
        return False

    @property
    def _is_ending(self) -> bool:
        return self._stopper.asked.is_set()

    @asynccontextmanager
    async def _alongside(self) -> AsyncIterator[None]:
        """What goes on beside the watching; ended when there is nobody left to watch."""
        others: list[Coroutine[Any, Any, None]] = [self._end_all(), self._roll_when_told()]
        if self._orders.crew.reload:
            others.append(self._restart_on_change())
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(each, name="tampu-supervising") for each in others]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
            loop.add_signal_handler(signal.SIGHUP, self._roll.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
            os.close(self._held)
            os.close(self._life)

    # --- one process ----------------------------------------------------------------------------

    def _start(self, place: _Place) -> bool:
        """Have a new process take a place; False if the system has no room for one."""
        child = self._started(place)
        if child is None:
            return False
        place.child = child
        return True

    def _started(self, place: _Place) -> Child | None:
        try:
            child = Child(self._life)
        except OSError as error:
            problem = {"problem": error.strerror}
            logger.error("no process can be started", extra=problem)  # noqa: TRY400 - no bug
            return None
        self._living.add(child)
        self._watchers.create_task(self._watch(place, child), name="tampu-watch")
        return child

    async def _fill(self, place: _Place, before: Child | None) -> None:
        """Start a process where there is none any more, as soon as there is room for one."""
        while self._has_place(place, before) and not self._start(place):
            await first_of(self._stopper.asked, limit_s=_NO_ROOM_S)

    async def _watch(self, place: _Place, child: Child) -> None:
        """Wait for its end, and do what follows."""
        code = await child.ended()
        self._living.discard(child)
        if not self._has_place(place, child):
            return
        worked_s = monotonic() - child.started_at if child.started else 0.0
        end = End(code=code, reason=child.leaving, worked_s=worked_s)
        told = {"ended_pid": child.pid, "how": in_words(code)}
        match next_step(end, failures=place.failures, reload=self._orders.crew.reload):
            case Again(pause_s, failures):
                if failures:
                    told["pause_s"] = f"{pause_s:g}"
                    logger.error("a process ended, another follows", extra=told)
                place.failures = failures
                await first_of(self._stopper.asked, child.replaced, limit_s=pause_s)
                await self._fill(place, child)
            case WhenChanged():
                logger.error("a process ended, waiting for a changed file", extra=told)
                await first_of(self._stopper.asked, child.replaced)
            case NotAgain():
                pass

    def _has_place(self, place: _Place, child: Child | None) -> bool:
        """Whether the place of a process that ended is to be filled, and nobody else has it."""
        begun = self._has_begun or self._orders.crew.reload
        return begun and place.child is child and not self._is_ending

    # --- all of them ----------------------------------------------------------------------------

    async def _end_all(self) -> None:
        """Pass the signals on."""
        await self._stopper.asked.wait()
        logger.info("ending", extra={"processes": len(self._living), "grace_s": self._grace_s})
        for child in list(self._living):
            child.stop(self._grace_s + _BEYOND_GRACE_S)
        await self._stopper.hurried.wait()
        for child in list(self._living):
            child.stop()

    async def _roll_when_told(self) -> None:
        while True:
            await self._roll.wait()
            self._roll.clear()
            logger.info("replacing all processes, one by one")
            for place in self._places:
                if not await self._replaced(place):
                    break
            else:
                logger.info("all processes are replaced")

    async def _replaced(self, place: _Place) -> bool:
        """Have a new process take a place; the one before ends when the new one works."""
        old = place.child
        if old is None or self._is_ending:
            return False
        new = self._started(place)
        if new is None or not await new.is_started() or new.is_gone:
            if not self._is_ending:
                logger.error("a new process does not start, the others stay")
            return False
        place.child, place.failures = new, 0
        old.replaced.set()
        old.stop(self._grace_s + _BEYOND_GRACE_S)
        await old.ended()
        return True

    async def _restart_on_change(self) -> None:
        changes = Changes(directory_of(self._orders.target))
        while True:
            await asyncio.sleep(_LOOK_AGAIN_S)
            changed = changes.look()
            if changed and not self._is_ending:
                names = ", ".join(path.name for path in changed[:3])
                logger.info("files have changed; starting anew", extra={"files": names})
                for place in self._places:
                    self._restart(place)

    def _restart(self, place: _Place) -> None:
        """New code at once; what the old process runs still has the grace."""
        old = place.child
        if old is not None and self._start(place):
            old.replaced.set()
            old.stop(self._grace_s + _BEYOND_GRACE_S)

    def _health(self) -> Health:
        now = monotonic()
        at_work = [each for place in self._places if (each := place.child) and each.started]
        beats = [(each.beat, now - each.beat_at) for each in at_work if each.beat]
        seen = [beat.silent_s + ago_s for beat, ago_s in beats]
        return Health(
            live=all(ago_s < TOO_SILENT_S for _, ago_s in beats),
            started=len(at_work) == len(self._places),
            stopping=self._stopper.asked.is_set(),
            running=sum(beat.running for beat, _ in beats),
            processes=len(self._living),
            server_seen_s_ago=max(seen) if seen else None,
        )


def _as_told(code: int) -> Ended:
    """The end of a process that never worked, as ours; if it said why, there is no more to say."""
    if code in set(ExitCode):
        return Ended(ExitCode(code))
    return Ended(ExitCode.NO, f"the first process ended before it worked: {in_words(code)}.")
