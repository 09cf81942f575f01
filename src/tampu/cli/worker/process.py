"""One process that runs the tasks of an app, from its start to its end."""

import asyncio
import logging
import os
import resource
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tampu._version import __version__
from tampu.admin.metrics import MetricsReader
from tampu.app import App
from tampu.app_worker import AppWorker
from tampu.cli.signals import ExitReason, StopRequest, wait_for_any
from tampu.cli.worker.health import EVERY_S, Answers, HealthReport, show_health
from tampu.cli.worker.messages import (
    ProcessHeartbeat,
    ProcessStarted,
    ProcessStopping,
    SupervisorPipe,
)
from tampu.cli.worker.options import HealthOptions, WorkerCommandOptions
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.errors import ServerError
from tampu.metrics.facts import Fact, JobEnded, MetricsSink
from tampu.server.connect import connect
from tampu.server.dialect import Dialect
from tampu.server.lanes import Lanes
from tampu.server.scripts.delayed import count_unfinished
from tampu.util.clock import to_s
from tampu.wire.keys import QueueKeys

logger = logging.getLogger("tampu.worker")

_POLL_S: Final = 0.1
_STATM: Final = Path("/proc/self/statm")


class RunCounter:
    """A metrics sink that counts attempts, and passes everything on to the app's own sink."""

    def __init__(
        self, sink: MetricsSink | None, *, limit: int | None, on_limit: Callable[[], None]
    ) -> None:
        self._sink, self._limit, self._on_limit = sink, limit, on_limit
        self._runs = 0

    def record(self, facts: Sequence[Fact]) -> None:
        """Count the attempts that ended; calls `on_limit` when there were enough."""
        self._runs += sum(isinstance(fact, JobEnded) for fact in facts)
        if self._limit is not None and self._runs >= self._limit:
            self._on_limit()
        if self._sink is not None:
            self._sink.record(facts)


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """Runs the tasks of an app in this process."""

    app: App
    options: WorkerCommandOptions
    supervisor: SupervisorPipe | None
    show: Callable[[ProcessStarted], None]  # to the user, once it runs
    stop_request: StopRequest = field(default_factory=StopRequest)

    async def run(self) -> None:
        """Run until there is a reason to stop; running jobs then get the grace period."""
        with self.stop_request.listen() as stop:
            if self.supervisor is not None:
                self.supervisor.when_dead(self._stop_orphaned)
            worker = self._new_worker()
            async with self._new_reader(worker) as metrics:
                answers = Answers(lambda: self._health(worker), metrics.page)
                async with show_health(self._health_options, answers):
                    if await self._start(worker):
                        async with self._watch(worker, metrics):
                            await stop.requested.wait()
                            self._report_stop()
                            await self._stop(worker)

    @property
    def _health_options(self) -> HealthOptions:
        """A supervisor shows the health of all its processes."""
        return self.options.health if self.supervisor is None else HealthOptions()

    @property
    def _settings(self) -> WorkerSettings:
        return WorkerSettings(**self.app.worker)

    @property
    def _grace_s(self) -> float:
        grace = self.options.grace
        return to_s("grace", self._settings.grace if grace is None else grace)

    def _new_worker(self) -> AppWorker:
        settings, options = self._settings, self.options
        queues = {name: slots or settings.concurrency for name, slots in options.queues.items()}
        counter = RunCounter(
            settings.metrics,
            limit=options.recycling.jobs,
            on_limit=lambda: self.stop_request.stop(ExitReason.RECYCLED),
        )
        own = WorkerOptions(metrics=counter, grace=self._grace_s)
        if options.store_results is not None:
            own["store_results"] = options.store_results
        worker = AppWorker(self.app, queues or None, **own)
        for name in queues.keys() - set(self.app.queues):
            self._warn_unused(name)
        return worker

    def _warn_unused(self, queue: str) -> None:
        target, used = self.options.target, ", ".join(self.app.queues)
        facts = {"app": target, "queue": queue, "used": self.app.queues}
        text = "no task of %s uses queue %r; its tasks use %s"
        logger.warning(text, target, queue, used, extra=facts)

    def _new_reader(self, worker: AppWorker) -> MetricsReader:
        """Reads the metrics of all queues of the app, so that one process tells of all others."""
        queues = {*self.app.queues, *worker.queues}
        credentials, group = self.app.credentials, self._settings.group
        return MetricsReader(self.app.url, sorted(queues), credentials=credentials, group=group)

    # --- starting -------------------------------------------------------------------------------

    async def _start(self, worker: AppWorker) -> bool:
        """Start the worker; False if it has to stop before it has started."""
        starting = asyncio.create_task(self._start_worker(worker), name="tampu-start")
        stopping = asyncio.create_task(self.stop_request.requested.wait(), name="tampu-stopping")
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return False
        started = starting.result()
        if self.supervisor is not None:
            self.supervisor.send(started)
        self.show(started)
        return True

    async def _start_worker(self, worker: AppWorker) -> ProcessStarted:
        async with await connect(self.app.url, credentials=self.app.credentials) as server:
            name, dialect = server.name, server.dialect
        await worker.start()
        return ProcessStarted(
            version=__version__,
            tasks=sorted(self.app.tasks),
            queues=dict(worker.queues),
            server=name,
            dialect=str(dialect),
            can=optional_features(dialect),
            grace_s=self._grace_s,
        )

    # --- watching -------------------------------------------------------------------------------

    @asynccontextmanager
    async def _watch(self, worker: AppWorker, metrics: MetricsReader) -> AsyncIterator[None]:
        watchers = [asyncio.create_task(self._keep_checking(worker), name="tampu-heartbeats")]
        if self.supervisor is not None:
            telling = self._tell_metrics(self.supervisor, metrics)
            watchers.append(asyncio.create_task(telling, name="tampu-metrics"))
        if self.options.burst:
            watchers.append(asyncio.create_task(self._stop_when_empty(worker), name="tampu-burst"))
        try:
            yield
        finally:
            for each in watchers:
                each.cancel()
            await asyncio.wait(watchers)

    async def _keep_checking(self, worker: AppWorker) -> None:
        """Every second: send a heartbeat, and check whether there is a reason to stop."""
        limit = self.options.recycling.rss_bytes
        while True:
            health = worker.health
            if self.supervisor is not None and health is not None:
                self.supervisor.send(ProcessHeartbeat(health.running, health.heartbeat_age_s))
            if limit is not None and resident_bytes() > limit:
                self.stop_request.stop(ExitReason.RECYCLED)
            if worker.is_stopping:
                self.stop_request.stop(ExitReason.DRAINED)
            await asyncio.sleep(EVERY_S)

    @staticmethod
    async def _tell_metrics(supervisor: SupervisorPipe, metrics: MetricsReader) -> None:
        """Tell the supervisor the metrics when it asks: it knows no server."""
        asked = asyncio.Event()
        supervisor.when_asked(asked.set)
        while True:
            await asked.wait()
            asked.clear()
            supervisor.send(await metrics.page())

    async def _stop_when_empty(self, worker: AppWorker) -> None:
        lanes = Lanes(self.app.url, credentials=self.app.credentials)
        lanes.open()
        try:
            while await self._jobs_left(lanes, list(worker.queues)):  # noqa: ASYNC110 - no event
                await asyncio.sleep(_POLL_S)
            self.stop_request.stop(ExitReason.EMPTY)
        finally:
            await lanes.close()

    async def _jobs_left(self, lanes: Lanes, queues: list[str]) -> int:
        """How many jobs there are to run; at least 1 if the server does not answer."""
        try:
            every = [QueueKeys(name) for name in queues]
            return sum(
                [await count_unfinished(await lanes.to(keys.stream), keys) for keys in every]
            )
        except ServerError:
            return 1

    def _health(self, worker: AppWorker) -> HealthReport:
        health = worker.health
        return HealthReport(
            live=True,  # it is: this code runs
            started=health is not None,
            stopping=self.stop_request.requested.is_set(),
            running=0 if health is None else health.running,
            processes=1,
            server_seen_s_ago=None if health is None else health.heartbeat_age_s,
        )

    # --- stopping -------------------------------------------------------------------------------

    def _stop_orphaned(self) -> None:
        logger.error("the supervisor process died")
        self.stop_request.stop()

    def _report_stop(self) -> None:
        reason = self.stop_request.reason or ExitReason.TOLD
        facts = {"reason": reason.name.lower(), "grace_s": self._grace_s}
        text = "stopping (%s); running jobs get %g s to finish"
        logger.info(text, reason.value, self._grace_s, extra=facts)
        if self.supervisor is not None:
            self.supervisor.send(ProcessStopping(reason))

    async def _stop(self, worker: AppWorker) -> None:
        stopping = asyncio.create_task(worker.stop(), name="tampu-stop")
        stopped = asyncio.Event()
        stopping.add_done_callback(lambda _: stopped.set())
        await wait_for_any(stopped, self.stop_request.forced)
        if not stopped.is_set():
            logger.warning("second signal: returning running jobs to their queues")
            await worker.stop(0)
        await stopping
        logger.info("stopped")


def optional_features(dialect: Dialect) -> list[str]:
    """What a server has beyond what every supported server has."""
    features = {
        "script flags": dialect.script_flags,
        "XACKDEL": dialect.ack_and_delete,
        "WAITAOF": dialect.wait_for_fsync,
        "XREADGROUP CLAIM": dialect.read_and_claim,
        "XADD IDMP": dialect.add_once,
    }
    return [name for name, has_it in features.items() if has_it]


def resident_bytes() -> int:
    """The memory of this process now; where the system does not tell, the most it ever had."""
    try:
        pages = int(_STATM.read_text("ascii").split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")
