"""How fast jobs are added and finished, computed from two samples of a queue."""

from collections import Counter
from datetime import datetime
from typing import Final

from msgspec import Struct

from tampu.admin.queues import Counts, count_jobs
from tampu.admin.workers import WorkerInfo, workers_of
from tampu.events import job_event
from tampu.server.inspection import entries_added, entries_down_from
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.wire.event import EventKind
from tampu.wire.keys import QueueKeys

EVENTS_PER_SAMPLE: Final = 1000
_LEAST_SPAN_MS: Final = 1000


class QueueSample(Struct, frozen=True):
    """A queue at one moment. `added` counts all entries ever added to its stream, if known."""

    at_ms: int
    counts: Counts
    added: int | None


class AttemptRates(Struct, frozen=True):
    """Attempts that ended per second, from the workers' events."""

    done: float
    failed: float


class Rates(Struct, frozen=True):
    """What happens to a queue per second; None if unknown."""

    added: float | None  # by producers, promoters and schedules
    done: float | None
    failed: float | None  # attempts that raised


class QueueRates(Struct, frozen=True, kw_only=True):
    """A queue at one moment: its counts, its rates and its workers."""

    queue: str
    at: datetime  # by the server's clock
    counts: Counts
    rates: Rates
    workers: list[WorkerInfo]


class RateMeter:
    """Samples one queue repeatedly and reports what happened since the previous sample."""

    def __init__(self, lane: Lane, keys: QueueKeys, group: str = "default") -> None:
        self._lane = lane
        self._keys = keys
        self._group = group.encode()
        self._before: QueueSample | None = None

    async def sample(self) -> QueueRates:
        """Take a sample. The first one covers the last second, as far as events tell."""
        lane, keys = self._lane, self._keys
        now = await sample_queue(lane, keys, self._group)
        before, self._before = self._before or now, now
        since_ms = min(before.at_ms, now.at_ms - _LEAST_SPAN_MS)
        ends = await attempt_rates(lane, keys, since_ms, now_ms=now.at_ms)
        return QueueRates(
            queue=keys.name,
            at=instant(now.at_ms),
            counts=now.counts,
            rates=compute_rates(before, now, ends),
            workers=await workers_of(lane, keys, self._group),
        )


async def sample_queue(lane: Lane, keys: QueueKeys, group: bytes) -> QueueSample:
    """Count the jobs of a queue now."""
    at_ms = await server_time_ms(lane)
    counts = await count_jobs(lane, keys, group)
    return QueueSample(at_ms, counts, await entries_added(lane, keys.stream))


async def attempt_rates(
    lane: Lane, keys: QueueKeys, since_ms: int, *, now_ms: int
) -> AttemptRates | None:
    """How many attempts ended per second since then; None if no worker writes events.

    If there are many events, the newest thousand count, over the time that they span.
    """
    entries = await entries_down_from(
        lane, keys.events, down_to=b"%d" % since_ms, count=EVENTS_PER_SAMPLE
    )
    if not entries and not await entries_down_from(lane, keys.events, count=1):
        return None
    kinds = Counter(job_event(entry_id, flat).kind for entry_id, flat in entries)
    first_ms = since_ms
    if len(entries) == EVENTS_PER_SAMPLE:
        first_ms = int(entries[-1][0].partition(b"-")[0])
    span_s = max(1, now_ms - first_ms) / 1000
    return AttemptRates(kinds[EventKind.COMPLETED] / span_s, kinds[EventKind.FAILED] / span_s)


def compute_rates(before: QueueSample, now: QueueSample, ends: AttemptRates | None) -> Rates:
    """The rates between two samples.

    A server before 7.0 does not count added entries: they are computed from the jobs that left and
    the growth of the queue. Without events, every job that left counts as done.
    """
    if before is now:
        return Rates(None, None, None) if ends is None else Rates(None, ends.done, ends.failed)
    span_s = max(1, now.at_ms - before.at_ms) / 1000
    grown = (_jobs_held(now) - _jobs_held(before)) / span_s
    if before.added is not None and now.added is not None:
        added = max(0.0, (now.added - before.added) / span_s)
        if ends is None:
            return Rates(added, max(0.0, added - grown), None)
        return Rates(added, ends.done, ends.failed)
    if ends is None:
        return Rates(None, None, None)
    return Rates(max(0.0, grown + ends.done + ends.failed), ends.done, ends.failed)


def _jobs_held(at: QueueSample) -> int:
    return at.counts.waiting + at.counts.active
