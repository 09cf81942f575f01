"""A store that outlives the loss of its server."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from tampu.errors import OptionError, ServerError, TampuError, Verdict
from tampu.scheduler.events import StoreDegraded, StoreEvent, StoreOperation, StoreRecovered
from tampu.scheduler.stores.store import Loaded, Store
from tampu.util.clock import Duration, to_positive_ms
from tampu.wire.task_state import TaskState

logger = logging.getLogger(__name__)


class _Change(Struct, frozen=True):
    """What the inner store has not been told: a state, or without one that it is to be forgotten.

    `fired` is how far we had brought the task.
    """

    state: TaskState | None
    fired: int


class _Outage(Struct):
    """The time from the first call that failed until all is written back."""

    asked: Sequence[str]  # whom to ask for, to see whether the inner store is there
    dirty: dict[str, _Change] = field(default_factory=dict)
    written: int = 0
    kept: int = 0
    troubled: bool = False  # said once that writing back is refused


class ResilientStore(Store):
    """Mirrors another store in memory, and goes on from the mirror while that cannot be reached.

    It is tried again every `retry_every`, and told what changed meanwhile. A task that somebody
    else has brought further is left as it is there. Errors that will not pass by themselves are
    raised as they are.
    """

    def __init__(self, inner: Store, *, retry_every: Duration = "1s") -> None:
        if not isinstance(inner, Store):
            raise OptionError("inner", type(inner), "expected a Store")
        self._inner = inner
        self._retry_every_s = to_positive_ms("retry_every", retry_every) / 1000
        self._mirror: dict[str, TaskState] = {}
        self._ahead: dict[str, int] = {}  # how far others have brought tasks that we are behind of
        self._outage: _Outage | None = None
        self._settling = asyncio.Lock()  # held while the last changes are written back
        self._returning: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[StoreEvent], None]] = []
        self._users = 0

    async def open(self) -> None:
        """Open the inner store."""
        await self._inner.open()
        self._users += 1

    async def close(self) -> None:
        """Close the inner store; the last one writes back what it can in one try."""
        self._users -= 1
        try:
            if self._users == 0:
                await self._end()
                self._listeners.clear()  # who opens it again listens again
        finally:
            await self._inner.close()

    def listen(self, tell: Callable[[StoreEvent], None]) -> None:
        """Whom to tell when the inner store is lost and when it is back."""
        if tell not in self._listeners:
            self._listeners.append(tell)
        self._inner.listen(tell)

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """What is stored of each task; during an outage what is known of it."""
        if await self._is_there():
            try:
                loaded = await self._inner.load(task_ids)
            except ServerError as error:
                self._lost(StoreOperation.LOAD, error, task_ids)
            else:
                self._reflect(task_ids, loaded)
                return loaded
        return [self._mirror.get(task_id) for task_id in task_ids]

    async def save(self, states: Sequence[TaskState]) -> None:
        """Keep these in place of what was there; during an outage in memory.

        One that is behind what another has stored is not kept until it has caught up.
        """
        if self._ahead:
            states = [state for state in states if self._has_caught_up(state)]
        if await self._is_there():
            try:
                await self._inner.save(states)
            except ServerError as error:
                self._lost(StoreOperation.SAVE, error, [state.task_id for state in states])
        outage = self._outage
        for state in states:
            self._mirror[state.task_id] = state
            if outage is not None:
                outage.dirty[state.task_id] = _Change(state, state.fired)

    async def delete(self, task_ids: Sequence[str]) -> None:
        """Forget these; during an outage in memory."""
        if await self._is_there():
            try:
                await self._inner.delete(task_ids)
            except ServerError as error:
                self._lost(StoreOperation.DELETE, error, task_ids)
        outage = self._outage
        for task_id in task_ids:
            state = self._mirror.pop(task_id, None)
            self._ahead.pop(task_id, None)
            if outage is not None:
                known = state or outage.dirty.get(task_id)
                outage.dirty[task_id] = _Change(None, 0 if known is None else known.fired)

    # --- losing it ------------------------------------------------------------------------------

    async def _is_there(self) -> bool:
        """Whether the inner store is to be asked; who comes while the last is written waits."""
        if self._settling.locked():
            async with self._settling:
                pass
        return self._outage is None

    def _lost(self, operation: StoreOperation, error: ServerError, task_ids: Sequence[str]) -> None:
        """Begin an outage, or be in one already; an error that will not pass is raised."""
        if error.verdict is Verdict.GIVE_UP:
            raise error
        if self._outage is None:
            self._outage = _Outage(task_ids[:1])
            self._returning = asyncio.create_task(self._return(), name="tampu-store-return")
            logger.warning("a store is lost; its mirror will do", extra={"problem": str(error)})
            self._tell(StoreDegraded(operation=operation, error=str(error)))

    def _reflect(self, task_ids: Sequence[str], loaded: Sequence[Loaded]) -> None:
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

    def _tell(self, event: StoreEvent) -> None:
        for tell in self._listeners:
            tell(event)

    # --- coming back ----------------------------------------------------------------------------

    async def _return(self) -> None:
        """Try again and again, until all is written back."""
        while (outage := self._outage) is not None:
            await asyncio.sleep(self._retry_every_s)
            try:
                await self._write_back(outage)
            except Exception as error:  # border: a try must not end the tries
                if not _will_pass(error) and not outage.troubled:
                    outage.troubled = True
                    logger.exception("a store cannot be written back")

    async def _write_back(self, outage: _Outage) -> None:
        """Bring the inner store up to date and end the outage; raises if it is still away."""
        await self._inner.load(outage.asked)
        # Most of it while others go on; what they change meanwhile, while they wait.
        await self._write_changes(outage)
        async with self._settling:
            while outage.dirty:
                await self._write_changes(outage)
            self._outage = None
        logger.info("a store is back")
        self._tell(StoreRecovered(written=outage.written, kept=outage.kept))

    async def _write_changes(self, outage: _Outage) -> None:
        changes = dict(outage.dirty)
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
        if gone := [task_id for task_id, each in ours.items() if each.state is None]:
            await self._inner.delete(gone)
        for task_id, change in changes.items():
            # What was changed again while it was written stays to be written.
            if outage.dirty[task_id] is change:
                del outage.dirty[task_id]
                if task_id in theirs:
                    self._mirror[task_id] = theirs[task_id]
                    self._ahead[task_id] = theirs[task_id].fired
                    outage.kept += 1
                else:
                    outage.written += 1

    async def _end(self) -> None:
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait([self._returning])
        outage, self._returning = self._outage, None
        try:
            if outage is not None and outage.dirty:
                await self._write_back(outage)
        except TampuError as error:
            facts = {"tasks": len(outage.dirty) if outage else 0, "problem": str(error)}
            logger.warning("a store was closed with states not written back", extra=facts)
        finally:
            self._outage = None


def _will_pass(error: Exception) -> bool:
    return isinstance(error, ServerError) and error.verdict is not Verdict.GIVE_UP
