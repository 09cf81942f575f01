"""Listing the jobs of a queue by state, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from tampu.admin.found import jobs_in_line, read_entry, read_member
from tampu.admin.jobs import dead_info, locate
from tampu.errors import OptionError
from tampu.job import JobState
from tampu.server.inspection import (
    delayed_from,
    entries_down_from,
    groups_of,
    holders_from,
    last_delivered,
)
from tampu.server.scripts.gate import pages_of_lines
from tampu.server.streams import entries_from, fields_of
from tampu.util.options import at_least
from tampu.wire.names import check_job_name

if TYPE_CHECKING:
    from tampu.job import JobInfo
    from tampu.producer.connection import QueueConnection
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

MAX_LISTED: Final = 10_000
_PAGE: Final = 500
LISTABLE: Final = (
    JobState.ACTIVE,
    JobState.WAITING,
    JobState.RETRYING,
    JobState.DELAYED,
    JobState.DEAD,
)


class JobListing:
    """The jobs of a queue in one state, or in all: iterate over it, once or several times.

    Jobs that change their state meanwhile may be missed. After an iteration, `searched` says how
    many jobs were looked at, and `searched_all` whether these were all.
    """

    def __init__(
        self,
        keys: QueueKeys,
        connect: Callable[[], Awaitable[QueueConnection]],
        *,
        state: JobState | str | None,
        name: str | None,
        newest_first: bool,
        most: int | None,
    ) -> None:
        self._keys = keys
        self._connect = connect
        self._states = LISTABLE if state is None else (_check_state(state),)
        self._name = None if name is None else check_job_name(name)
        self._newest_first = newest_first
        if most is not None:
            at_least("most", most, 1)
        self._most = most
        self.searched = 0
        self.searched_all = True

    def __repr__(self) -> str:
        states = ", ".join(state.value for state in self._states)
        return f"<JobListing of {self._keys.name!r}: {states}>"

    async def __aiter__(self) -> AsyncIterator[JobInfo]:
        self.searched, self.searched_all = 0, True
        lane = (await self._connect()).lane
        for state in self._states:
            async for info in self._jobs(lane, state):
                if self._most is not None and self.searched >= self._most:
                    self.searched_all = False
                    return
                self.searched += 1
                if info.state is state and self._name in {None, info.name}:
                    yield info

    def _jobs(self, lane: Lane, state: JobState) -> AsyncIterator[JobInfo]:
        match state:
            case JobState.WAITING:
                return self._waiting(lane)
            case JobState.ACTIVE:
                return self._active(lane)
            case JobState.DEAD:
                return self._dead(lane)
            case _:
                return self._list_delayed(lane)

    async def _waiting(self, lane: Lane) -> AsyncIterator[JobInfo]:
        last = last_delivered(await groups_of(lane, self._keys.stream))
        async for entry_id, fields in self._entries(lane, self._keys.stream, after=last):
            job = read_entry(entry_id, fields)
            if job is not None:
                yield job.info(JobState.WAITING)
        async with aclosing(pages_of_lines(lane, self._keys)) as pages:
            async for page in pages:
                for each in page:
                    async for job in jobs_in_line(lane, self._keys, each.line):
                        yield job.info(JobState.WAITING)

    async def _active(self, lane: Lane) -> AsyncIterator[JobInfo]:
        stream = self._keys.stream
        for group in await groups_of(lane, stream):
            start = b"-"
            while page := await holders_from(lane, stream, group.name, start=start, count=_PAGE):
                ids = [entry_id for entry_id, _ in page]
                for entry_id, fields in zip(ids, await fields_of(lane, stream, ids), strict=True):
                    job = None if fields is None else read_entry(entry_id, fields)
                    info = None if job is None else await locate(lane, self._keys, job)
                    if info is not None:
                        yield info
                start = b"(" + ids[-1]

    async def _dead(self, lane: Lane) -> AsyncIterator[JobInfo]:
        async for dead_id, fields in self._entries(lane, self._keys.dead):
            yield dead_info(dead_id, fields or [], read_entry(dead_id, fields))

    async def _list_delayed(self, lane: Lane) -> AsyncIterator[JobInfo]:
        place = 0
        while page := await delayed_from(
            lane, self._keys.delayed, place, count=_PAGE, latest_first=self._newest_first
        ):
            for member, due_ms in page:
                job = read_member(member, due_ms)
                if job is not None:
                    yield job.info(job.delayed_state)
            place += len(page)

    async def _entries(
        self, lane: Lane, stream: bytes, *, after: bytes = b"0-0"
    ) -> AsyncIterator[tuple[bytes, list[bytes] | None]]:
        """The entries of a stream after an id, oldest or newest first."""
        start = b"+" if self._newest_first else b"(" + after
        while True:
            if self._newest_first:
                page = await entries_down_from(
                    lane, stream, start=start, down_to=b"(" + after, count=_PAGE
                )
            else:
                page = await entries_from(lane, stream, start=start, count=_PAGE)
            for entry in page:
                yield entry
            if len(page) < _PAGE:
                return
            start = b"(" + page[-1][0]


def _check_state(given: JobState | str) -> JobState:
    try:
        state = JobState(given)
    except ValueError:
        state = None
    if state not in LISTABLE:
        known = ", ".join(each.value for each in LISTABLE)
        raise OptionError("state", given, f"expected one of {known}")
    return state
