"""Writing the streams of running jobs, in batches over jobs."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tampu.consumer.batch_sender import BatchSender, SendSteps
from tampu.errors import Closed, JobCancelled, WrongContext
from tampu.server.listening import StreamTarget
from tampu.server.scripts.output import (
    SAY_EVERY_S,
    NewChunks,
    Readers,
    find_abandoned,
    write_chunks,
)
from tampu.server.service import Service
from tampu.wire.output import ChunkId, check_chunk_id, encode_chunk, run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from tampu.consumer.intake import Delivery
    from tampu.job import Job, JobActions
    from tampu.server.lane import Lane
    from tampu.server.listening import StreamFollower
    from tampu.server.streams import RawEntry
    from tampu.wire.keys import QueueKeys
    from tampu.wire.output import JobOutput, OutputRules

CHUNKS_A_CALL: Final = 1_000
MOST_UNWRITTEN: Final = 500
"""Chunks of one job that wait to be written. Then its handler waits."""
_BYTES_A_CALL: Final = 1_048_576
_LOOK_S: Final = 1.0
_GAP_S: Final = 5.0
"""After so long without a look, the server was away. A `Service` tries again in half of that."""
_JOBS_A_CALL: Final = 500


OpenOutput: TypeAlias = "Callable[[Job[Any], OutputRules], JobOutput]"
"""Opens the stream of a running job; may be called from any thread."""


class _NewChunk(NamedTuple):
    output: Output
    number: int
    data: bytes


class Outputs:
    """Writes the streams of a worker's jobs on one queue.

    `running` gives the deliveries whose handlers run now, `actions` can cancel their jobs.
    """

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        streams: StreamFollower,
        running: Callable[[], list[Delivery]],
        actions: JobActions,
    ) -> None:
        self._lane = lane
        self.keys = keys
        self.streams = streams
        self._running = running
        self.loop, self._thread = asyncio.get_running_loop(), get_ident()
        trouble = lane.server.outage.part(f"streams of jobs of queue {keys.name!r}")
        self._sender: BatchSender[_NewChunk] = BatchSender(
            "job streams", SendSteps(self._send), trouble=trouble, most=CHUNKS_A_CALL, awaited=True
        )
        self._open: set[Output] = set()
        self._abandoned = _Abandoned(lane, keys, self._open, actions=actions)

    def start(self) -> None:
        """Begin to write."""
        self._sender.start()

    def open(self, job: Job[Any], rules: OutputRules) -> Output:
        """The stream of a job that runs here; may be called from any thread."""
        for each in self._running():
            if each.job.id == job.id:
                output = Output(self, each, rules)
                if get_ident() == self._thread:
                    self._add(output)
                else:
                    self.loop.call_soon_threadsafe(self._add, output)
                return output
        raise WrongContext("yield here", f"job {job.id} no longer runs in this worker")

    def _add(self, output: Output) -> None:
        self._open.add(output)
        if output.rules.cancel_on_close:
            self._abandoned.start()

    async def remove(self, output: Output) -> None:
        """Its handler has ended. May be called twice."""
        self._open.discard(output)
        if not any(each.rules.cancel_on_close for each in self._open):
            await self._abandoned.stop()

    def write(self, chunk: _NewChunk) -> None:
        """Write a chunk soon."""
        self._sender.put(chunk)

    async def close(self) -> None:
        """Write nothing any more; handlers that still wait get `Closed`."""
        await self._sender.drain(1.0)
        await self._sender.stop()
        await self._abandoned.stop()
        for each in list(self._open):
            each.end(Closed(self._lane.server.name))

    async def _send(self, batch: list[_NewChunk]) -> None:
        for part in _parts(batch):
            await write_chunks(self._lane, [_new_chunks(*each) for each in part.items()])
            for output, chunks in part.items():
                output.note_written(chunks[-1].number)


def _parts(batch: list[_NewChunk]) -> list[dict[Output, list[_NewChunk]]]:
    """The chunks by stream, in parts for one call each: of at most 1 MiB, or of one chunk."""
    parts: list[dict[Output, list[_NewChunk]]] = [{}]
    size = 0
    for each in batch:
        size += len(each.data)
        if size > _BYTES_A_CALL and parts[-1]:
            parts.append({})
            size = len(each.data)
        parts[-1].setdefault(each.output, []).append(each)
    return parts


def _new_chunks(output: Output, chunks: list[_NewChunk]) -> NewChunks:
    window = output.rules.window
    return NewChunks(
        output.key,
        ChunkId(output.run, chunks[0].number),
        output.attempt,
        [each.data for each in chunks],
        0 if window is None else (window + 1) // 2,
    )


class Output(StreamTarget):
    """The stream that one attempt writes, and how far its readers are."""

    def __init__(self, outputs: Outputs, delivery: Delivery, rules: OutputRules) -> None:
        self._outputs = outputs
        self._job = job = delivery.job
        self.rules = rules
        self.run = run_of(delivery.entry_id, job.attempt)
        self.attempt = job.attempt
        self.key = outputs.keys.output(job.id)
        self._read_key = outputs.keys.read_chunks(job.id)
        self.after = ChunkId(self.run, 0).encode()
        limit_s = delivery.timeout_s
        self._due = None if limit_s is None else outputs.loop.time() + limit_s
        self._count = self._written = self._read = 0
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._arrived: deque[_NewChunk] = deque()  # from a thread, on their way to the loop
        self._is_told = self._follows = False  # whether the loop knows of them

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._job.id

    # --- a handler on the loop ------------------------------------------------------------------

    async def put(self, value: object) -> None:
        """Write a chunk soon."""
        self._write(self._new_chunk(value))
        if self._must_wait():
            await self._wait_for_room()

    async def flush(self) -> None:
        """Return when all chunks are on the server; there will be no more."""
        try:
            await self._wait(self._is_unwritten)
        finally:
            await self.close()

    async def close(self) -> None:
        """There will be no more chunks."""
        await self._outputs.remove(self)
        if self._follows:
            self._follows = False
            await self._outputs.streams.ignore(self._read_key)

    # --- a handler in a thread ------------------------------------------------------------------

    def put_blocking(self, value: object) -> None:
        """Write a chunk soon."""
        if self._job.cancelled:  # nothing else ends a handler in a thread
            raise JobCancelled(self._job.id)
        self._arrived.append(self._new_chunk(value))
        if not self._is_told:
            self._is_told = True
            self._outputs.loop.call_soon_threadsafe(self._write_arrived)
        if self._must_wait():
            self._run_on_loop(self._wait_for_room())

    def flush_blocking(self) -> None:
        """Return when all chunks are on the server; there will be no more."""
        self._run_on_loop(self.flush())

    def _write_arrived(self) -> None:
        self._is_told = False  # before the deque is emptied: later chunks are told of again
        while self._arrived:
            self._write(self._arrived.popleft())

    def _run_on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(work, self._outputs.loop).result()
        except RuntimeError:  # the loop has ended before the thread
            work.close()
            raise

    # --- what becomes of the chunks -------------------------------------------------------------

    def note_written(self, number: int) -> None:
        """The chunks up to this one are on the server."""
        self._written = number
        self._changed.set()

    def take(self, entries: list[RawEntry]) -> None:
        """A reader has told how far it is."""
        run, read = check_chunk_id("id", entries[-1][0].decode())
        if run == self.run:
            self._read = max(self._read, read)
            self._changed.set()

    async def bridge_gap(self, lane: Lane) -> None:
        """Nothing to do: the next read begins after the last entry."""

    def end(self, error: Exception) -> None:
        """Let its handler end with an error when it yields."""
        self._error = error
        self._changed.set()

    def _new_chunk(self, value: object) -> _NewChunk:
        if self._error is not None:
            raise self._error
        data = encode_chunk(value)
        self._count += 1
        return _NewChunk(self, self._count, data)

    def _write(self, chunk: _NewChunk) -> None:
        self._outputs.write(chunk)

    def _is_unwritten(self) -> bool:
        return self._written < self._count

    def _must_wait(self) -> bool:
        window = self.rules.window
        if window is not None and self._count - self._read >= window:
            return True
        return self._count - self._written >= MOST_UNWRITTEN

    async def _wait_for_room(self) -> None:
        async with asyncio.timeout_at(self._due):  # nothing else ends a handler in a thread
            await self._wait(self._must_wait)

    async def _wait(self, blocks: Callable[[], bool]) -> None:
        if self.rules.window is not None and not self._follows:
            self._follows = True
            self._outputs.streams.listen(self._read_key, self)
        while blocks():
            if self._error is not None:
                raise self._error
            if self._job.cancelled:  # nothing else ends a handler in a thread
                raise JobCancelled(self._job.id)
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()


class _Abandoned(Service):
    """Cancels running jobs whose readers have all left, if their tasks ask for that."""

    name = "abandoned-streams"

    def __init__(
        self, lane: Lane, keys: QueueKeys, outputs: set[Output], *, actions: JobActions
    ) -> None:
        super().__init__(lane.server.outage, f"readers of streams of queue {keys.name!r}")
        self._lane = lane
        self._keys = keys
        self._outputs = outputs
        self._actions = actions
        self._watch = SteadyWatch(monotonic())

    async def tick(self) -> float:
        """Look once."""
        watched = [each.job_id for each in self._outputs if each.rules.cancel_on_close]
        for start in range(0, len(watched), _JOBS_A_CALL):
            some = watched[start : start + _JOBS_A_CALL]
            found = await find_abandoned(self._lane, self._keys, some)
            believes = self._watch.look(monotonic())
            for job_id, readers in zip(some, found, strict=True):
                if readers is Readers.LEFT or (readers is Readers.SILENT and believes):
                    await self._actions.cancel(job_id)
        return _LOOK_S


class SteadyWatch:
    """Tells whether readers that have been silent are gone.

    While the server was away, or this process, they could not say that they are there. So they are
    given time to say it again.
    """

    def __init__(self, now: float) -> None:
        self._last = self._since = now

    def look(self, now: float) -> bool:
        """Note that one looked; whether that has gone on for long enough to believe it."""
        if now - self._last > _GAP_S:
            self._since = now
        self._last = now
        return now - self._since >= SAY_EVERY_S + _GAP_S
