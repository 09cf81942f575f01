"""Delayed jobs: taken back, put off, run at once."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from datetime import datetime
from typing import Final

from tampu.admin.dead import Line
from tampu.clock import now_ms
from tampu.duration import Duration
from tampu.errors import OptionError
from tampu.events import EventWriter
from tampu.request import Rules, due_of, kept_for_s
from tampu.server.delays import Delayed, Move, cancel, reschedule, run_now
from tampu.server.lane import Lane
from tampu.server.streams import scan_members, score_of, values_of
from tampu.wire.delayed import deadline_of, id_of_member, postpone
from tampu.wire.event import EventKind, encode_event
from tampu.wire.fields import show_text
from tampu.wire.keys import QueueKeys, check_job_id

JOBS_A_CALL: Final = 500
_PAGE: Final = 1000


class DelayedJobs:
    """The delayed jobs of a queue, each by its id.

    A job that a producer of ours delayed has an index by its id. One without, such as a retry that
    waits or what a peer delayed without an id, is looked for among all that are delayed.
    """

    def __init__(
        self, keys: QueueKeys, reach: Callable[[], Awaitable[Line]], *, rules: Rules
    ) -> None:
        self._keys = keys
        self._reach = reach
        self._rules = rules

    async def cancel_many(self, job_ids: Iterable[str]) -> list[bool]:
        """Take jobs back; of each id, in order, whether its job will not run."""
        if isinstance(job_ids, str):
            raise OptionError("job_ids", job_ids, "expected a list of ids")
        ids = [check_job_id(job_id) for job_id in job_ids]
        if not ids:
            return []
        line = await self._reach()
        cancelled = await self._cancel(line, [Delayed(job_id) for job_id in ids])
        missed = {job_id for job_id, done in zip(ids, cancelled, strict=True) if not done}
        if missed:
            found = await self._look_for(line.lane, missed)
            jobs = [Delayed(job_id, member) for job_id, member in found.items()]
            late = {
                job.job_id
                for job, done in zip(jobs, await self._cancel(line, jobs), strict=True)
                if done
            }
            for place, job_id in enumerate(ids):
                if job_id in late and not cancelled[place]:
                    cancelled[place] = True
                    late.discard(job_id)  # an id that was given twice is taken back once
        return cancelled

    async def reschedule(self, job_id: str, *, delay: Duration | None, at: datetime | None) -> bool:
        """Have a job be due at another time; whether it still was delayed."""
        check_job_id(job_id)
        if delay is None and at is None:
            raise OptionError("delay", delay, "must be given, or at")
        now = now_ms()
        due, delay_ms = due_of(delay, at, rules=self._rules, now_ms=now)
        lane = (await self._reach()).lane

        async def move(member: bytes) -> bool:
            moved = await self._moved(lane, member, now + delay_ms)
            kept_s = kept_for_s(delay_ms, self._rules.unique_ms)
            return await reschedule(lane, self._keys, Move(job_id, member, moved, due, kept_s))

        (indexed,) = await values_of(lane, [self._keys.index(job_id)])
        if indexed is not None and await move(indexed):
            return True
        found = await self._look_for(lane, {job_id})
        return job_id in found and await move(found[job_id])

    async def run_now(self, job_id: str) -> bool:
        """Have a job run as soon as a worker is free; whether it still was delayed."""
        check_job_id(job_id)
        line = await self._reach()
        kept = 0 if line.events is None else line.events.max_len
        if await run_now(line.lane, self._keys, Delayed(job_id), events_max_len=kept):
            return True
        found = await self._look_for(line.lane, {job_id})
        return job_id in found and await run_now(
            line.lane, self._keys, Delayed(job_id, found[job_id]), events_max_len=kept
        )

    async def _cancel(self, line: Line, jobs: list[Delayed]) -> list[bool]:
        names: list[bytes | None] = []
        for start in range(0, len(jobs), JOBS_A_CALL):
            part = jobs[start : start + JOBS_A_CALL]
            answer = await cancel(line.lane, self._keys, part)
            if line.events is not None:
                _tell(line.events, part, answer)
            names += answer
        return [name is not None for name in names]

    async def _look_for(self, lane: Lane, wanted: Collection[str]) -> dict[str, bytes]:
        """The members of jobs among all that are delayed, by their ids; in one pass for all."""
        # The server can look for one id; for several it hands over all, and we look.
        holding = next(iter(wanted)).encode() if len(wanted) == 1 else b""
        found: dict[str, bytes] = {}
        cursor = b"0"
        while True:
            cursor, members = await scan_members(
                lane, self._keys.delayed, cursor, holding=holding, count=_PAGE
            )
            for member in members:
                job_id = id_of_member(member)
                if job_id is not None and job_id in wanted:
                    found[job_id] = member
            if cursor == b"0" or len(found) == len(wanted):
                return found

    async def _moved(self, lane: Lane, member: bytes, due_ms: int) -> bytes:
        """The member of a job that is due then; what counts from its due time moves along."""
        if deadline_of(member) is None:
            return member
        was_ms = await score_of(lane, self._keys.delayed, member)
        return member if was_ms is None else postpone(member, due_ms - round(was_ms))


def _tell(events: EventWriter, jobs: list[Delayed], names: list[bytes | None]) -> None:
    now = now_ms()
    for job, name in zip(jobs, names, strict=True):
        if name is not None:
            events.tell(
                encode_event(
                    EventKind.CANCELLED, job_id=job.job_id, ts_ms=now, name=show_text(name)
                )
            )
