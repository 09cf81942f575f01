"""A store that continues from memory while another store cannot be reached."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from tampu.errors import OptionError, ServerError, TampuError, Verdict
from tampu.scheduler.events import StoreDegraded, StoreEvent, StoreOperation, StoreRecovered
from tampu.scheduler.stores.store import CountedStore, Loaded, Store
from tampu.util.clock import Duration, to_positive_ms
from tampu.wire.task_state import TaskState

logger = logging.getLogger(__name__)


class _Change(Struct, frozen=True):
    """What the inner store does not know yet: a new state, or None for a deletion.

    `fired` is the number of occurrences that we know of.
    """

    state: TaskState | None
    fired: int


class _Outage(Struct):
    """The time from the first call that failed until everything is written back."""

    probe: Sequence[str]  # the task to load, to see whether the inner store answers
    changes: dict[str, _Change] = field(default_factory=dict)
    written: int = 0
    kept: int = 0
    logged_error: bool = False  # an error that will not pass by itself is logged once


class ResilientStore(CountedStore):
    """Mirrors another store in memory, and continues from there while it cannot be reached.

        ResilientStore(RedisStore("redis://localhost"))

    It tries the inner store every `retry_every` and then writes back what has changed. A task that
    another scheduler has brought further meanwhile is left as it is there. If the process dies
    during an outage, the changes are lost. Errors that will not pass by themselves are raised.
    """

    def __init__(self, inner: Store, *, retry_every: Duration = "1s") -> None:
        if not isinstance(inner, Store):
            raise OptionError("inner", type(inner), "expected a Store")
        super().__init__()
        self._inner = inner
        self._retry_every_s = to_positive_ms("retry_every", retry_every) / 1000
        self._mirror: dict[str, TaskState] = {}
        self._ahead: dict[str, int] = {}  # how far others have brought a task, while we are behind
        self._outage: _Outage | None = None
        self._finishing = asyncio.Lock()  # held while the last changes are written back
        self._recovering: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[StoreEvent], None]] = []

    def listen(self, listener: Callable[[StoreEvent], None]) -> None:
        """Call `listener` when the inner store is lost and when it is back."""
        if listener not in self._listeners:
            self._listeners.append(listener)
        self._inner.listen(listener)

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """The stored state of each task; during an outage, the state in memory."""
        if await self._is_reachable():
            try:
                loaded = await self._inner.load(task_ids)
            except ServerError as error:
                self._start_outage(StoreOperation.LOAD, error, task_ids)
            else:
                self._update_mirror(task_ids, loaded)
                return loaded
        return [self._mirror.get(task_id) for task_id in task_ids]

    async def save(self, states: Sequence[TaskState]) -> None:
        """Replace the stored states; during an outage, those in memory.

        A state that is behind what another scheduler has stored is not saved until it catches up.
        """
        if self._ahead:
            states = [state for state in states if self._has_caught_up(state)]
        if await self._is_reachable():
            try:
                await self._inner.save(states)
            except ServerError as error:
                task_ids = [state.task_id for state in states]
                self._start_outage(StoreOperation.SAVE, error, task_ids)
        outage = self._outage
        for state in states:
            self._mirror[state.task_id] = state
            if outage is not None:
                outage.changes[state.task_id] = _Change(state, state.fired)

    async def delete(self, task_ids: Sequence[str]) -> None:
        """Delete the stored states; during an outage, those in memory."""
        if await self._is_reachable():
            try:
                await self._inner.delete(task_ids)
            except ServerError as error:
                self._start_outage(StoreOperation.DELETE, error, task_ids)
        outage = self._outage
        for task_id in task_ids:
            state = self._mirror.pop(task_id, None)
            self._ahead.pop(task_id, None)
            if outage is not None:
                known = state or outage.changes.get(task_id)
                outage.changes[task_id] = _Change(None, 0 if known is None else known.fired)

    async def _open(self) -> None:
        await self._inner.open()

    async def _close(self) -> None:
        """Close the inner store, after one last try to write back what has changed."""
        try:
            if self._recovering is not None:
                self._recovering.cancel()
                await asyncio.wait([self._recovering])
            self._recovering = None
            await self._write_back_once()
            self._listeners.clear()  # the next scheduler adds its own
        finally:
            await self._inner.close()

    # --- an outage starts -----------------------------------------------------------------------

    async def _is_reachable(self) -> bool:
        """Whether to ask the inner store; waits while the last changes are written back."""
        if self._finishing.locked():
            async with self._finishing:
                pass
        return self._outage is None

    def _start_outage(
        self, operation: StoreOperation, error: ServerError, task_ids: Sequence[str]
    ) -> None:
        """Start an outage, unless there is one; raises an error that will not pass by itself."""
        if error.verdict is Verdict.GIVE_UP:
            raise error
        if self._outage is None:
            self._outage = _Outage(task_ids[:1])
            self._recovering = asyncio.create_task(self._recover(), name="tampu-store-recovery")
            facts = {"operation": operation.name, "error": str(error)}
            text = "cannot reach the task store, continuing from memory; %s failed: %s"
            logger.warning(text, *facts.values(), extra=facts)
            self._notify(StoreDegraded(operation=operation, error=str(error)))

    def _update_mirror(self, task_ids: Sequence[str], loaded: Sequence[Loaded]) -> None:
        for task_id, state in zip(task_ids, loaded, strict=True):
            if isinstance(state, TaskState):
                self._mirror[task_id] = state
            else:
                self._mirror.pop(task_id, None)

    def _has_caught_up(self, state: TaskState) -> bool:
        if state.fired < self._ahead.get(state.task_id, 0):
            return False
        self._ahead.pop(state.task_id, None)
        return True

    def _notify(self, event: StoreEvent) -> None:
        for listener in self._listeners:
            listener(event)

    # --- an outage ends -------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Try until everything is written back."""
        while (outage := self._outage) is not None:
            await asyncio.sleep(self._retry_every_s)
            try:
                await self._write_back(outage)
            except Exception as error:  # border: one failed try must not end the tries
                if not _will_pass(error) and not outage.logged_error:
                    outage.logged_error = True
                    facts = {"tasks": len(outage.changes), "error": str(error)}
                    text = "cannot write back to the task store (states: %d), trying again: %s"
                    logger.exception(text, *facts.values(), extra=facts)

    async def _write_back(self, outage: _Outage) -> None:
        """Write all changes to the inner store and end the outage; raises if it still fails."""
        await self._inner.load(outage.probe)
        # Most changes are written while the scheduler continues. It waits only for the last ones.
        await self._write_changes(outage)
        async with self._finishing:
            while outage.changes:
                await self._write_changes(outage)
            self._outage = None
        facts = {"written": outage.written, "kept": outage.kept}
        text = "the task store can be reached again; states written back: %d, kept: %d"
        logger.info(text, *facts.values(), extra=facts)
        self._notify(StoreRecovered(written=outage.written, kept=outage.kept))

    async def _write_changes(self, outage: _Outage) -> None:
        changes = dict(outage.changes)
        if not changes:
            return
        stored = dict(zip(changes, await self._inner.load(list(changes)), strict=True))
        theirs = {
            task_id: state
            for task_id, state in stored.items()
            if isinstance(state, TaskState) and state.fired > changes[task_id].fired
        }
        ours = {task_id: each for task_id, each in changes.items() if task_id not in theirs}
        if states := [each.state for each in ours.values() if each.state is not None]:
            await self._inner.save(states)
        if deleted := [task_id for task_id, each in ours.items() if each.state is None]:
            await self._inner.delete(deleted)
        for task_id, change in changes.items():
            # A task that was changed again while this was written stays in `outage.changes`.
            if outage.changes[task_id] is change:
                del outage.changes[task_id]
                if task_id in theirs:
                    self._mirror[task_id] = theirs[task_id]
                    self._ahead[task_id] = theirs[task_id].fired
                    outage.kept += 1
                else:
                    outage.written += 1

    async def _write_back_once(self) -> None:
        outage = self._outage
        try:
            if outage is not None and outage.changes:
                await self._write_back(outage)
        except TampuError as error:
            facts = {"tasks": len(outage.changes) if outage else 0, "error": str(error)}
            text = "closed the task store; states not written back: %d (%s)"
            logger.warning(text, *facts.values(), extra=facts)
        finally:
            self._outage = None


def _will_pass(error: Exception) -> bool:
    return isinstance(error, ServerError) and error.verdict is not Verdict.GIVE_UP
