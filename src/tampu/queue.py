"""The producer's side of a queue: jobs are added, counted, and waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, Self, TypeVar, Unpack

from tampu.admin.dead import DeadLetters
from tampu.admin.jobs import DelayedJobs
from tampu.admin.queues import Counts, count_jobs
from tampu.errors import Closed, CommandRefused, OptionError, QueueFull, WrongContext
from tampu.events import EventWriter
from tampu.job import DEFAULT_RESULT_WAIT_S, Job, JobOptions, NewJob
from tampu.producer.batch import Batch, FullBatch, PlainBatch
from tampu.producer.batcher import LENGTH_LIMIT, MAX_IN_FLIGHT, Batcher, split
from tampu.producer.options import QueueOptions, QueueSettings
from tampu.producer.request import Request, new_job, plain_columns, request_for
from tampu.results import ResultReader
from tampu.schedules.admin import Key, Schedules
from tampu.schedules.model import Schedule, ScheduleOptions, ScheduleSettings, check_rule
from tampu.schedules.storing import NewSchedule
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, check_target, connect
from tampu.server.lane import Lane, LaneOptions
from tampu.server.streams import Copies, probe_copies
from tampu.timing import Rule
from tampu.util.clock import Duration, now_ms, to_s
from tampu.util.options import parse_options
from tampu.wire.fields import encode_name
from tampu.wire.keys import QueueKeys, check_job_name
from tampu.wire.payload import encode_payload, encode_payloads

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.25
_MOST_NAMES: Final = 1000


@dataclass(frozen=True, slots=True)
class _Line:
    """What a queue holds while it is connected."""

    loop: asyncio.AbstractEventLoop
    lane: Lane
    batcher: Batcher
    results: ResultReader
    events: EventWriter | None
    stack: AsyncExitStack


class Queue:
    """Adds jobs to a queue, from any number of tasks of one event loop.

    It connects on `async with` or on first use. `url` is a URL, a redis-py asyncio client, or None
    for TAMPU_URL and else the embedded server in `.tampu`. Options are those of `QueueSettings`.
    """

    def __init__(
        self,
        name: str,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        check_target(url, credentials)
        self._keys = QueueKeys(name)
        self._settings = parse_options(QueueSettings, "Queue", options)
        self._rules = self._settings.rules
        self._waits = self._settings.on_full == "wait"
        self._url, self._credentials = url, credentials
        self._names: dict[str, bytes] = {}
        self._opening = asyncio.Lock()
        self._line: _Line | None = None
        self._closed = False
        self.dead = DeadLetters(self._keys, self._reach)
        self._delayed = DelayedJobs(self._keys, self._reach, rules=self._rules)
        self._schedules = Schedules(self._keys, self._reach, add=self._add_full)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Queue cannot be pickled: make one where it is used")

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._keys.name

    async def __aenter__(self) -> Self:
        await self._reach()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect, behind the adds that have begun. May be called twice; it stays closed."""
        async with self._opening:
            self._closed = True
            line, self._line = self._line, None
            if line is not None:
                await line.stack.aclose()

    # --- adding ---------------------------------------------------------------------------------

    async def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> Job[Any]:
        """Add one job; when this returns, the job will be run or be a dead letter.

        `OptionError` and `EncodeError` say that it cannot be, and `QueueFull` that there is no
        room: nothing was added. After a lost connection it is sent again by itself, which adds
        nothing twice. Any other `ServerError` may leave it unknown whether it was added (its
        verdict tells): who repeats the add then, and wants one job only, gives a `job_id`.
        """
        if options:
            job = new_job(name, data, options)
            if plain_columns((job,)) is None:
                request = request_for(job, self._rules, now_ms())
                batcher = (await self._reach()).batcher
                return await self._carried(partial(batcher.add_full, request))
        payload = encode_payload(data, max_bytes=self._rules.max_payload)
        raw_name = self._raw_name(name)
        line = self._line
        if line is None or line.loop is not asyncio.get_running_loop():
            line = await self._reach()
        batcher = line.batcher
        if self._waits:
            plain = partial(batcher.add_plain, name, data, raw_name=raw_name, payload=payload)
            return await self._carried(plain)
        return await batcher.add_plain(name, data, raw_name=raw_name, payload=payload)

    async def add_many(self, jobs: Iterable[NewJob]) -> list[Job[Any]]:
        """Add many jobs in few calls; in their order, unless the connection breaks in between or
        the server has forgotten our script.

        All are checked and encoded before the first is sent. When this raises a `ServerError`, some
        may have been added all the same; but `QueueFull` for `max_len` means none of up to a
        thousand.
        """
        wanted = list(jobs)
        if (plain := plain_columns(wanted)) is not None:
            return await self._add_plain(plain.names, plain.datas)
        now, rules = now_ms(), self._rules
        return await self._add_full([request_for(job, rules, now) for job in wanted])

    async def add_each(
        self, name: str, datas: Iterable[object], **options: Unpack[JobOptions]
    ) -> list[Job[Any]]:
        """Add one job for each of the data, all of the same name and options; as `add_many`."""
        if options.get("job_id") is not None:
            raise OptionError("job_id", options["job_id"], "belongs to one job: use add_many")
        if not options:
            given = list(datas)
            return await self._add_plain([name] * len(given), given)
        return await self.add_many([new_job(name, data, options) for data in datas])

    async def _add_plain(self, names: Sequence[str], datas: Sequence[object]) -> list[Job[Any]]:
        payloads = encode_payloads(datas, max_bytes=self._rules.max_payload)
        raw_names = [self._raw_name(name) for name in names]
        batches: list[Batch] = []
        for start, end in split(payloads, most=self._settings.jobs_a_call):
            batch = PlainBatch()
            batch.names, batch.raw_names = [*names[start:end]], raw_names[start:end]
            batch.datas, batch.payloads = [*datas[start:end]], payloads[start:end]
            batches.append(batch)
        return await self._add_batches(batches)

    async def _add_full(self, requests: list[Request]) -> list[Job[Any]]:
        payloads = [request.payload for request in requests]
        batches: list[Batch] = []
        for start, end in split(payloads, most=self._settings.jobs_a_call):
            batch = FullBatch()
            batch.requests = requests[start:end]
            batches.append(batch)
        return await self._add_batches(batches)

    async def _add_batches(self, batches: list[Batch]) -> list[Job[Any]]:
        batcher = (await self._reach()).batcher
        if not batches:
            return []
        if len(batches) == 1:
            return await self._carried(partial(batcher.add_batch, batches[0]))
        slots = asyncio.Semaphore(MAX_IN_FLIGHT)  # the time limit of the others has not begun

        async def carried(batch: Batch) -> list[Job[Any]]:
            async with slots:
                return await self._carried(partial(batcher.add_batch, batch))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(carried(batch), name="tampu-add") for batch in batches]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [job for task in tasks for job in task.result()]

    async def _carried(self, put: Callable[[], Awaitable[T]]) -> T:
        """What an add comes to; if there is no room and it may wait, when there is."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await put()
            except QueueFull as refusal:
                if not self._waits or refusal.code != LENGTH_LIMIT:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _raw_name(self, name: str) -> bytes:
        """A job's name as bytes; most producers have few, which are checked once."""
        given: object = name
        raw = self._names.get(name) if isinstance(given, str) else None
        if raw is None:
            raw = encode_name(check_job_name(name))
            if len(self._names) < _MOST_NAMES:
                self._names[name] = raw
        return raw

    # --- delayed jobs ---------------------------------------------------------------------------

    async def cancel(self, job_id: str) -> bool:
        """Take a delayed job back; True only if it will not run.

        Its id is free again. A job that waits for a worker, runs or is done stays as it is. After
        a lost connection this raises, and the job may have been taken back.
        """
        (cancelled,) = await self._delayed.cancel_many([job_id])
        return cancelled

    async def cancel_many(self, job_ids: Iterable[str]) -> list[bool]:
        """As `cancel`, of many in few calls; the answers stand in the order of the ids."""
        return await self._delayed.cancel_many(job_ids)

    async def reschedule(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> bool:
        """Have a delayed job be due after `delay` from now, or at an instant.

        True only if it was still delayed. What counts from its due time moves along.
        """
        return await self._delayed.reschedule(job_id, delay=delay, at=at)

    async def run_now(self, job_id: str) -> bool:
        """Have a delayed job run as soon as a worker is free; True only if it was still delayed."""
        return await self._delayed.run_now(job_id)

    # --- schedules ------------------------------------------------------------------------------

    async def schedule(
        self, name: str, rule: Rule, data: object = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Have a worker add a job at each instant of a rule, `Every(...)` or `Cron(...)`.

        A schedule of the same key is replaced. If its rule and its start are the same, it keeps
        its next instant and its counts; otherwise it begins anew. A paused one stays paused.
        """
        settings = parse_options(ScheduleSettings, "a schedule", options)
        checked = check_rule(rule, settings)
        payload = encode_payload(data, max_bytes=self._rules.max_payload)
        wanted = NewSchedule(check_job_name(name), checked, payload, settings)
        return await self._schedules.store(wanted)

    async def schedules(self, limit: int = 100) -> list[Schedule]:
        """The schedules of the queue by their next instants; those that cannot be read say why."""
        return await self._schedules.all(limit)

    async def unschedule(self, key: Key) -> bool:
        """Remove a schedule; whether there was one. What it has fired stays."""
        return await self._schedules.remove(key)

    async def pause(self, key: Key) -> bool:
        """Have a schedule not fire until `resume`; False if there is none or it was paused."""
        return await self._schedules.pause(key)

    async def resume(self, key: Key) -> bool:
        """Have a paused schedule fire from its next instant on; what passed is only counted."""
        return await self._schedules.resume(key)

    async def trigger(self, key: Key) -> Job[Any]:
        """Add one job of a schedule now, out of turn; it counts towards no limit."""
        return await self._schedules.trigger(key)

    async def backfill(
        self, key: Key, start: datetime, end: datetime, *, max: int = 1000
    ) -> list[Job[Any]]:
        """Add a job for each instant of a schedule from `start` up to `end`, `end` left out.

        `OptionError`, and nothing is added, if there are more than `max`.
        """
        return await self._schedules.backfill(key, start, end, most=max)

    async def preview(self, what: Key | Rule, n: int = 5) -> list[datetime]:
        """The next n instants of a schedule, or of a rule if it were stored now."""
        return await self._schedules.preview(what, n)

    # --- looking --------------------------------------------------------------------------------

    async def counts(self) -> Counts:
        """How many jobs wait, run, are delayed and are dead, and how many schedules there are."""
        line = await self._reach()
        return await count_jobs(line.lane, self._keys, self._settings.group.encode())

    async def result(self, job_id: str, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> object:
        """What a job's handler returned, as soon as it is there.

        Raises `JobFailed` if the job was buried and `ResultTimeout` when the time is up.
        """
        timeout_s = to_s("timeout", timeout)
        line = await self._reach()
        return await line.results.wait(job_id, timeout_s)

    async def results(self, job_ids: Sequence[str]) -> dict[str, object]:
        """What is there by now, by job id; of a job that failed, the `JobFailed`."""
        if isinstance(job_ids, str):
            raise OptionError("job_ids", job_ids, "expected several ids: a list of texts")
        line = await self._reach()
        return await line.results.get_many(job_ids)

    async def raw_results(self, job_ids: Sequence[str]) -> list[bytes | None]:
        """The bytes that are stored as results, in the order of the ids; for codecs of your own."""
        return await (await self._reach()).results.get_raw(job_ids)

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """As `result`; for the jobs that this queue gave out."""
        return await self.result(job_id, timeout)

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Refused: only the worker that runs a job knows how far it is."""
        del job, percent
        raise WrongContext("report progress here", "only the handler that runs the job can")

    # --- connecting -----------------------------------------------------------------------------

    async def _reach(self) -> _Line:
        """The connection, made on first use; several tasks may ask at once."""
        if self._line is None:
            async with self._opening:
                if self._closed:
                    raise Closed(f"queue {self.name}")
                if self._line is None:
                    self._line = await self._opened()
        if self._line.loop is not asyncio.get_running_loop():
            raise WrongContext(f"use {self!r} here", "it belongs to another event loop")
        return self._line

    async def _opened(self) -> _Line:
        calls = self._settings.calls
        async with AsyncExitStack() as stack:
            server = await connect(self._url, credentials=self._credentials)
            await stack.enter_async_context(server)
            options = LaneOptions(limit_s=calls.limit_s)
            lane = await Lane.open(server, self._keys.stream, options=options)
            await stack.enter_async_context(lane)
            if calls.copies is not None:
                await _probe(lane, calls.copies)
            results = ResultReader(server, self._keys)
            stack.push_async_callback(results.close)
            events = EventWriter(lane, self._keys.events) if self._settings.events else None
            if events is not None:
                stack.push_async_callback(events.close)
            batcher = Batcher(lane, self._keys, host=self, options=calls, events=events)
            stack.push_async_callback(batcher.close)
            loop = asyncio.get_running_loop()
            return _Line(loop, lane, batcher, results, events, stack.pop_all())


async def _probe(lane: Lane, copies: Copies) -> None:
    try:
        await probe_copies(lane, copies)
    except CommandRefused as refusal:
        accepted = f"cannot be had from {lane.server.name}, which says: {refusal.problem}"
        raise OptionError("durability", copies.value, accepted) from refusal
