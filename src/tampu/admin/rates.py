"""How fast jobs come and go, told from two looks at a queue."""

from collections import Counter
from datetime import datetime
from typing import Final

from msgspec import Struct

from tampu.admin.queues import Counts, count_jobs
from tampu.admin.workers import WorkerInfo, workers_of
from tampu.events import job_event
from tampu.server.inspection import added_to, newest_entries
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.wire.event import EventKind
from tampu.wire.keys import QueueKeys

EVENTS_A_LOOK: Final = 1000
_LEAST_SPAN_MS: Final = 1000


class QueueSample(Struct, frozen=True):
    """A queue at one moment. `added` is how many entries its stream was ever given, if known."""

    at_ms: int
    counts: Counts
    added: int | None


class Ends(Struct, frozen=True):
    """Attempts that ended, each second; from the workers' events."""

    done: float
    failed: float


class Rates(Struct, frozen=True):
    """What happens to a queue each second; None where nothing tells it."""

    added: float | None  # to the jobs that wait, by producers, promoters and schedules
    done: float | None
    failed: float | None  # attempts that raised


class QueueRates(Struct, frozen=True, kw_only=True):
    """A queue at one look: how much there is, what happens to it, and who works on it."""

    queue: str
    at: datetime  # by the server's clock
    counts: Counts
    rates: Rates
    workers: list[WorkerInfo]


class RateMeter:
    """Looks at one queue again and again; each look tells what happened since the one before."""

    def __init__(self, lane: Lane, keys: QueueKeys, group: str = "default") -> None:
        self._lane = lane
        self._keys = keys
        self._group = group.encode()
        self._before: QueueSample | None = None

    async def step(self) -> QueueRates:
        """One look; the first tells of the last second, as far as events do."""
        lane, keys = self._lane, self._keys
        now = await sample_queue(lane, keys, self._group)
        before, self._before = self._before or now, now
        since_ms = min(before.at_ms, now.at_ms - _LEAST_SPAN_MS)
        ends = await ends_since(lane, keys, since_ms, now_ms=now.at_ms)
        return QueueRates(
            queue=keys.name,
            at=instant(now.at_ms),
            counts=now.counts,
            rates=rates(before, now, ends),
            workers=await workers_of(lane, keys, self._group),
        )


async def sample_queue(lane: Lane, keys: QueueKeys, group: bytes) -> QueueSample:
    """How much there is now."""
    at_ms = await server_time_ms(lane)
    counts = await count_jobs(lane, keys, group)
    return QueueSample(at_ms, counts, await added_to(lane, keys.stream))


async def ends_since(lane: Lane, keys: QueueKeys, since_ms: int, *, now_ms: int) -> Ends | None:
    """How many attempts ended each second since then; None if no worker writes events.

    Of many events the newest thousand are taken, and the time that they span.
    """
    entries = await newest_entries(lane, keys.events, down_to=b"%d" % since_ms, count=EVENTS_A_LOOK)
    if not entries and not await newest_entries(lane, keys.events, count=1):
        return None
    told = Counter(job_event(entry_id, flat).kind for entry_id, flat in entries)
    first_ms = since_ms
    if len(entries) == EVENTS_A_LOOK:
        first_ms = int(entries[-1][0].partition(b"-")[0])
    span_s = max(1, now_ms - first_ms) / 1000
    return Ends(told[EventKind.COMPLETED] / span_s, told[EventKind.FAILED] / span_s)


def rates(before: QueueSample, now: QueueSample, ends: Ends | None) -> Rates:
    """What happened each second between two looks.

    A server before 7.0 does not count what was added: then it is what left and what is more now.
    Without events every job that left counts as done.
    """
    if before is now:
        return Rates(None, None, None) if ends is None else Rates(None, ends.done, ends.failed)
    span_s = max(1, now.at_ms - before.at_ms) / 1000
    grown = (_held(now) - _held(before)) / span_s
    if before.added is not None and now.added is not None:
        added = max(0.0, (now.added - before.added) / span_s)
        if ends is None:
            return Rates(added, max(0.0, added - grown), None)
        return Rates(added, ends.done, ends.failed)
    if ends is None:
        return Rates(None, None, None)
    return Rates(max(0.0, grown + ends.done + ends.failed), ends.done, ends.failed)


def _held(at: QueueSample) -> int:
    return at.counts.waiting + at.counts.active
