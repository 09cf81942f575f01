"""The workers of all queues: what each runs now, how its process is doing, and draining it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tampu.admin.history import processes_of
from tampu.admin.workers import WorkerState
from tampu.dashboard.access import Action
from tampu.dashboard.filters import job_link
from tampu.dashboard.page import (
    Answer,
    Nav,
    Operation,
    Page,
    RequestRefused,
    View,
    not_found,
)
from tampu.server.scripts.control import request_drain
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.util.lifecycle import run_all
from tampu.wire.control import DrainRequest
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from datetime import datetime

    from tampu.admin.workers import WorkerInfo
    from tampu.metrics.history import ProcessInfo, RunningJob

_FRESH_S: Final = 0.9
_LATE_MS: Final = 250.0  # an event loop that lags by more than this is blocked by something
_SHOWN_RUNNING: Final = 50


@dataclass(slots=True)
class WorkerRow:
    """A worker on all of its queues that the visitor may see."""

    id: str
    state: WorkerState
    queues: list[str] = field(default_factory=list)
    active: int = 0
    slots: int = 0
    running: list[tuple[str, RunningJob]] = field(default_factory=list)  # with their queues
    host: str = ""
    pid: int | None = None
    started_at: datetime | None = None
    process: ProcessInfo | None = None

    @property
    def lags(self) -> bool:
        """Whether its event loop is blocked now and then."""
        return self.process is not None and self.process.lag_ms > _LATE_MS

    @property
    def shown(self) -> Sequence[tuple[str, str, RunningJob]]:
        """What it runs, the oldest first, with links."""
        jobs = sorted(self.running, key=lambda each: each[1].started_at)[:_SHOWN_RUNNING]
        return [(queue, job_link(queue, job.id), job) for queue, job in jobs]

    def add(self, queue: str, info: WorkerInfo, process: ProcessInfo | None) -> None:
        """Take in what one of its queues says."""
        self.queues.append(queue)
        self.active += info.active
        self.slots += info.concurrency or 0
        if info.state is WorkerState.ALIVE:
            self.state = info.state
        self.host = info.host or self.host
        self.pid = info.pid or self.pid
        self.started_at = info.started_at or self.started_at
        if process is not None:
            self.running += [(queue, job) for job in process.running]
            if self.process is None or process.at > self.process.at:
                self.process = process


async def read_workers(view: View, names: Sequence[str]) -> list[WorkerRow]:
    """The workers of some queues: those that are alive first."""
    rows: dict[str, WorkerRow] = {}
    summaries = await view.source.summaries(names)
    found = await run_all(_processes(view, QueueKeys(name)) for name in names)
    for summary, processes in zip(summaries, found, strict=True):
        for info in summary.workers:
            row = rows.setdefault(info.id, WorkerRow(info.id, info.state))
            row.add(summary.queue, info, processes.get(info.id))
    return sorted(rows.values(), key=lambda row: (row.state is WorkerState.GONE, row.id))


async def _processes(view: View, keys: QueueKeys) -> dict[str, ProcessInfo]:
    async def read() -> dict[str, ProcessInfo]:
        lane = await view.source.lane(keys)
        found = await processes_of(lane, keys, view.source.group.encode())
        return {each.worker: each for each in found}

    return await view.source.cache(("processes", keys.name), _FRESH_S, read)


async def load(view: View) -> Mapping[str, object]:
    """All workers of the queues that the visitor may see."""
    names = await view.queues()
    if view.params.get("queue"):
        names = [(await view.queue("queue")).name]
    rows = await read_workers(view, names)
    elsewhere = await _on_hidden_queues(view)
    alive = [row for row in rows if row.state is not WorkerState.GONE]
    return {
        "rows": [(row, row.id not in elsewhere and _may_drain(view, row)) for row in rows],
        "alive": len(alive),
        "active": sum(row.active for row in alive),
        "slots": sum(row.slots for row in alive),
        "memory": sum(row.process.rss_bytes for row in alive if row.process is not None),
        "lag_ms": max((row.process.lag_ms for row in alive if row.process), default=None),
        "now": instant(await server_time_ms(await view.source.lane(b"tampu"))),
        "State": WorkerState,
    }


def _may_drain(view: View, row: WorkerRow) -> bool:
    """A worker stops as a whole, so every queue of it must allow that."""
    is_alive = row.state is WorkerState.ALIVE
    return is_alive and all(view.may(Action.DRAIN, queue) for queue in row.queues)


async def _on_hidden_queues(view: View) -> set[str]:
    """The workers that also work for queues that the visitor does not see."""
    names = [name for name in await view.source.queue_names() if not view.access.sees(name)]
    return {row.id for row in await read_workers(view, names)} if names else set()


async def drain(view: View) -> Answer:
    """Ask a worker to finish what it runs, and to stop."""
    keys = await view.queue("queue")
    view.demand(Action.DRAIN, keys.name)
    wanted = view.params.get("worker", "")
    rows = await read_workers(view, await view.queues())
    row = next((each for each in rows if each.id == wanted and keys.name in each.queues), None)
    if row is None or row.state is not WorkerState.ALIVE:
        raise not_found("There is no such worker, or it has stopped.")
    if not _may_drain(view, row) or row.id in await _on_hidden_queues(view):
        raise RequestRefused(403, "This worker works for queues that you may not drain.")
    await request_drain(await view.source.lane(keys), keys, DrainRequest(row.id))
    await view.note(Action.DRAIN, keys.name, f"worker {row.id}")
    return Answer(f"{row.id} was asked to stop. Running jobs may finish first.", "workers")


PAGES = (
    Page(
        path="workers",
        template="workers.html",
        load=load,
        nav=Nav("Workers", 50, "w"),
        live=("tiles", "rows"),
    ),
)
OPERATIONS = (Operation(path="drain-worker", run=drain),)
