"""Joins the adds of one event loop into few calls.

Hot path. While calls are in flight, further adds gather in batches, so these grow with the load by
themselves and a lone add goes out at once.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from tampu.errors import (
    Closed,
    ConnectionLost,
    NotDurable,
    QueueFull,
    ServerError,
    ServerUnreachable,
    TampuError,
)
from tampu.events import EventWriter
from tampu.job import Host, Job
from tampu.producer.batch import MAX_BYTES, MAX_JOBS, Batch, FullBatch, PlainBatch
from tampu.producer.request import Request
from tampu.server.lane import Lane
from tampu.server.protocol import Reply
from tampu.server.scripts.adding import (
    PRODUCER_MEMORY_MS,
    AddCall,
    Adding,
    AddKeys,
    FullJobs,
    PlainJobs,
    load_add,
)
from tampu.server.scripts.script import as_flags
from tampu.server.streams import Confirmation, Copies, confirm
from tampu.util.clock import now_ms
from tampu.util.ids import new_id
from tampu.wire.keys import QueueKeys

MAX_IN_FLIGHT: Final = 8
REMEMBERED_CALLS: Final = 16  # by the script: none may start while one so far behind is unfinished
LENGTH_LIMIT: Final = "QUEUEFULL"
_CLOSE_LIMIT_S: Final = 5.0
_AGAIN_S: Final = 0.02
_LEAST_LIMIT_S: Final = 0.001


class CallOptions(Struct, frozen=True):
    """How calls are made: the stream's longest length (0: any), their time limit, their copies."""

    max_len: int
    limit_s: float
    copies: Copies | None = None


class Batcher:
    """The one way of a producer's jobs to its queue; belongs to the loop it was made in.

    An add that is cancelled before its call was sent is not carried out, and never hurts those
    that were joined with it.
    """

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        host: Host,
        options: CallOptions,
        events: EventWriter | None = None,
    ) -> None:
        self._lane, self._keys, self._host, self._options = lane, keys, host, options
        self._events = events
        self._places = AddKeys(
            stream=keys.stream,
            delayed=keys.delayed,
            memory=keys.producer(new_id(now_ms())),
            bell=keys.bell,
        )
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Batch] = deque()
        self._plain: PlainBatch | None = None  # of those that wait, the ones to join
        self._full: FullBatch | None = None
        self._number = 0
        self._in_flight: dict[int, asyncio.Future[Any]] = {}  # by number, the oldest first
        self._scheduled = self._closed = False
        load_add(lane)

    def add_plain(
        self, name: str, data: object, *, raw_name: bytes, payload: bytes
    ) -> asyncio.Future[Job[Any]]:
        """Add one job without options."""
        batch = self._plain
        has_waited = batch is not None and not self._is_shut(batch)
        if batch is None or not has_waited:
            batch = self._plain = PlainBatch()
            self._put(batch)
        future: asyncio.Future[Job[Any]] = self._loop.create_future()
        batch.names.append(name)
        batch.raw_names.append(raw_name)
        batch.datas.append(data)
        batch.payloads.append(payload)
        batch.futures.append(future)
        batch.size += len(payload)
        if not self._in_flight:
            self._flush()  # a lone add need not wait for others: they are joined behind it
        elif not has_waited:
            self._schedule()
        return future

    def add_full(self, request: Request) -> asyncio.Future[Job[Any]]:
        """Add one job with options."""
        batch = self._full
        if batch is None or self._is_shut(batch):
            batch = self._full = FullBatch()
            self._put(batch)
            self._schedule()
        future: asyncio.Future[Job[Any]] = self._loop.create_future()
        batch.requests.append(request)
        batch.futures.append(future)
        batch.size += len(request.payload)
        return future

    def add_batch(self, batch: Batch) -> asyncio.Future[list[Job[Any]]]:
        """Add jobs that are a batch already."""
        batch.whole = self._loop.create_future()
        self._put(batch)
        self._schedule()
        return batch.whole

    async def close(self) -> None:
        """Let what has begun come to its end, within a limit; what has not by then fails."""
        limit = self._loop.time() + _CLOSE_LIMIT_S
        while (self._waiting or self._in_flight) and self._loop.time() < limit:
            tasks = list(self._in_flight.values())
            if tasks:
                await asyncio.wait(tasks, timeout=limit - self._loop.time())
            await asyncio.sleep(0)
        self._closed = True
        self._plain = self._full = None
        while self._waiting:
            self._waiting.popleft().fail(Closed(self._lane.server.name))
        if tasks := list(self._in_flight.values()):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _is_shut(self, batch: Batch) -> bool:
        """Whether a batch takes no further job: it is large, or has waited too long for its limit
        to be that of a new one as well.
        """
        age_s = self._loop.time() - batch.opened_at
        limit_s = self._options.limit_s / 10
        return len(batch) >= MAX_JOBS or batch.size >= MAX_BYTES or age_s > limit_s

    def _put(self, batch: Batch) -> None:
        if self._closed:
            raise Closed(self._lane.server.name)
        batch.opened_at = self._loop.time()
        self._waiting.append(batch)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Start a call if it may be in flight; what has to wait goes on growing.

        One call a turn of the loop, so that it is written before the next one is encoded: the
        server then works on the first while we work on the second.
        """
        self._scheduled = False
        waiting = self._waiting
        if waiting and self._has_room():
            self._start(waiting.popleft())
            if waiting and self._has_room():
                self._schedule()
                return
        for batch in waiting:
            if batch.timer is None:
                left_s = batch.opened_at + self._options.limit_s
                batch.timer = self._loop.call_at(left_s, self._expire, batch)

    def _start(self, batch: Batch) -> None:
        """Send a batch; what comes back is mostly taken without a task."""
        self._leave_open(batch)
        if (wanted := batch.wanted()) is None:
            return
        self._number = number = self._number + 1
        wanted.stamp(now_ms())
        carriage = _Carriage(wanted, wanted.texts(self._keys), number)
        try:
            adding = self._adding(carriage)
        except TampuError as error:
            wanted.fail(error)
            return
        self._in_flight[number] = adding.sent
        adding.sent.add_done_callback(partial(self._answered, carriage, adding))

    def _answered(self, carriage: "_Carriage", adding: Adding, sent: asyncio.Future[Reply]) -> None:
        if sent.cancelled():
            self._lose(carriage.batch)
        elif sent.exception() is None and self._options.copies is None:
            self._deliver(carriage.batch, as_flags(sent.result()))
        else:
            task = self._loop.create_task(self._carry(carriage, adding), name="tampu-add")
            self._in_flight[carriage.number] = task
            return
        self._forget(carriage.number)

    def _deliver(self, batch: Batch, reply: bytes) -> None:
        handles = batch.handles(self._host, reply)
        if self._events is not None:
            for event in batch.events(handles):
                self._events.tell(event)
        batch.deliver(handles)

    def _lose(self, batch: Batch) -> None:
        batch.fail(ConnectionLost(self._lane.server.name, "the queue was closed"))

    def _forget(self, number: int) -> None:
        del self._in_flight[number]
        if self._waiting:
            self._schedule()

    def _has_room(self) -> bool:
        in_flight = self._in_flight
        if not in_flight:
            return True
        oldest = next(iter(in_flight))
        return len(in_flight) < MAX_IN_FLIGHT and self._number - oldest < REMEMBERED_CALLS - 1

    def _leave_open(self, batch: Batch) -> None:
        """A batch that leaves is joined no more, and has no time limit but its call's."""
        if batch is self._plain:
            self._plain = None
        elif batch is self._full:
            self._full = None
        if batch.timer is not None:
            batch.timer.cancel()

    def _expire(self, batch: Batch) -> None:
        """A batch whose time ran out before there was room for its call."""
        self._waiting.remove(batch)
        self._leave_open(batch)
        batch.fail(ServerUnreachable(self._lane.server.name, "earlier calls had no answer in time"))

    async def _carry(self, carriage: "_Carriage", adding: Adding) -> None:
        """Take what comes back where it takes more than handing it over."""
        batch = carriage.batch
        try:
            reply = await adding.reply()
            if self._options.copies is not None:
                await self._make_sure(carriage)
            self._deliver(batch, reply)
        except QueueFull as refusal:
            if batch.joined and refusal.code == LENGTH_LIMIT:
                # Who fits must not be refused because of his neighbours.
                self._waiting.extendleft(reversed(list(batch.apart())))
            else:
                batch.fail(refusal)
        except TampuError as error:
            batch.fail(error)
        except BaseException:
            self._lose(batch)
            raise
        finally:
            self._forget(carriage.number)

    def _adding(self, carriage: "_Carriage") -> Adding:
        left_s = carriage.batch.opened_at + self._options.limit_s - self._loop.time()
        call = AddCall(
            number=carriage.number,
            max_len=self._options.max_len,
            limit_s=max(_LEAST_LIMIT_S, left_s),
        )
        return Adding(self._lane, self._places, carriage.jobs, call=call)

    async def _make_sure(self, carriage: "_Carriage") -> None:
        """Return when the jobs are where they were asked to be; `NotDurable` if they are not."""
        copies = self._options.copies
        assert copies is not None  # noqa: S101 - asked by the caller
        server = self._lane.server.name
        limit = carriage.batch.opened_at + self._options.limit_s
        while (left_s := limit - self._loop.time()) > 0:
            try:
                confirmation = await confirm(
                    self._lane,
                    self._places.memory,
                    copies,
                    keep_ms=PRODUCER_MEMORY_MS,
                    wait_s=left_s,
                )
            except ConnectionLost:
                continue
            except ServerError as error:
                raise NotDurable(server, copies.value) from error
            match confirmation:
                case Confirmation.SAFE:
                    return
                case Confirmation.TOO_FEW:
                    break
                case Confirmation.FORGOTTEN:
                    # The server that knew of the call is gone, and the jobs with it.
                    await self._adding(carriage).reply()
                case Confirmation.ELSEWHERE:
                    await asyncio.sleep(_AGAIN_S)
        raise NotDurable(server, copies.value)


class _Carriage(Struct, frozen=True):
    """A batch on its way: as the script takes it, and the number of the call."""

    batch: Batch
    jobs: PlainJobs | FullJobs
    number: int


def split(payloads: Sequence[bytes], *, most: int) -> list[tuple[int, int]]:
    """Where to cut a list of jobs, so that each part makes one call."""
    if sum(map(len, payloads)) <= MAX_BYTES:
        count = len(payloads)
        return [(start, min(start + most, count)) for start in range(0, count, most)]
    parts: list[tuple[int, int]] = []
    start = size = 0
    for place, payload in enumerate(payloads):
        if place > start and (place - start >= most or size + len(payload) > MAX_BYTES):
            parts.append((start, place))
            start, size = place, 0
        size += len(payload)
    return [*parts, (start, len(payloads))]
