"""The relay of an outbox: moves rows to the queues of their jobs.

It reads a batch of rows, adds their jobs, and deletes the rows; no transaction is open meanwhile.
If it dies between adding and deleting, the next relay adds the jobs again, and the server refuses
them because their ids are taken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from tampu.metrics.facts import MetricsSink, OutboxCounted, OutboxMoved, SafeSink, check_sink
from tampu.outbox.adding import MovedBatch, add_batch
from tampu.outbox.floor import Floor
from tampu.outbox.schema import BATCH, MAX_BATCH_BYTES
from tampu.server.lane import Lane
from tampu.server.scripts.outbox import note_outbox
from tampu.server.service import Service
from tampu.services.leader import Leader
from tampu.util.clock import now_ms, until_tick
from tampu.util.lifecycle import Lifetime, Runnable
from tampu.wire.holders import HolderKind, LockHolder, new_holder
from tampu.wire.keys import QueueKeys
from tampu.wire.outbox import OutboxFigures

if TYPE_CHECKING:
    from tampu.app import App
    from tampu.outbox.rows import FetchedRow, OutboxRows
    from tampu.server.listening import Wakeups
    from tampu.server.outage import Trouble

logger = logging.getLogger(__name__)
LOOK_S: Final = 1.0
_FOLLOW_S: Final = 1.0  # how often a relay that does not lead tries to
_HOLD_S: Final = 1.0  # how long a queue is left alone that could not take its jobs
_COUNT_S: Final = 10.0
_SOON_S: Final = (0.002, 0.008, 0.03, 0.12)
"""A wakeup may come shortly before its commit, so a look that finds nothing is repeated."""


@dataclass(frozen=True, slots=True)
class RelayContext:
    """What a relay works with on the server."""

    lane: Lane
    keys: QueueKeys  # of its home: the app's default queue
    wakeups: Wakeups
    sink: SafeSink
    holder: LockHolder


class OutboxService(Service):
    """Moves rows while it leads. Only the leader keeps a connection to the database."""

    name = "outbox"

    def __init__(self, app: App, rows: OutboxRows, context: RelayContext, *, name: str) -> None:
        super().__init__(context.lane.server.outage, f"the relay of outbox {name!r}")
        self._app, self._rows, self._context = app, rows, context
        self._outbox = name
        self._wakeup_key = context.keys.relay_wakeup(name)
        self._identity = ""  # of the database that we lead, or want to
        self._leader: Leader | None = None
        self._floor = Floor()
        self._held: dict[str, float] = {}  # queues that are left alone, until when
        self._troubles: dict[str, Trouble] = {}  # of these queues
        self._soon: Iterator[float] = iter(())
        self._count_at = 0.0
        self._moved = self._duplicates = 0  # since they were noted last

    async def tick(self) -> float:
        """Move a batch while we lead."""
        try:
            if not await self._leads():
                await self._rest()
                return _FOLLOW_S
            self._context.wakeups.listen(self._wakeup_key, self._note_wakeup)
            has_more = await self._move()
            await self._count()
            if has_more:
                return 0.0
        except BaseException:
            self._floor.look_everywhere()
            if self._leader is not None and not self._rows.is_open:
                # Another relay may reach the database.
                leader, self._leader = self._leader, None
                await leader.resign()
            raise
        return next(self._soon, until_tick(LOOK_S))

    async def clean_up(self) -> None:
        """Let another relay lead."""
        for trouble in self._troubles.values():
            trouble.end(recovered=False)
        await self._rest()
        if self._leader is not None:
            await self._leader.resign()

    def _note_wakeup(self) -> None:
        self._soon = iter(_SOON_S)
        self.wake()

    async def _rest(self) -> None:
        await self._context.wakeups.ignore(self._wakeup_key)
        await self._rows.close()

    # --- leading --------------------------------------------------------------------------------

    async def _leads(self) -> bool:
        """Whether we lead the database that we are connected to."""
        if self._leader is None:
            self._identity = await self._rows.identify()
            lock = self._context.keys.relay_lock(self._outbox, self._identity)
            self._leader = Leader(self._context, lock, service=self.name)
        if not await self._leader.leads():
            return False
        if self._rows.is_open:
            return True
        is_same = await self._rows.identify() == self._identity
        self._floor = Floor()
        if not is_same:  # the database was restarted, or is another one now
            await self._leader.resign()
            self._leader = None
        return is_same

    # --- moving ---------------------------------------------------------------------------------

    async def _move(self) -> bool:
        """Move the next batch; whether there may be more."""
        now = monotonic()
        self._release_queues(now)
        rows = await self._rows.fetch(self._floor.next_start(now), self._held.keys())
        if not rows:
            self._floor.note(None, now, is_full=False)
            return False
        done = await add_batch(self._app, rows)
        await self._rows.delete(done.added)
        await self._refuse(done)
        self._tell(done)
        self._hold_queues(done, now)
        self._floor.note(rows[-1].id, monotonic(), is_full=_is_full(rows))
        return _is_full(rows)

    async def _refuse(self, done: MovedBatch) -> None:
        """Set rows aside that can never be added."""
        for row_id, problem in done.refused:
            await self._rows.refuse(row_id, problem)
            facts = {"outbox": self._outbox, "row": row_id, "problem": problem}
            text = "row %d of outbox %s is set aside: %s"
            logger.error(text, row_id, self._outbox, problem, extra=facts)

    def _hold_queues(self, done: MovedBatch, now: float) -> None:
        """Leave queues alone for a while that could not take their jobs; others go on."""
        for queue, error in done.failed.items():
            trouble = self._troubles.get(queue)
            if trouble is None:
                what = f"adding jobs of outbox {self._outbox!r} to queue {queue!r}"
                trouble = self._context.lane.server.outage.part(what)
                self._troubles[queue] = trouble
            self._held[queue] = now + max(_HOLD_S, trouble.begin(error))
        for queue in done.queues & self._troubles.keys():
            self._troubles.pop(queue).end()

    def _release_queues(self, now: float) -> None:
        over = [queue for queue, until in self._held.items() if now >= until]
        for queue in over:
            del self._held[queue]
            self._floor.look_everywhere()

    # --- telling --------------------------------------------------------------------------------

    def _tell(self, done: MovedBatch) -> None:
        self._moved += len(done.added)
        self._duplicates += done.duplicates
        fact = OutboxMoved(self._outbox, len(done.added), done.duplicates, len(done.refused))
        self._context.sink.record([fact])

    async def _count(self) -> None:
        """Count the rows from time to time, for metrics."""
        now = monotonic()
        if now < self._count_at:
            return
        self._count_at = now + _COUNT_S
        counts = await self._rows.count()
        oldest_ms = 0 if counts.oldest_at_ms is None else max(0, now_ms() - counts.oldest_at_ms)
        moved, duplicates = self._moved, self._duplicates
        figures = OutboxFigures(counts.waiting, counts.refused, oldest_ms, moved, duplicates)
        await note_outbox(self._context.lane, self._context.keys, self._outbox, now=figures)
        self._moved, self._duplicates = self._moved - moved, self._duplicates - duplicates
        fact = OutboxCounted(self._outbox, counts.waiting, counts.refused, oldest_ms / 1000)
        self._context.sink.record([fact])


class OutboxRelay(Runnable):
    """Moves the rows of an outbox to the queues of their jobs.

    Made by `outbox.relay(database)`. One leads among all that run, in workers or alone: start as
    many as you like. `await relay.run()` works until `stop()`, and `async with relay:` inside the
    block. It can be started only once. The database need not be there yet.
    """

    def __init__(
        self, app: App, rows: OutboxRows, *, name: str, metrics: MetricsSink | None = None
    ) -> None:
        check_sink("metrics", metrics)
        self._app, self._rows, self._name = app, rows, name
        self._sink = SafeSink(app.worker.get("metrics") if metrics is None else metrics)
        self._holder = new_holder(HolderKind.RELAY, uuid4())
        self._life = Lifetime("relay", self._open, lambda stack, _: stack.aclose())

    def __repr__(self) -> str:
        return f"<OutboxRelay {self.id} of {self._name!r}>"

    @property
    def id(self) -> str:
        """The id under which it leads."""
        return self._holder.text

    async def stop(self) -> None:
        """Finish the batch in hand or leave it to the next relay, give up the lead, disconnect."""
        await self._life.stop()

    async def _open(self) -> AsyncExitStack:
        keys = QueueKeys(self._app.default_queue)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._app)
            shared = self._app.shared_parts
            parts = await shared.acquire()
            stack.push_async_callback(shared.release)
            lane = await Lane.open(parts.server, keys.stream, shared=parts.connections)
            await stack.enter_async_context(lane)
            context = RelayContext(lane, keys, parts.wakeups, self._sink, self._holder)
            service = OutboxService(self._app, self._rows, context, name=self._name)
            service.start()
            stack.push_async_callback(service.stop)
            return stack.pop_all()


def _is_full(rows: list[FetchedRow]) -> bool:
    """Whether more rows may follow these."""
    return len(rows) >= BATCH or sum(each.size for each in rows) >= MAX_BATCH_BYTES
