"""Joins the adds of one event loop into few calls.

Hot path. While calls are in flight, further adds collect in batches. So batches grow with the load,
and a single add is sent at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tampu.errors import (
    Closed,
    ConnectionLost,
    NotDurable,
    QueueFull,
    ServerError,
    ServerUnreachable,
    TampuError,
    UnknownLimit,
)
from tampu.producer.batch import MAX_BYTES, MAX_JOBS, FullBatch, PlainBatch
from tampu.server.scripts.adding import (
    PRODUCER_MEMORY_MS,
    AddKeys,
    AddRequest,
    LinedJobs,
    add,
    load_add,
    send_add,
)
from tampu.server.scripts.script import as_flags
from tampu.server.streams import Confirmation, confirm
from tampu.util.clock import now_ms
from tampu.util.ids import new_id
from tampu.util.lifecycle import cancel_all
from tampu.util.pauses import Pauses

if TYPE_CHECKING:
    from tampu.events import EventWriter
    from tampu.job import Host, Job
    from tampu.producer.batch import AddBatch, CallRules
    from tampu.producer.request import Request
    from tampu.server.lane import Lane
    from tampu.server.protocol import Reply
    from tampu.server.streams import Copies
    from tampu.wire.keys import QueueKeys

T = TypeVar("T")
MAX_IN_FLIGHT: Final = 8
REMEMBERED_CALLS: Final = 16  # the script knows the replies of this many; none may be older
_LENGTH_LIMIT: Final = "QUEUEFULL"
_OF_ONE_JOB: Final = (_LENGTH_LIMIT, "NOLIMIT")
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.25
_CLOSE_LIMIT_S: Final = 5.0
_CONFIRM_AGAIN_S: Final = 0.02
_LEAST_LIMIT_S: Final = 0.001


class Batcher:
    """Sends a producer's jobs to its queue; belongs to the event loop that created it.

    An add that is cancelled before its call is sent adds nothing, and does not affect the adds that
    it was joined with.
    """

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        host: Host,
        rules: CallRules,
        events: EventWriter | None = None,
        on_limits: Callable[[Sequence[bytes]], None] | None = None,
    ) -> None:
        self._lane, self._keys, self._host, self._rules = lane, keys, host, rules
        self._events = events
        self._on_limits = on_limits  # called with names and definitions that were sent
        self.producer_id = new_id(now_ms())
        self._add_keys = AddKeys(
            stream=keys.stream,
            delayed=keys.delayed,
            memory=keys.producer(self.producer_id),
            wakeup=keys.wakeup,
            gate=keys.gate,
            control=keys.control,
            notices=keys.notices,
        )
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[AddBatch] = deque()
        self._plain: PlainBatch | None = None  # the waiting batch that new adds join
        self._full: FullBatch | None = None  # the same for adds with options
        self._number = 0
        self._in_flight: dict[int, asyncio.Future[Any]] = {}  # by number, the oldest first
        self._scheduled = self._closed = False
        load_add(lane)

    def add_plain(
        self, name: str, data: object, *, raw_name: bytes, payload: bytes
    ) -> asyncio.Future[Job[Any]]:
        """Add one job without options."""
        batch = self._plain
        joins = batch is not None and not self._is_full(batch)
        if batch is None or not joins:
            batch = self._plain = PlainBatch()
            self._enqueue(batch)
        future: asyncio.Future[Job[Any]] = self._loop.create_future()
        batch.names.append(name)
        batch.raw_names.append(raw_name)
        batch.datas.append(data)
        batch.payloads.append(payload)
        batch.futures.append(future)
        batch.size += len(payload)
        if not self._in_flight:
            self._flush()  # nothing is in flight, so waiting for more adds would only delay it
        elif not joins:
            self._schedule()
        return future

    def add_full(self, request: Request) -> asyncio.Future[Job[Any]]:
        """Add one job with options."""
        batch = self._full
        if batch is None or self._is_full(batch):
            batch = self._full = FullBatch()
            self._enqueue(batch)
            self._schedule()
        future: asyncio.Future[Job[Any]] = self._loop.create_future()
        batch.requests.append(request)
        batch.futures.append(future)
        batch.size += len(request.payload)
        return future

    def add_batch(self, batch: AddBatch) -> asyncio.Future[list[Job[Any]]]:
        """Add the jobs of a batch, which no other add joins."""
        batch.whole = self._loop.create_future()
        self._enqueue(batch)
        self._schedule()
        return batch.whole

    async def close(self) -> None:
        """Let running adds finish within a limit; the rest fails."""
        limit = self._loop.time() + _CLOSE_LIMIT_S
        while (self._waiting or self._in_flight) and self._loop.time() < limit:
            if calls := list(self._in_flight.values()):
                await asyncio.wait(calls, timeout=limit - self._loop.time())
            await asyncio.sleep(0)
        self._closed = True
        self._plain = self._full = None
        while self._waiting:
            self._waiting.popleft().fail(Closed(self._lane.server.name))
        await cancel_all(self._in_flight.values())

    # --- batches that wait ----------------------------------------------------------------------

    def _is_full(self, batch: AddBatch) -> bool:
        """Whether a batch takes no more jobs: it is large, or too old to share its time limit."""
        age_s = self._loop.time() - batch.created_at
        return len(batch) >= MAX_JOBS or batch.size >= MAX_BYTES or age_s > self._rules.limit_s / 10

    def _enqueue(self, batch: AddBatch) -> None:
        if self._closed:
            raise Closed(self._lane.server.name)
        batch.created_at = self._loop.time()
        self._waiting.append(batch)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send a batch if there is room for a call; the others keep growing.

        One call per iteration of the event loop, so that it is written before the next one is
        encoded: the server works on the first while we work on the second.
        """
        self._scheduled = False
        waiting = self._waiting
        if waiting and self._has_room():
            self._send(waiting.popleft())
            if waiting and self._has_room():
                self._schedule()
                return
        for batch in waiting:
            if batch.timer is None:
                expires_at = batch.created_at + self._rules.limit_s
                batch.timer = self._loop.call_at(expires_at, self._expire, batch)

    def _has_room(self) -> bool:
        in_flight = self._in_flight
        if not in_flight:
            return True
        oldest = next(iter(in_flight))
        return len(in_flight) < MAX_IN_FLIGHT and self._number - oldest < REMEMBERED_CALLS - 1

    def _expire(self, batch: AddBatch) -> None:
        """Fail a batch whose time ran out before there was room for its call."""
        self._waiting.remove(batch)
        self._detach(batch)
        problem = "earlier calls were not answered in time"
        batch.fail(ServerUnreachable(self._lane.server.name, problem))

    def _detach(self, batch: AddBatch) -> None:
        """No add joins the batch any more, and its timer ends."""
        if batch is self._plain:
            self._plain = None
        elif batch is self._full:
            self._full = None
        if batch.timer is not None:
            batch.timer.cancel()

    # --- calls ----------------------------------------------------------------------------------

    def _send(self, batch: AddBatch) -> None:
        """Send a batch. Its reply needs no task, except after an error or for durability."""
        self._detach(batch)
        wanted = batch.without_cancelled()
        if wanted is None:
            return
        self._number = wanted.number = self._number + 1
        wanted.encode(self._keys, now_ms())
        request = self._request(wanted)
        try:
            sent = send_add(self._lane, request)
        except TampuError as error:
            wanted.fail(error)
            return
        self._in_flight[wanted.number] = sent
        sent.add_done_callback(partial(self._take_reply, wanted, request))

    def _request(self, batch: AddBatch) -> AddRequest:
        left_s = batch.created_at + self._rules.limit_s - self._loop.time()
        return AddRequest(
            keys=self._add_keys,
            jobs=batch.encoded,
            number=batch.number,
            max_len=self._rules.max_len,
            limit_s=max(_LEAST_LIMIT_S, left_s),
        )

    def _take_reply(
        self, batch: AddBatch, request: AddRequest, sent: asyncio.Future[Reply]
    ) -> None:
        if sent.cancelled():
            self._fail_as_unknown(batch)
        elif sent.exception() is None and self._rules.copies is None:
            self._resolve(batch, as_flags(sent.result()))
        else:
            task = self._loop.create_task(self._finish(batch, request, sent), name="tampu-add")
            self._in_flight[batch.number] = task
            return
        self._free_slot(batch)

    async def _finish(
        self, batch: AddBatch, request: AddRequest, sent: asyncio.Future[Reply]
    ) -> None:
        """Handle a reply that needs more than passing it on."""
        try:
            flags = await add(self._lane, request, sent=sent)
            if self._rules.copies is not None:
                await self._confirm(batch, self._rules.copies)
            self._resolve(batch, flags)
        except (QueueFull, UnknownLimit) as refusal:
            if batch.is_joined and refusal.code in _OF_ONE_JOB:
                # It need not be true of all of its jobs: send them one by one.
                self._waiting.extendleft(reversed(list(batch.one_by_one())))
            else:
                batch.fail(refusal)
        except TampuError as error:
            batch.fail(error)
        except BaseException:
            self._fail_as_unknown(batch)
            raise
        finally:
            self._free_slot(batch)

    async def _confirm(self, batch: AddBatch, copies: Copies) -> None:
        """Return when the jobs are as durable as requested; else raise `NotDurable`."""
        server = self._lane.server.name
        limit = batch.created_at + self._rules.limit_s
        is_elsewhere = False
        while (left_s := limit - self._loop.time()) > 0:
            try:
                if is_elsewhere:
                    # Another server may have taken over that has not this call, nor its jobs.
                    await add(self._lane, self._request(batch))
                    is_elsewhere = False
                confirmation = await confirm(
                    self._lane,
                    self._add_keys.memory,
                    copies,
                    keep_ms=PRODUCER_MEMORY_MS,
                    wait_s=left_s,
                )
            except ConnectionLost:
                is_elsewhere = True
                continue
            except ServerError as error:
                raise NotDurable(server, copies.value) from error
            match confirmation:
                case Confirmation.SAFE:
                    return
                case Confirmation.TOO_FEW:
                    break
                case Confirmation.FORGOTTEN | Confirmation.ELSEWHERE:
                    is_elsewhere = True
                    await asyncio.sleep(_CONFIRM_AGAIN_S)
        raise NotDurable(server, copies.value)

    def _resolve(self, batch: AddBatch, flags: bytes) -> None:
        jobs = batch.jobs(self._host, flags)
        if self._events is not None:
            for event in batch.events(jobs):
                self._events.tell(event)
        if self._on_limits is not None and isinstance(batch.encoded, LinedJobs):
            self._on_limits(batch.encoded.limits)
        batch.resolve(jobs)

    def _fail_as_unknown(self, batch: AddBatch) -> None:
        batch.fail(ConnectionLost(self._lane.server.name, "the queue was closed"))

    def _free_slot(self, batch: AddBatch) -> None:
        del self._in_flight[batch.number]
        if self._waiting:
            self._schedule()


def split(payloads: Sequence[bytes], *, most: int) -> list[tuple[int, int]]:
    """The ranges of jobs that each make one call, with at most so many jobs."""
    if sum(map(len, payloads)) <= MAX_BYTES:
        count = len(payloads)
        return [(start, min(start + most, count)) for start in range(0, count, most)]
    ranges: list[tuple[int, int]] = []
    start = size = 0
    for position, payload in enumerate(payloads):
        if position > start and (position - start >= most or size + len(payload) > MAX_BYTES):
            ranges.append((start, position))
            start, size = position, 0
        size += len(payload)
    return [*ranges, (start, len(payloads))]


async def add_together(
    batches: Sequence[AddBatch], add: Callable[[AddBatch], Awaitable[list[Job[Any]]]]
) -> list[list[Job[Any]]]:
    """Add batches, as many at a time as calls may be in flight; the first error is raised."""
    slots = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def add_in_slot(batch: AddBatch) -> list[Job[Any]]:
        async with slots:  # the batch's time limit begins when it gets its slot
            return await add(batch)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(add_in_slot(each), name="tampu-add") for each in batches]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def wait_for_room(add: Callable[[], Awaitable[T]], *, waits: bool) -> T:
    """The result of an add; if it `waits`, it is repeated until the queue has room."""
    pauses: Pauses | None = None
    while True:
        try:
            return await add()
        except QueueFull as refusal:
            if not waits or refusal.code != _LENGTH_LIMIT:
                raise
        pauses = pauses or Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        await asyncio.sleep(pauses.next_s())
