"""Following a job over HTTP: server-sent events of its progress, its output and its end."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from msgspec import Struct
from msgspec.json import Encoder

from tampu.errors import (
    JobCancelled,
    JobFailed,
    OptionError,
    ResultTimeout,
    ServerError,
    ServerUnreachable,
    StreamError,
)
from tampu.events import ENDS
from tampu.job import Job, JobEvent, JobState
from tampu.producer.sync_job import SyncJob
from tampu.tasks.stream_task import StreamJob
from tampu.util.clock import Duration, to_positive_ms
from tampu.util.lifecycle import cancel_all, ignore_outcome
from tampu.util.options import check_flag, check_type
from tampu.util.pauses import Pauses
from tampu.util.portal import iterate_with
from tampu.wire.event import EventKind
from tampu.wire.output import Chunk
from tampu.wire.payload import as_plain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping

logger = logging.getLogger(__name__)

SSE_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}
"""The headers of a response that sends what `sse` gives."""

_READ_AHEAD: Final = 16
_STALLED_S: Final = 60.0
"""How long a client may take nothing while there is something to take."""
_RESULT_S: Final = 5.0
"""How long the result may be on its way when the event that the job is done is here."""
_LAST_EVENT_S: Final = 2.0
_LOOK_S: Final = 1.0
_LONGEST_LOOK_S: Final = 60.0
_PLACE: Final = re.compile(r"e([0-9]{1,20}-[0-9]{1,20})(?:\.c([0-9]{1,20}-[0-9]{1,20}))?")
_CHUNK_PLACE: Final = re.compile(r"()c([0-9]{1,20}-[0-9]{1,20})")
_COMMENT: Final = b":\n\n"
_GONE: Final = "there is no such job, or it ended too long ago"
_to_json: Final = Encoder(enc_hook=as_plain).encode

_reading: Final[set[asyncio.Task[None]]] = set()
"""What reads for a response, until it has closed what it has opened."""


@overload
def sse(
    job: Job[Any],
    *,
    after: str | None = None,
    heartbeat: Duration = 15,
    show_errors: bool = False,
) -> AsyncGenerator[bytes]: ...


@overload
def sse(
    job: SyncJob[Any],
    *,
    after: str | None = None,
    heartbeat: Duration = 15,
    show_errors: bool = False,
) -> Generator[bytes]: ...


def sse(
    job: Job[Any] | SyncJob[Any],
    *,
    after: str | None = None,
    heartbeat: Duration = 15,
    show_errors: bool = False,
) -> AsyncGenerator[bytes] | Generator[bytes]:
    """The body of a response that follows a job up to its end, as server-sent events.

    Chunks of a task that yields are messages; `progress` and `restarted` come between; then `done`
    with the result, `failed`, `cancelled`, or `gone` if the job or what follows is not there. Data
    is JSON. Send `SSE_HEADERS` with it. With `after`, the `Last-Event-ID` of a client, only what it
    has not seen; `OptionError` if it is none of ours. A comment follows each `heartbeat` of
    silence. `show_errors` lets clients read what a failed job raised. Everything is freed when the
    response ends. For a `SyncJob` it is a plain generator, which holds its thread.
    """
    check_type("job", job, Job | SyncJob, accepted="a job, or a SyncJob")
    check_flag("show_errors", show_errors)
    beat_s = to_positive_ms("heartbeat", heartbeat) / 1000
    place = _parse_id(after)

    def follow(wanted: Job[Any]) -> AsyncGenerator[bytes]:
        return _frames(_Follower(wanted, place, show_errors=show_errors), beat_s)

    return iterate_with(job, follow) if isinstance(job, SyncJob) else follow(job)


async def _frames(follower: _Follower, beat_s: float) -> AsyncGenerator[bytes]:
    # A task of its own: a server that loses its client cancels this generator again and again,
    # and nothing could be awaited here to close what was opened.
    reading = asyncio.create_task(follower.run(), name="tampu-sse")
    _reading.add(reading)
    reading.add_done_callback(_reading.discard)
    reading.add_done_callback(ignore_outcome)
    try:
        yield _COMMENT  # so that headers are sent
        while not follower.is_finished:
            yield await follower.take(beat_s)
        if reading.done():
            reading.result()
    finally:
        reading.cancel()


class _Place(NamedTuple):
    """What a client has seen: the ids of the last event and the last chunk."""

    event: str | None = None
    chunk: str | None = None

    def __str__(self) -> str:
        parts = [f"e{self.event}" if self.event else "", f"c{self.chunk}" if self.chunk else ""]
        return ".".join(filter(None, parts))


def _parse_id(given: str | None) -> _Place:
    if not given:  # a browser may send an empty one
        return _Place()
    check_type("after", given, str, accepted="the id of an event")
    found = _PLACE.fullmatch(given) or _CHUNK_PLACE.fullmatch(given)
    if found is None:
        raise OptionError("after", given, "expected the id of an event that was sent before")
    return _Place(found[1] or None, found[2])


class _SentEvent(Struct, frozen=True):
    """Something to send. Its id is added when it is sent, so that it tells what came before."""

    kind: str  # "" for a chunk, which browsers call a message
    data: object
    event_id: str | None = None
    chunk_id: str | None = None

    def encode(self, place: _Place | None) -> bytes:
        """The item as a server-sent event."""
        lines = [f"id: {place}"] if place else []
        lines += [f"event: {self.kind}"] if self.kind else []
        return "\n".join([*lines, "data: "]).encode() + _to_json(self.data) + b"\n\n"


class _Follower:
    """Reads what happens to a job, and hands it over as fast as it is taken."""

    def __init__(self, job: Job[Any], place: _Place, *, show_errors: bool) -> None:
        self._job, self._place, self._show_errors = job, place, show_errors
        self._start = place
        self._items: asyncio.Queue[_SentEvent | None] = asyncio.Queue(_READ_AHEAD)
        self._has_ended = False

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing more to take."""
        return self._has_ended and self._items.empty()

    async def take(self, beat_s: float) -> bytes:
        """All that is there, as soon as there is something; a comment if that takes long."""
        try:
            async with asyncio.timeout(beat_s):
                found = [await self._items.get()]
        except TimeoutError:
            return _COMMENT
        while not self._items.empty():
            found.append(self._items.get_nowait())
        return b"".join(map(self._encode, filter(None, found)))

    async def run(self) -> None:
        """Follow the job to its end. What cannot be read now is left to the client's next try."""
        try:
            end = await self._follow()
            await self._put(end)
        except ServerError as error:
            job_id = self._job.id
            text = "ended the events of job %s for a client, which may come back: %s"
            logger.warning(text, job_id, error, extra={"job_id": job_id})
        except TimeoutError:  # the client has stalled: what it has not taken, it asks for again
            while not self._items.empty():
                self._items.get_nowait()
        finally:
            self._has_ended = True
            if self._items.empty():
                self._items.put_nowait(None)

    def _encode(self, item: _SentEvent) -> bytes:
        if item.event_id is None and item.chunk_id is None:
            return item.encode(None)
        before = self._place
        self._place = _Place(item.event_id or before.event, item.chunk_id or before.chunk)
        return item.encode(self._place)

    async def _put(self, item: _SentEvent) -> None:
        async with asyncio.timeout(_STALLED_S):
            await self._items.put(item)

    async def _follow(self) -> _SentEvent:
        """Read to the end of the job; returns what it ended in."""
        streams = isinstance(self._job, StreamJob)
        read_end = self._read_chunks() if streams else self._wait_for_result()
        ending = asyncio.create_task(self._read_end(read_end), name="tampu-sse-end")
        progress = asyncio.create_task(self._read_progress(), name="tampu-sse-progress")
        both = {ending, progress}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            first = next(each for each in both if each.done())
            first.result()  # raises what it raised
            await asyncio.wait(both, timeout=_LAST_EVENT_S if first is ending else _RESULT_S)
            last = progress.result() if progress.done() else None
            end = ending.result() if ending.done() else None
        finally:
            await cancel_all(both)
        if last is not None and (end is None or end.kind == "gone"):
            return self._end_of(last)
        return end or _SentEvent("gone", _GONE)

    async def _read_progress(self) -> JobEvent | None:
        """Hand over the progress of the job; the event that ends it, if there is one."""
        async with aclosing(self._job.events(self._start.event)) as events:
            async for event in events:
                if event.kind is EventKind.PROGRESS:
                    percent = event.fields.get("progress")
                    await self._put(_SentEvent("progress", percent, event_id=event.id))
                elif event.kind in ENDS:
                    return event
        return None

    async def _read_end(self, reading: Coroutine[Any, Any, _SentEvent]) -> _SentEvent:
        try:
            return await reading
        except JobFailed as error:
            return self._failed(error.reason, error.message)
        except JobCancelled:
            return _SentEvent("cancelled", None)
        except StreamError as error:
            return _SentEvent("gone", str(error))

    async def _read_chunks(self) -> _SentEvent:
        """Hand over what the job yields. That is its result, so its end has none."""
        async with aclosing(self._job.stream(self._start.chunk)) as items:
            async for item in items:
                if isinstance(item, Chunk):
                    await self._put(_SentEvent("", item.value, chunk_id=item.id))
                else:
                    await self._put(_SentEvent("restarted", {"attempt": item.attempt}))
        return _SentEvent("done", None)

    async def _wait_for_result(self) -> _SentEvent:
        pauses, was_unknown = Pauses(_LOOK_S, _LONGEST_LOOK_S), False
        while True:
            # A busy server may need longer for an answer than this look lasts: `info` waits for it.
            with suppress(ResultTimeout, ServerUnreachable):
                return _SentEvent("done", await self._job.result(pauses.next_s()))
            info = await self._job.info()
            is_unknown = info.state is JobState.UNKNOWN and info.searched_all
            if is_unknown and was_unknown:  # once may be a job that changed its state just then
                return _SentEvent("gone", _GONE)
            was_unknown = is_unknown

    def _end_of(self, event: JobEvent) -> _SentEvent:
        """What an event says that a job without a result has ended in."""
        if event.kind is EventKind.COMPLETED:
            return _SentEvent("done", None)
        if event.kind is EventKind.CANCELLED:
            return _SentEvent("cancelled", None)
        return self._failed(str(event.fields.get("reason", "")), "")

    def _failed(self, reason: str, message: str) -> _SentEvent:
        shown = {"reason": reason} | ({"message": message} if self._show_errors else {})
        return _SentEvent("failed", shown)
