"""What workers do besides running jobs, alone: promoting, firing schedules, and more."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final
from uuid import uuid4

from tampu.admin.queues import queue_names
from tampu.consumer.alerts import open_alerts
from tampu.consumer.history import GaugeService
from tampu.consumer.options import WorkerSettings
from tampu.consumer.queue_config import QueueConfig, new_consumer
from tampu.errors import DecodeError
from tampu.events import EVENTS_KEPT
from tampu.metrics.facts import SafeSink, check_sink
from tampu.schedules.firing import FiringService
from tampu.server.connect import check_target, connect
from tampu.server.lane import Lane
from tampu.server.lanes import QueueLanes
from tampu.server.listening import SharedParts, StreamTarget, Wakeups
from tampu.server.scripts.control import read_control
from tampu.server.service import Service
from tampu.server.streams import last_id
from tampu.services.leader import LeaderContext
from tampu.services.promoter import PromotionService
from tampu.services.reaper import Fleet
from tampu.services.relay import RelayService
from tampu.util.lifecycle import Lifetime, Runnable, run_all
from tampu.util.options import check_flag
from tampu.wire.control import FlowsNotice, decode_control
from tampu.wire.holders import HolderKind, new_holder
from tampu.wire.keys import QueueKeys
from tampu.wire.names import check_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tampu.metrics.facts import MetricsSink
    from tampu.server.client import CredentialCallback
    from tampu.server.connect import Target
    from tampu.server.streams import RawEntry
    from tampu.services.leader import LeaderService

logger = logging.getLogger(__name__)
FIND_EVERY_S: float = 5.0
_SEARCH_SHARE: Final = 20  # looking for queues takes at most so small a part of the time
_FLEET: Final = 16  # as one of so many, it tries about every two seconds to lead
_DEFAULTS: Final = WorkerSettings()


class StandaloneService(Runnable):
    """A service that runs without a worker. It works while it leads.

    One leads among all that offer the service on a queue, workers included.
    """

    kind: ClassVar[HolderKind]
    service: ClassVar[type[LeaderService]]

    def __init__(
        self,
        queue: str,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        events: bool = True,
        metrics: MetricsSink | None = None,
        name: str | None = None,
    ) -> None:
        check_target(url, credentials)
        check_flag("events", events)
        check_sink("metrics", metrics)
        self._keys = QueueKeys(queue)
        self._url, self._credentials = url, credentials
        self._events_max_len = EVENTS_KEPT if events else 0
        self._sink = SafeSink(metrics)
        self._holder = new_holder(
            self.kind, uuid4(), name=None if name is None else check_name("name", name)
        )
        self._life = Lifetime(self.service.name, self._open, lambda stack, _: stack.aclose())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._keys.name!r}>"

    @property
    def id(self) -> str:
        """The id under which it leads."""
        return self._holder.text

    async def stop(self) -> None:
        """Give up the lead and disconnect. May be called twice."""
        await self._life.stop()

    async def _open(self) -> AsyncExitStack:
        async with AsyncExitStack() as stack:
            server = await connect(self._url, credentials=self._credentials)
            await stack.enter_async_context(server)
            lane = await stack.enter_async_context(await Lane.open(server, self._keys.stream))
            service = self.service(
                LeaderContext(
                    lane=lane,
                    keys=self._keys,
                    holder=self._holder,
                    events_max_len=self._events_max_len,
                    sink=self._sink,
                    wakeups=Wakeups(server),
                    fleet=Fleet(has_peers=True),  # it does not look at the consumers
                )
            )
            service.start()
            stack.push_async_callback(service.stop)
            return stack.pop_all()


class Promoter(StandaloneService):
    """Moves the delayed jobs of one queue to the stream when they are due; runs no job.

    For queues whose workers have `promote=False`. `await promoter.run()` works until `stop()`;
    `async with promoter:` works inside the block. A promoter can be started only once.
    """

    kind = HolderKind.PROMOTER
    service = PromotionService


class ScheduleFirer(StandaloneService):
    """Fires the schedules of one queue when they are due; runs no job.

    For queues whose workers have `schedule=False`. `await firer.run()` works until `stop()`;
    `async with firer:` works inside the block. It can be started only once.
    """

    kind = HolderKind.SCHEDULER
    service = FiringService


# --- all of it, for many queues -------------------------------------------------------------------


class QueueTime(StreamTarget):
    """The services of one queue. Each works while it leads; workers offer the same."""

    def __init__(
        self, lane: Lane, keys: QueueKeys, parts: SharedParts, *, own: WorkerSettings
    ) -> None:
        self.after = b"0-0"
        self._lane, self._keys, self._streams = lane, keys, parts.streams
        self._lanes = QueueLanes(lane, keys, shared=parts.connections)
        context = LeaderContext(
            lane=lane,
            keys=keys,
            holder=new_holder(HolderKind.PROMOTER, uuid4(), name=own.name),
            events_max_len=own.events_max_len if own.events else 0,
            sink=SafeSink(own.metrics),
            wakeups=parts.wakeups,
            fleet=Fleet(size=_FLEET),
            history=own.history,
        )
        fires = new_holder(HolderKind.SCHEDULER, uuid4(), name=own.name)
        self._promoter = PromotionService(context)
        self._firer = FiringService(replace(context, holder=fires))
        self._relay = RelayService(context, self._lanes)
        self._gauges = GaugeService(lane, keys, own.group.encode(), leads=self._leads)
        self._records = own.history

    @property
    def silent_s(self) -> float:
        """How long ago the server last answered."""
        return max(self._promoter.silent_s, self._firer.silent_s)

    def _leads(self) -> bool:
        return self._promoter.is_leading

    async def start(self) -> None:
        """Begin to work."""
        await self.bridge_gap(self._lane)
        self._streams.listen(self._keys.control, self)
        self._promoter.start()
        self._firer.start()
        if self._records:
            self._gauges.start()

    async def stop(self) -> None:
        """Give up the lead. May be called twice."""
        await self._streams.ignore(self._keys.control)
        services = (self._gauges, self._promoter, self._firer, self._relay)
        await run_all(each.stop() for each in services)
        await self._lanes.close()

    def take(self, entries: list[RawEntry]) -> None:
        """Bring what flows have for other queues, from when the queue has flows."""
        for _, fields in entries:
            try:
                message = decode_control(fields or ())
            except DecodeError:
                continue  # workers log it
            if isinstance(message, FlowsNotice):
                self._relay.start()

    async def bridge_gap(self, lane: Lane) -> None:
        """Read the whole state: messages may have been missed."""
        self.after = await last_id(lane, self._keys.control)
        if (await read_control(lane, self._keys)).has_flows:
            self._relay.start()


class QueueFinder(Service):
    """Finds queues that are new on the server, and serves them too."""

    name = "queue-finder"

    def __init__(self, running: _RunningTime) -> None:
        super().__init__(running.server.outage, "looking for queues")
        self._running = running

    async def tick(self) -> float:
        """Look. That scans all keys, so it is rare where there are many."""
        began = monotonic()
        for name in await queue_names(self._running.server):
            await self._running.serve(name)
        self._running.heard_at = monotonic()
        return max(FIND_EVERY_S, _SEARCH_SHARE * (self._running.heard_at - began))


class _RunningTime:
    """The queues that are served, and what they share."""

    def __init__(self, parts: SharedParts, own: WorkerSettings, names: list[str]) -> None:
        self.server = parts.server
        self.heard_at = 0.0  # when queues were found last
        self.rest = AsyncExitStack()  # what is closed in the end
        self._parts, self._own, self._names = parts, own, names
        self._queues: dict[str, QueueTime] = {}
        self._lanes = AsyncExitStack()

    @property
    def silent_s(self) -> float:
        """How long ago the server last answered, for the worst queue."""
        found = (each.silent_s for each in self._queues.values())
        return max(found, default=monotonic() - self.heard_at)

    async def serve(self, name: str) -> None:
        """Serve one more queue."""
        if name in self._queues:
            return
        keys = QueueKeys(name)
        async with AsyncExitStack() as stack:
            lane = await Lane.open(self.server, keys.stream, shared=self._parts.connections)
            stack.push_async_exit(lane)
            queue = QueueTime(lane, keys, self._parts, own=self._own)
            stack.push_async_callback(queue.stop)
            await queue.start()
            stack.pop_all()
        self._lanes.push_async_exit(lane)
        self._queues[name] = queue
        if name not in self._names:
            self._names.append(name)
            logger.info("found queue %s", name, extra={"queue": name})

    async def close_queues(self) -> None:
        """Give up the lead of all queues at once, and disconnect."""
        async with self._lanes:
            await run_all(each.stop() for each in self._queues.values())

    async def close(self, _: float) -> None:
        """Close everything, in the reverse order of opening."""
        await self.rest.aclose()


class TimeServer(Runnable):
    """Promotes delayed jobs and fires schedules of many queues; runs no job.

    For queues whose workers scale to zero. It also brings what flows have for other queues, watches
    for alerts, and records how many jobs wait. Beside workers and others of its kind it does
    nothing but wait: one leads for each queue. `queues` are their names; None means all queues of
    the server, and new ones within seconds. Of `settings`, those of workers, `events`,
    `events_max_len`, `group`, `history`, `metrics`, `name`, `alerts` and `notify` count.
    """

    def __init__(
        self,
        queues: Sequence[str] | None = None,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        settings: WorkerSettings = _DEFAULTS,
        home: str = "default",
    ) -> None:
        check_target(url, credentials)
        self.queues = [QueueKeys(each).name for each in dict.fromkeys(queues or ())]
        """The queues that are served. One that is found is appended."""
        self._finds = queues is None
        self._url, self._credentials, self._settings = url, credentials, settings
        self._home = QueueKeys(home)  # of alerts and notices that name no queue
        self._life = Lifetime("time-server", self._open, _RunningTime.close)

    def __repr__(self) -> str:
        return f"<TimeServer of {'all queues' if self._finds else ', '.join(self.queues)}>"

    @property
    def silent_s(self) -> float | None:
        """How long ago the server last answered, for the worst queue; None before the start."""
        running = self._life.resource
        return None if running is None else running.silent_s

    async def stop(self) -> None:
        """Give up the lead everywhere and disconnect. May be called twice."""
        await self._life.stop()

    async def _open(self) -> _RunningTime:
        async with AsyncExitStack() as stack:
            server = await connect(self._url, credentials=self._credentials)
            await stack.enter_async_context(server)
            parts, own = SharedParts(server), self._settings
            running = _RunningTime(parts, own, self.queues)
            stack.push_async_callback(running.close_queues)
            await run_all(running.serve(name) for name in self.queues)
            if own.alerts:
                watcher = QueueConfig(self._home, new_consumer(own.name), own, plans={})
                await open_alerts(watcher, parts, stack)
            if self._finds:
                finder = QueueFinder(running)
                stack.push_async_callback(finder.stop)
                finder.start()
            running.rest = stack.pop_all()
            return running
