"""One process at work, from its start to its end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from tampu._version import __version__
from tampu.app import App
from tampu.app_worker import AppWorker
from tampu.cli.working.health import EVERY_S, Health, shown
from tampu.cli.working.memory import resident_bytes
from tampu.cli.working.orders import Orders, Probes
from tampu.cli.working.parent import Parent
from tampu.cli.working.stopper import Stopper, first_of
from tampu.cli.working.tally import Tally
from tampu.cli.working.words import Beat, Leaving, Reason, Started
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.errors import ServerError
from tampu.server.connect import connect
from tampu.server.dialect import Dialect
from tampu.server.lanes import Lanes
from tampu.server.scripts.delayed import left
from tampu.util.clock import to_s
from tampu.wire.keys import QueueKeys

logger = logging.getLogger("tampu.worker")

_LOOK_AGAIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Shift:
    """What one process is to do, and whom it tells."""

    app: App
    orders: Orders
    parent: Parent | None
    show: Callable[[Started], None]  # to the user, when it works
    stopper: Stopper = field(default_factory=Stopper)

    async def work(self) -> None:
        """Work until there is a reason to end; running jobs get the grace."""
        stopper = self.stopper
        with stopper.listening():
            if self.parent is not None:
                self.parent.when_gone(self._orphaned)
            worker = self._worker()
            async with shown(self._probes, lambda: self._health(worker)):
                if await self._has_begun(worker):
                    async with self._watched(worker):
                        await stopper.asked.wait()
                        self._say_why()
                        await self._stop(worker)

    @property
    def _probes(self) -> Probes:
        """A process that is looked after is shown by the one that does so."""
        return self.orders.probes if self.parent is None else Probes()

    @property
    def _settings(self) -> WorkerSettings:
        return WorkerSettings(**self.app.worker)

    @property
    def _grace_s(self) -> float:
        grace = self.orders.grace
        return to_s("grace", self._settings.grace if grace is None else grace)

    def _worker(self) -> AppWorker:
        settings, orders = self._settings, self.orders
        queues = {name: slots or settings.concurrency for name, slots in orders.queues.items()}
        tally = Tally(
            settings.metrics,
            most=orders.recycling.jobs,
            enough=lambda: self.stopper.ask(Reason.RECYCLED),
        )
        options = WorkerOptions(metrics=tally, grace=self._grace_s)
        worker = AppWorker(self.app, queues or None, **options)
        for name in queues.keys() - set(self.app.queues):
            logger.warning("no task of the app goes to this queue", extra={"queue": name})
        return worker

    async def _has_begun(self, worker: AppWorker) -> bool:
        """Start it; False if it is to end before it has."""
        beginning = asyncio.create_task(self._begin(worker), name="tampu-begin")
        told = asyncio.create_task(self.stopper.asked.wait(), name="tampu-told")
        await asyncio.wait({beginning, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not beginning.done():
            beginning.cancel()
            await asyncio.wait({beginning})
            return False
        started = beginning.result()
        if self.parent is not None:
            self.parent.tell(started)
        self.show(started)
        return True

    async def _begin(self, worker: AppWorker) -> Started:
        async with await connect(self.app.url, credentials=self.app.credentials) as server:
            name, dialect = server.name, server.dialect
        await worker.start()
        return Started(
            version=__version__,
            tasks=sorted(self.app.tasks),
            queues=dict(worker.queues),
            server=name,
            dialect=str(dialect),
            can=newer_parts(dialect),
            grace_s=self._grace_s,
        )

    @asynccontextmanager
    async def _watched(self, worker: AppWorker) -> AsyncIterator[None]:
        watchers = [asyncio.create_task(self._keep_beating(worker), name="tampu-beats")]
        if self.orders.burst:
            watchers.append(asyncio.create_task(self._until_empty(worker), name="tampu-burst"))
        try:
            yield
        finally:
            for each in watchers:
                each.cancel()
            await asyncio.wait(watchers)

    async def _keep_beating(self, worker: AppWorker) -> None:
        """Every second: tell how it is, and look how large it has become."""
        most = self.orders.recycling.rss_bytes
        while True:
            pulse = worker.health
            if self.parent is not None and pulse is not None:
                self.parent.tell(Beat(pulse.running, pulse.heartbeat_age_s))
            if most is not None and resident_bytes() > most:
                self.stopper.ask(Reason.RECYCLED)
            await asyncio.sleep(EVERY_S)

    async def _until_empty(self, worker: AppWorker) -> None:
        lanes = Lanes(self.app.url, credentials=self.app.credentials)
        lanes.open()
        try:
            while await self._left(lanes, list(worker.queues)):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_LOOK_AGAIN_S)
            self.stopper.ask(Reason.EMPTY)
        finally:
            await lanes.close()

    async def _left(self, lanes: Lanes, queues: list[str]) -> int:
        """How much there is to do; if the server does not say, something."""
        try:
            every = [QueueKeys(name) for name in queues]
            return sum([await left(await lanes.to(keys.stream), keys) for keys in every])
        except ServerError:
            return 1

    async def _stop(self, worker: AppWorker) -> None:
        stopping = asyncio.create_task(worker.stop(), name="tampu-stop")
        ended = asyncio.Event()
        stopping.add_done_callback(lambda _: ended.set())
        await first_of(ended, self.stopper.hurried)
        if not ended.is_set():
            logger.warning("told again: running jobs go back to their queues")
            await worker.stop(0)
        await stopping
        logger.info("ended")

    def _orphaned(self) -> None:
        logger.error("the process above is gone")
        self.stopper.ask(Reason.TOLD)

    def _say_why(self) -> None:
        reason = self.stopper.reason or Reason.TOLD
        logger.info("ending", extra={"reason": reason.value, "grace_s": self._grace_s})
        if self.parent is not None:
            self.parent.tell(Leaving(reason))

    def _health(self, worker: AppWorker) -> Health:
        pulse = worker.health
        return Health(
            live=True,  # who answers is
            started=pulse is not None,
            stopping=self.stopper.asked.is_set(),
            running=0 if pulse is None else pulse.running,
            processes=1,
            server_seen_s_ago=None if pulse is None else pulse.heartbeat_age_s,
        )


def newer_parts(dialect: Dialect) -> list[str]:
    """What a server knows beyond the level that every one has."""
    known = {
        "script flags": dialect.script_flags,
        "XACKDEL": dialect.ack_and_delete,
        "WAITAOF": dialect.wait_for_fsync,
        "XREADGROUP CLAIM": dialect.read_and_claim,
        "XADD IDMP": dialect.add_once,
    }
    return [name for name, there in known.items() if there]
