"""Following the streams of jobs: any number of them, with one blocking read for all."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tampu.errors import Closed, JobCancelled, JobFailed, NoStream, ServerError, StreamRestarted
from tampu.job import JobState
from tampu.server.listening import StreamTarget
from tampu.server.scripts.output import (
    SAY_EVERY_S,
    Followed,
    follow_outputs,
    leave_output,
    note_read,
)
from tampu.server.service import Service
from tampu.server.streams import entries_from
from tampu.util.clock import now_ms
from tampu.util.ids import new_id
from tampu.util.lifecycle import cancel_all, ignore_outcome
from tampu.util.pauses import Pauses
from tampu.wire.output import OutputCursor, Restarted
from tampu.wire.result import error_of_failure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
    from typing import Any

    from tampu.job import JobInfo
    from tampu.server.lane import Lane
    from tampu.server.listening import SharedParts
    from tampu.server.streams import RawEntry
    from tampu.wire.keys import QueueKeys
    from tampu.wire.output import Chunk, ChunkId

ENTRIES_A_PAGE: Final = 1_000
MOST_BUFFERED: Final = 2_000
"""Entries that wait for a slow reader. Beyond that it reads them again when it asks for them."""
_JOBS_A_CALL: Final = 500
FIRST_LOOK_S: Final = 0.25
LATER_LOOK_S: Final = 5.0
"""How long a reader has heard nothing before it asks about the job; later: after a chunk."""
_LONGEST_LOOK_S: Final = 60.0
_NOTHING_LEFT: Final = (
    "there is no such job, or it has ended and left none: its task does not yield, or it ended "
    "too long ago"
)


class OutputReader:
    """Follows the streams of a queue's jobs. Belongs to one event loop."""

    def __init__(
        self,
        parts: SharedParts,
        lane: Lane,
        keys: QueueKeys,
    ) -> None:
        self._lane = lane
        self._keys = keys
        self._streams = parts.streams
        self._followed: dict[str, _FollowedOutput] = {}
        self._presence = _Presence(lane, keys, self._followed)
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    async def follow(
        self,
        job_id: str,
        after: ChunkId,
        *,
        raises: bool,
        find: Callable[[str], Awaitable[JobInfo]],
    ) -> AsyncGenerator[Chunk[Any] | Restarted]:
        """The chunks of a job after one of them, those to come included, up to its end.

        With `raises`, another attempt raises `StreamRestarted`. A job that was buried or cancelled
        ends with the error that its result has. `find` tells what is known about a job: a reader
        that has heard nothing for long asks, because if a peer's worker ends the job, nobody ends
        its stream.
        """
        reader = _Reader(OutputCursor(job_id, after))
        cursor, look = reader.cursor, _Look(job_id, find)
        followed = self._enter(job_id, reader)
        try:
            await asyncio.shield(followed.opening)
            while not cursor.has_ended:
                for entry in await self._next(followed, reader, look):
                    for item in cursor.read(*entry):
                        if raises and isinstance(item, Restarted):
                            raise StreamRestarted(job_id, item.attempt)
                        yield item
                    if cursor.asks:
                        self._do(self._tell(job_id, cursor.last))
            if cursor.failure:
                raise error_of_failure(job_id, cursor.failure)
        finally:
            followed.readers.discard(reader)
            if not followed.readers:
                await self._leave(followed)

    async def close(self) -> None:
        """Follow nothing any more; whoever still waits gets `Closed`. May be called twice."""
        self._closed = True
        for each in list(self._followed.values()):
            each.end(Closed(self._lane.server.name))
            await self._leave(each)
        if self._background:
            await asyncio.wait(self._background, timeout=1.0)
        await cancel_all(self._background)
        await self._presence.stop()

    # --- one reader -----------------------------------------------------------------------------

    async def _next(
        self, followed: _FollowedOutput, reader: _Reader, look: _Look
    ) -> Sequence[RawEntry]:
        """The entries that follow, as soon as there are any."""
        while True:
            if reader.error is not None:
                raise reader.error
            if reader.is_behind:
                reader.has_dropped = False
                start = b"(" + reader.cursor.after
                page = await entries_from(
                    self._lane, followed.key, start=start, count=ENTRIES_A_PAGE
                )
                reader.is_behind = reader.has_dropped or len(page) == ENTRIES_A_PAGE
                if page:
                    look.reset()
                    return page
            elif reader.entries:
                look.reset()
                return reader.take()
            else:
                begun = reader.cursor.has_begun
                has_arrived = await look.wait(reader.arrived, has_begun=begun)
                if begun and not has_arrived:  # the worker may wait for what it was not told
                    self._do(self._tell(followed.job_id, reader.cursor.last))

    def _enter(self, job_id: str, reader: _Reader) -> _FollowedOutput:
        if self._closed:
            raise Closed(self._lane.server.name)
        followed = self._followed.get(job_id)
        if followed is None:
            followed = self._followed[job_id] = _FollowedOutput(job_id, self._keys.output(job_id))
            opening = asyncio.create_task(self._open(followed), name="tampu-follow-output")
            opening.add_done_callback(ignore_outcome)
            followed.opening = opening
            self._presence.start()
        followed.readers.add(reader)
        if reader.cursor.has_begun:  # whoever has read that far may have left before it said so
            self._do(self._tell(job_id, reader.cursor.last))
        return followed

    async def _open(self, followed: _FollowedOutput) -> None:
        (followed.after,) = await follow_outputs(self._lane, self._keys, [followed.presence])
        self._streams.listen(followed.key, followed)

    async def _leave(self, followed: _FollowedOutput) -> None:
        if self._followed.get(followed.job_id) is followed:
            del self._followed[followed.job_id]
            followed.opening.cancel()
            self._do(self._tell_left(followed.presence))
            await self._streams.ignore(followed.key)
        if not self._followed:
            await self._presence.stop()

    # --- what the server is told ----------------------------------------------------------------

    async def _tell(self, job_id: str, chunk: ChunkId) -> None:
        with suppress(ServerError):
            await note_read(self._lane, self._keys, job_id, chunk=chunk)

    async def _tell_left(self, presence: Followed) -> None:
        with suppress(ServerError):
            await leave_output(self._lane, self._keys, presence)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="tampu-output-tell")
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class _Reader:
    """What has arrived for one reader, and what it has not taken yet."""

    def __init__(self, cursor: OutputCursor) -> None:
        self.cursor = cursor
        self.entries: deque[RawEntry] = deque()
        self.arrived = asyncio.Event()
        self.is_behind = True  # the entries that follow are to be read from the stream
        self.has_dropped = False  # some that have arrived since a page was asked for
        self.error: Closed | None = None

    def put(self, entries: list[RawEntry]) -> None:
        """More has arrived."""
        self.entries.extend(entries)
        if len(self.entries) > MOST_BUFFERED:
            self.entries.clear()
            self.has_dropped = self.is_behind = True
        self.arrived.set()

    def take(self) -> list[RawEntry]:
        """Take all that has arrived."""
        self.arrived.clear()
        entries = list(self.entries)
        self.entries.clear()
        return entries


class _FollowedOutput(StreamTarget):
    """The stream of a job that somebody in this process follows."""

    opening: asyncio.Task[None]

    def __init__(self, job_id: str, key: bytes) -> None:
        self.job_id = job_id
        self.key = key
        self.presence = Followed(job_id, new_id(now_ms()))
        self.readers: set[_Reader] = set()

    def take(self, entries: list[RawEntry]) -> None:
        """Pass them on to all readers."""
        for each in self.readers:
            each.put(entries)

    async def bridge_gap(self, lane: Lane) -> None:
        """Nothing to do: the next read begins after the last entry, and ids show what is gone."""

    def end(self, error: Closed) -> None:
        """Let the readers end with an error."""
        for each in self.readers:
            each.error = error
            each.arrived.set()


class _Presence(Service):
    """Says from time to time which streams are followed, for as long as there are any."""

    name = "output-presence"

    def __init__(self, lane: Lane, keys: QueueKeys, followed: dict[str, _FollowedOutput]) -> None:
        super().__init__(lane.server.outage, f"following streams of queue {keys.name!r}")
        self._lane = lane
        self._keys = keys
        self._followed = followed

    async def tick(self) -> float:
        """Say it."""
        present = [each.presence for each in self._followed.values()]
        for start in range(0, len(present), _JOBS_A_CALL):
            await follow_outputs(self._lane, self._keys, present[start : start + _JOBS_A_CALL])
        return SAY_EVERY_S


class _Look:
    """Asks about a job whose stream has been silent for long, and ends it if the job is over.

    The last entry may still be on its way, so a job is over if two answers say so.
    """

    def __init__(self, job_id: str, find: Callable[[str], Awaitable[JobInfo]]) -> None:
        self._job_id = job_id
        self._find = find
        self._was_over = False
        self._first = Pauses(FIRST_LOOK_S, _LONGEST_LOOK_S)
        self._later = Pauses(LATER_LOOK_S, _LONGEST_LOOK_S)

    def reset(self) -> None:
        """There was an entry."""
        self._was_over = False
        self._later.reset()

    async def wait(self, arrived: asyncio.Event, *, has_begun: bool) -> bool:
        """Return when something has arrived, or False when it is time to look at it again."""
        pauses = self._later if has_begun and not self._was_over else self._first
        try:
            async with asyncio.timeout(pauses.next_s()):
                await arrived.wait()
        except TimeoutError:
            with suppress(ServerError):
                await self._ask()
            return False
        arrived.clear()
        return True

    async def _ask(self) -> None:
        info = await self._find(self._job_id)
        match info.state:
            case JobState.CANCELLED:
                error: Exception = JobCancelled(self._job_id)
            case JobState.DEAD:
                error = _failed(info)
            case JobState.DONE:
                error = NoStream(self._job_id, _NOTHING_LEFT)
            case JobState.UNKNOWN if info.searched_all:
                error = NoStream(self._job_id, _NOTHING_LEFT)
            case _:
                self._was_over = False
                return
        if self._was_over:
            raise error
        self._was_over = True
        self._first.reset()


def _failed(info: JobInfo) -> JobFailed:
    failure = info.failure
    return JobFailed(
        info.id,
        reason=info.reason or "",
        error_type=failure.error_type if failure else "",
        message=failure.message if failure else "",
        traceback=failure.traceback if failure else "",
    )
