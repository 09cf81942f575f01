"""Events of jobs: written in batches off the hot path, read as they arrive."""

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from typing import Final, NamedTuple, Self

from tampu.errors import DecodeError, OptionError, ServerError, WrongContext
from tampu.job import JobEvent
from tampu.server.client import CredentialCallback
from tampu.server.connect import Server, Target, check_target, connect
from tampu.server.inspection import entries_down_from
from tampu.server.lane import Lane
from tampu.server.scripts.settling import emit
from tampu.server.streams import last_id, read_after
from tampu.util.clock import instant
from tampu.util.lifecycle import cancel_all
from tampu.wire.event import Event, EventFields, EventKind, decode_event, pack_events
from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)

# --- writing ------------------------------------------------------------------------------------

MAX_BUFFERED: Final = 10_000
EVENTS_A_CALL: Final = 500
EVENTS_KEPT: Final = 100_000
CALLS_IN_FLIGHT: Final = 2  # with three, one could overtake a call that has to load the script
LINGER_S: Final = 0.002
CLOSE_LIMIT_S: Final = 1.0


class EventWriter:
    """Writes events to a queue's events stream in the background.

    `tell` never waits and never raises. Events that cannot be written are dropped and counted: the
    oldest if too many wait, and a batch that the server did not accept. Belongs to the event loop
    of its lane.
    """

    def __init__(self, lane: Lane, key: bytes, *, max_len: int = EVENTS_KEPT) -> None:
        self._lane = lane
        self._key = key
        self.max_len = max_len
        self._buffer: list[EventFields] = []
        self._threshold = 0  # `tell` does more than append when the buffer is longer than this
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._sent_at = 0.0
        self._dropped = 0
        self._dropped_before: int | None = None  # set while events are dropped
        self._overflowing = self._closed = False
        self._trouble = lane.server.outage.part(f"writing events to {key.decode()}")

    def __len__(self) -> int:
        """Events that wait to be written."""
        return len(self._buffer)

    @property
    def dropped(self) -> int:
        """How many events were dropped, as far as we know."""
        return self._dropped

    def tell(self, fields: EventFields) -> None:
        """Write an event soon."""
        # Hot path, twice per job: one comparison covers every case that needs attention.
        buffer = self._buffer
        buffer.append(fields)
        if len(buffer) > self._threshold:
            self._attend()

    async def flush(self) -> None:
        """Return when all events so far are written or dropped."""
        for _ in range(0, len(self._buffer), EVENTS_A_CALL):
            await self._send_next()
        if self._calls:
            await asyncio.wait(set(self._calls))

    async def close(self) -> None:
        """Write what can be written within a second, and drop the rest. May be called twice."""
        if self._closed:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self.flush()
        finally:
            self._closed, self._threshold = True, 0
            self._drop(len(self._buffer))
            await cancel_all([*self._calls, *([self._task] if self._task else [])])
            self._trouble.end(recovered=False)

    def _attend(self) -> None:
        """Wake the writer, or drop events if the buffer is full or the writer closed."""
        if self._closed:
            self._drop(len(self._buffer))
        elif self._threshold == MAX_BUFFERED:
            if not self._overflowing:
                self._overflowing = True
                self._log("more than %d events wait for %s: dropping the oldest", MAX_BUFFERED)
            self._drop(EVENTS_A_CALL)
        else:
            self._threshold = MAX_BUFFERED
            self._filled.set()
            if self._task is None:
                self._task = asyncio.create_task(self._run(), name="tampu-events")

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._count_dropped(count)

    def _count_dropped(self, count: int) -> None:
        if self._dropped_before is None:
            self._dropped_before = self._dropped
        self._dropped += count

    def _log(self, text: str, count: int) -> None:
        key = self._key.decode()
        facts = {"key": key, "count": count, "server": self._lane.server.name}
        logger.warning(text, count, key, extra=facts)

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            while self._buffer:
                await self._linger()
                await self._send_next()
            self._overflowing = False
            self._filled.clear()
            self._threshold = 0

    async def _linger(self) -> None:
        """Wait for more events if the last call was just now and this one would be small."""
        left_s = self._sent_at + LINGER_S - asyncio.get_running_loop().time()
        if left_s > 0 and len(self._buffer) < EVENTS_A_CALL:
            await asyncio.sleep(left_s)

    async def _send_next(self) -> None:
        """Send one batch, as soon as there is room for a call."""
        while len(self._calls) >= CALLS_IN_FLIGHT:
            await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
        batch = self._buffer[:EVENTS_A_CALL]
        if batch:
            del self._buffer[:EVENTS_A_CALL]
            self._sent_at = asyncio.get_running_loop().time()
            call = asyncio.create_task(self._send(batch), name="tampu-events-call")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _send(self, batch: Sequence[EventFields]) -> None:
        try:
            await emit(self._lane, self._key, pack_events(batch), max_len=self.max_len)
        except ServerError as error:
            self._count_dropped(len(batch))
            self._trouble.begin(error)
        except asyncio.CancelledError:
            self._count_dropped(len(batch))
            raise
        else:
            self._trouble.end()
            if self._dropped_before is not None and not self._buffer:
                dropped, self._dropped_before = self._dropped - self._dropped_before, None
                self._log("dropped %d events for %s; events are written again", dropped)


# --- reading ------------------------------------------------------------------------------------

EVENTS_A_READ: Final = 1_000
BLOCK_MS: Final = 5_000

_EVENT_ID: Final = re.compile(r"[0-9]{1,20}(?:-[0-9]{1,20})?")
_LAST_MS: Final = 253_402_300_799_999  # the end of the year 9999, the last that datetime knows
ENDS: Final = frozenset({EventKind.COMPLETED, EventKind.DEAD, EventKind.CANCELLED})
"""The kinds of events that end a job."""
_UNREADABLE: Final = Event("", "", "", "", {})


def check_event_id(after: str | None) -> bytes | None:
    """The id of an event as the server has it, or `OptionError`."""
    given: object = after
    if given is None:
        return None
    if not isinstance(given, str) or not _EVENT_ID.fullmatch(given):
        raise OptionError("after", given, 'expected the id of an event, or "0" for all events')
    return given.encode()


class QueueEvents:
    """The events of a queue from `async with` on, or after the event with the id `after`.

    No event is missed if the connection breaks: reading continues after the last event seen, as far
    back as the stream is kept. One consumer iterates over it; `close` ends the iteration.
    """

    def __init__(
        self,
        queue: str,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        after: str | None = None,
    ) -> None:
        self._after = check_event_id(after)
        check_target(url, credentials)
        self._key = QueueKeys(queue).events
        self._target = url
        self._credentials = credentials
        self._cursor: _EventCursor | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            server = await connect(self._target, credentials=self._credentials)
            lane = await Lane.open(await stack.enter_async_context(server), self._key)
            await stack.enter_async_context(lane)
            after = self._after or await last_id(lane, self._key)
            self._cursor = _EventCursor(lane, self._key, after)
            stack.push_async_callback(self._cursor.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JobEvent:
        if self._cursor is None:
            raise WrongContext("read events", "enter `async with QueueEvents(...)` first")
        return await anext(self._cursor)

    async def close(self) -> None:
        """End the iteration and disconnect. May be called twice."""
        await self._stack.aclose()


class _EventCursor:
    """A position in an events stream, and the events that were read but not returned yet."""

    def __init__(self, lane: Lane, key: bytes, after: bytes) -> None:
        self._lane = lane
        self._key = key
        self._after = after
        self._events: deque[JobEvent] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._trouble = lane.server.outage.part(f"reading events from {key.decode()}")
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JobEvent:
        """The next event, as soon as there is one. Nothing is lost if the wait is cancelled."""
        while not self._events and not self._closed:
            # A task, so that a consumer that stops waiting does not cancel the read: the server
            # would answer the next read only after this one.
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(), name="tampu-follow-events")
            await asyncio.wait([self._reading])
        if self._closed:
            raise StopAsyncIteration
        return self._events.popleft()

    async def close(self) -> None:
        """End the iteration. May be called twice."""
        self._closed = True
        if self._reading is not None:
            await cancel_all([self._reading])
        self._trouble.end(recovered=False)

    async def _read(self) -> None:
        """Read until there is at least one event."""
        while not self._events:
            try:
                entries = await read_after(
                    self._lane, self._key, self._after, count=EVENTS_A_READ, block_ms=BLOCK_MS
                )
            except ServerError as error:
                await asyncio.sleep(self._trouble.begin(error))
            else:
                self._trouble.end()
                if entries:
                    self._after = entries[-1][0]
                    self._events.extend(job_event(entry_id, flat) for entry_id, flat in entries)


class EventTail(NamedTuple):
    """The latest events that are there, oldest first, and those that will follow them."""

    past: list[JobEvent]
    coming: AsyncIterator[JobEvent]


@asynccontextmanager
async def follow_events(
    server: Server, key: bytes, after: bytes | None = None
) -> AsyncIterator[EventTail]:
    """Follow an events stream with a connection of its own; with `after` all is to come."""
    async with await Lane.open(server, key) as lane:
        entries = [] if after else await entries_down_from(lane, key, count=EVENTS_A_READ)
        cursor = _EventCursor(lane, key, after or (entries[0][0] if entries else b"0-0"))
        past = [job_event(entry_id, flat) for entry_id, flat in reversed(entries)]
        try:
            yield EventTail(past, cursor)
        finally:
            await cursor.close()


def job_event(entry_id: bytes, flat: Sequence[bytes] | None) -> JobEvent:
    """The event in an entry of the events stream; the kind of an unreadable one is ""."""
    try:
        event = decode_event(flat or ())
    except DecodeError:
        event = _UNREADABLE
    attempt = event.fields.get("attempt")
    return JobEvent(
        id=entry_id.decode(),
        kind=event.kind,
        job_id=event.job_id,
        name=event.name,
        at=_event_time(event.ts, entry_id),
        attempt=attempt if isinstance(attempt, int) else None,
        fields=event.fields,
    )


def _event_time(ts: int | str, entry_id: bytes) -> datetime:
    """When it happened; if that is unreadable, when the server stored it."""
    stored_ms = int(entry_id.partition(b"-")[0])
    for ms in (ts, stored_ms):
        if isinstance(ms, int) and 0 <= ms <= _LAST_MS:
            return instant(ms)
    return instant(0)
