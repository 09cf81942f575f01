"""Whether an app can work: its server answers, its queues have workers, nothing waits for long."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tampu.admin.queues import QueueSummary
from tampu.admin.workers import count_alive
from tampu.errors import ServerError, duration_text
from tampu.util.lifecycle import run_all


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    """A queue at one moment. A dataclass, which every framework turns into JSON."""

    name: str
    workers: int  # alive
    paused: bool
    waiting: int
    active: int
    delayed: int
    dead: int
    oldest_waiting_s: float | None  # how long the oldest waiting job has waited


@dataclass(frozen=True, slots=True, kw_only=True)
class AppHealth:
    """Whether the server of an app answers, and the state of its queues."""

    ok: bool  # the server answers: jobs can be added
    problem: str | None  # why not
    version: str | None  # of the server
    queues: tuple[QueueHealth, ...]  # of the app's tasks; none if the server does not answer

    @property
    def without_workers(self) -> list[str]:
        """The queues that no worker serves."""
        return [queue.name for queue in self.queues if not queue.workers]


async def read_app_health(
    read_version: Callable[[], Awaitable[str]],
    summaries: Sequence[Callable[[], Awaitable[QueueSummary]]],
    *,
    limit_s: float,
) -> AppHealth:
    """The health of an app within a time limit. A server that is away raises nothing."""
    try:
        async with asyncio.timeout(limit_s):
            version = await read_version()
            found = await run_all(_read_queue(read) for read in summaries)
    except ServerError as error:
        return _unwell(str(error))
    except TimeoutError:
        return _unwell(f"The server did not answer within {duration_text(limit_s)}.")
    return AppHealth(ok=True, problem=None, version=version, queues=tuple(found))


def _unwell(problem: str) -> AppHealth:
    return AppHealth(ok=False, problem=problem, version=None, queues=())


async def _read_queue(read: Callable[[], Awaitable[QueueSummary]]) -> QueueHealth:
    summary = await read()
    counts, oldest = summary.counts, summary.oldest_waiting_at
    return QueueHealth(
        name=summary.queue,
        workers=count_alive(summary.workers),
        paused=summary.paused,
        waiting=counts.waiting,
        active=counts.active,
        delayed=counts.delayed,
        dead=counts.dead,
        oldest_waiting_s=None if oldest is None else (summary.at - oldest).total_seconds(),
    )
