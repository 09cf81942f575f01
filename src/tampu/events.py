"""What happens to jobs: written in batches off the handlers' path, read by push."""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from random import Random
from typing import Final, Self

from msgspec import Struct

from tampu.errors import DecodeError, OptionError, ServerError, WrongContext
from tampu.server.client import CredentialCallback
from tampu.server.connect import Server, Target, check_target, connect
from tampu.server.lane import Lane, LaneOptions, Pauses
from tampu.server.scripts.dead import emit
from tampu.server.streams import last_id, read_after
from tampu.util.clock import instant
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
    """Writes events to the events stream behind the back of whoever tells them.

    Telling neither waits nor fails. What cannot be written is dropped and counted: the oldest when
    too many wait, and a batch that the server did not take. It belongs to its lane's event loop.
    """

    def __init__(self, lane: Lane, key: bytes, *, max_len: int = EVENTS_KEPT) -> None:
        self._lane = lane
        self._key = key
        self.max_len = max_len
        self._buffer: list[EventFields] = []
        self._alarm = 0  # more events than this in the buffer need attention
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._sent_at = 0.0
        self._dropped = 0
        self._overflowing = self._refused = self._closed = False

    def __len__(self) -> int:
        """Events that wait to be written."""
        return len(self._buffer)

    @property
    def dropped(self) -> int:
        """Events that were told and, as far as is known, not written."""
        return self._dropped

    def tell(self, fields: EventFields) -> None:
        """Have an event written soon."""
        # Twice a job on the hot path, so one comparison serves all that can be the matter.
        buffer = self._buffer
        buffer.append(fields)
        if len(buffer) > self._alarm:
            self._attend()

    async def flush(self) -> None:
        """Return when all that was told before is written or dropped."""
        for _ in range(0, len(self._buffer), EVENTS_A_CALL):
            await self._send_next()
        if self._calls:
            await asyncio.wait(set(self._calls))

    async def close(self) -> None:
        """Write what can be written within a second; the rest is dropped. May be called twice."""
        if self._closed:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self.flush()
        finally:
            self._closed, self._alarm = True, 0
            self._drop(len(self._buffer))
            tasks = [*self._calls, *([self._task] if self._task else [])]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _attend(self) -> None:
        """The writer sleeps, or the buffer is full, or all is over."""
        if self._closed:
            self._drop(len(self._buffer))
        elif self._alarm == MAX_BUFFERED:
            if not self._overflowing:
                self._overflowing = True
                logger.warning("more events than can be written: the oldest are dropped")
            self._drop(EVENTS_A_CALL)
        else:
            self._alarm = MAX_BUFFERED
            self._filled.set()
            if self._task is None:
                self._task = asyncio.create_task(self._run(), name="tampu-events")

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._dropped += count

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            while self._buffer:
                await self._linger()
                await self._send_next()
            self._overflowing = False
            self._filled.clear()
            self._alarm = 0

    async def _linger(self) -> None:
        """Wait for more to come, if there just was a call and this one would be small."""
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
            self._dropped += len(batch)
            if not self._refused:
                self._refused = True
                logger.warning("events cannot be written", extra={"problem": str(error)})
        except asyncio.CancelledError:
            self._dropped += len(batch)
            raise
        else:
            self._refused = False


# --- reading ------------------------------------------------------------------------------------

EVENTS_A_READ: Final = 1_000
BLOCK_MS: Final = 5_000

_EVENT_ID: Final = re.compile(r"[0-9]{1,20}(?:-[0-9]{1,20})?")
_LAST_MS: Final = 253_402_300_799_999  # of the year 9999, where datetimes end
_UNREADABLE: Final = Event("", "", "", "", {})


class JobEvent(Struct, frozen=True):
    """One thing that happened to a job.

    A kind that this version does not know stays text. `at` is by the clock of who told it.
    """

    id: str
    kind: EventKind | str
    job_id: str
    name: str
    at: datetime
    attempt: int | None
    fields: dict[str, int | str]


class QueueEvents:
    """The events of a queue from the moment it is entered, or behind the event id `after`.

    Misses nothing, whatever happens to the connection: it reads on behind the last event it has
    seen, as far back as the stream is kept. One consumer iterates over it; `close` ends that.
    """

    def __init__(
        self,
        queue: str,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        after: str | None = None,
    ) -> None:
        if after is not None and not _EVENT_ID.fullmatch(after):
            raise OptionError(
                "after", after, 'expected the id of an event, or "0" for all there are'
            )
        check_target(url, credentials)
        self._key = QueueKeys(queue).events
        self._target = url
        self._credentials = credentials
        self._after = None if after is None else after.encode()
        self._follower: _EventCursor | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            server = await connect(self._target, credentials=self._credentials)
            lane = await Lane.open(await opened.enter_async_context(server), self._key)
            await opened.enter_async_context(lane)
            after = self._after or await last_id(lane, self._key)
            opened.pop_all()  # from here on the follower's to close
        self._follower = _EventCursor(server, lane, key=self._key, after=after)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JobEvent:
        if self._follower is None:
            raise WrongContext("read events", "enter `async with QueueEvents(...)` first")
        event = await self._follower.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def close(self) -> None:
        """End the iteration and disconnect. May be called twice."""
        if self._follower is not None:
            await self._follower.close()


class _EventCursor:
    """A place in an events stream, and what was read from there and not handed out yet."""

    def __init__(self, server: Server, lane: Lane, *, key: bytes, after: bytes) -> None:
        self._server = server
        self._lane = lane
        self._key = key
        self._after = after
        self._events: deque[JobEvent] = deque()
        self._filling: asyncio.Task[None] | None = None
        self._closed = False

    async def next(self) -> JobEvent | None:
        """The next event, as soon as there is one; None when closed."""
        while not self._events and not self._closed:
            # A task, so that a consumer who gives up waiting does not give up the read: the next
            # one would stand behind it at the server.
            if self._filling is None or self._filling.done():
                self._filling = asyncio.create_task(self._fill(), name="tampu-follow-events")
            await asyncio.wait([self._filling])
        return None if self._closed else self._events.popleft()

    async def close(self) -> None:
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        await self._lane.close()
        await self._server.close()

    async def _fill(self) -> None:
        """Read on until there is something."""
        pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients, guards nothing
        troubled = False
        while not self._events:
            try:
                entries = await read_after(
                    self._lane, self._key, self._after, count=EVENTS_A_READ, block_ms=BLOCK_MS
                )
            except ServerError as error:
                if not troubled:
                    logger.warning("events cannot be read", extra={"problem": str(error)})
                troubled = True
                await asyncio.sleep(pauses.next_s())
            else:
                troubled = False
                pauses.reset()
                if entries:
                    self._after = entries[-1][0]
                    self._events.extend(job_event(entry_id, flat) for entry_id, flat in entries)


def job_event(entry_id: bytes, flat: Sequence[bytes] | None) -> JobEvent:
    """What an entry of the events stream tells; one that cannot be read has the kind ""."""
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
        at=_at(event.ts, entry_id),
        attempt=attempt if isinstance(attempt, int) else None,
        fields=event.fields,
    )


def _at(ts: int | str, entry_id: bytes) -> datetime:
    """When it was told; if that cannot be, when it was written."""
    written_ms = int(entry_id.partition(b"-")[0])
    for ms in (ts, written_ms):
        if isinstance(ms, int) and 0 <= ms <= _LAST_MS:
            return instant(ms)
    return instant(0)
