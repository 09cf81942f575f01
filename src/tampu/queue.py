"""A queue: add jobs, ask about them, stop them, and wait for their results."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, Self, TypeVar, Unpack

from msgspec.structs import replace

from tampu.admin.conflicts import Conflicts
from tampu.admin.control import JobControl
from tampu.admin.dead import DeadLetters
from tampu.admin.flows import Flows
from tampu.admin.history import failure_groups, read_history
from tampu.admin.limits import Limits, pause_jobs, resume_jobs
from tampu.admin.listing import MAX_LISTED, JobListing
from tampu.admin.queues import Counts, count_jobs, drain
from tampu.errors import Closed, OptionError, WrongContext
from tampu.job import CancelState, Job, JobOptions, JobState, NewJob
from tampu.limits.model import NO_NAMED, NamedLimits
from tampu.metrics.history import FailureGroup, History, Span, parse_span
from tampu.producer.batch import AddBatch, FullBatch, PlainBatch
from tampu.producer.batcher import add_together, split, wait_for_room
from tampu.producer.connection import QueueConnection
from tampu.producer.options import QueueOptions, QueueSettings
from tampu.producer.request import Request, new_job, plain_columns, plain_request, request_for
from tampu.producer.traced import make_traced
from tampu.schedules.admin import Schedules
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, check_target
from tampu.server.listening import share
from tampu.server.scripts.control import is_paused
from tampu.util.clock import Duration, now_ms, to_s
from tampu.util.ids import time_of_id
from tampu.util.options import parse_options
from tampu.wire.fields import encode_name
from tampu.wire.keys import QueueKeys
from tampu.wire.names import check_job_id, check_job_name, warn_if_reserved
from tampu.wire.output import OutputRules
from tampu.wire.payload import encode_payload, encode_payloads
from tampu.wire.result import NodeResults

T = TypeVar("T")

_MOST_NAMES: Final = 1000


class Queue:
    """Adds jobs to a queue, from any number of tasks of one event loop.

    It connects on `async with` or on first use. `url` is a URL, a redis-py asyncio client, or None
    for TAMPU_URL and otherwise the embedded server in `.tampu`. Options are those of
    `QueueSettings`.
    """

    _limits: NamedLimits = NO_NAMED

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
        warn_if_reserved(name)
        self._settings = parse_options(QueueSettings, "Queue", options)
        self._rules = replace(self._settings.job_rules, limits=self._limits)
        self._waits = self._settings.on_full == "wait"
        self._traced = make_traced(self._settings.telemetry, name)
        self._is_plain = not self._waits and self._traced is None
        self._shared = share(url, credentials)
        self._names: dict[str, bytes] = {}
        self._connecting = asyncio.Lock()
        self._connection: QueueConnection | None = None
        self._closed = False
        self.dead = DeadLetters(self._keys, self._connect)
        self._jobs = JobControl(
            self._keys, self._connect, rules=self._rules, group=self._settings.group
        )
        self.limits = Limits(self._keys, self._connect)
        self.flows = Flows(self._keys, self._connect)
        self._conflicts = Conflicts(
            self._keys, self._connect, control=self._jobs, add=self._add_one
        )
        self.schedules = Schedules(
            self._keys,
            self._connect,
            max_payload=self._rules.max_payload,
            limits=self._limits,
            add_jobs=self._add_full,
            headers=None if self._traced is None else self._traced.headers,
        )

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Queue cannot be pickled. Create one where it is used.")

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._keys.name

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let running adds finish, then disconnect. May be called twice. It cannot be reopened."""
        async with self._connecting:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()

    async def _connect(self) -> QueueConnection:
        """The connection, opened on first use; several tasks may call this at once."""
        if self._connection is None:
            async with self._connecting:
                if self._closed:
                    raise Closed(f"queue {self.name}")
                if self._connection is None:
                    self._connection = await QueueConnection.open(
                        self._keys,
                        self._settings,
                        host=self,
                        shared=self._shared,
                    )
        if self._connection.loop is not asyncio.get_running_loop():
            raise WrongContext(f"use {self!r} here", "it belongs to another event loop")
        return self._connection

    # --- adding ---------------------------------------------------------------------------------

    async def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> Job[Any]:
        """Add one job. Once this returns, the job will run or become a dead letter.

        `OptionError`, `EncodeError` and `QueueFull` mean that nothing was added. After a lost
        connection the job is sent again automatically and never added twice. After any other
        `ServerError` the job may or may not have been added (see its `verdict`); to repeat such an
        add safely, pass a `job_id`.
        """
        if options:
            job = new_job(name, data, options)
            if plain_columns((job,)) is None:
                request = request_for(job, self._rules, now_ms())
                added = await self._add_one(request)
                return await self._conflicts.resolve(request, added) if added.duplicate else added
        payload = encode_payload(data, max_bytes=self._rules.max_payload)
        raw_name = self._encode_name(name)
        connection = self._connection
        if connection is None or connection.loop is not asyncio.get_running_loop():
            connection = await self._connect()
        batcher = connection.batcher
        if self._is_plain:
            return await batcher.add_plain(name, data, raw_name=raw_name, payload=payload)
        if self._traced is not None:
            return await self._add_one(
                plain_request(name, data, raw_name=raw_name, payload=payload)
            )
        add = partial(batcher.add_plain, name, data, raw_name=raw_name, payload=payload)
        return await wait_for_room(add, waits=True)

    async def add_many(self, jobs: Iterable[NewJob]) -> list[Job[Any]]:
        """Add many jobs in few calls.

        All jobs are checked and encoded before the first is sent. Their order is kept unless the
        connection breaks or the server has lost our script. After a `ServerError` some may have
        been added. `QueueFull` for `max_len` means that none was added, for up to 1000 jobs.
        """
        wanted = list(jobs)
        if (plain := plain_columns(wanted)) is not None:
            return await self._add_plain(plain.names, plain.datas)
        now, rules = now_ms(), self._rules
        return await self._add_full([request_for(job, rules, now) for job in wanted])

    async def add_each(
        self, name: str, datas: Iterable[object], **options: Unpack[JobOptions]
    ) -> list[Job[Any]]:
        """Add one job for each item of data, with the same name and options; see `add_many`."""
        if options.get("job_id") is not None:
            problem = "cannot be shared by several jobs; use add_many"
            raise OptionError("job_id", options["job_id"], problem)
        if not options:
            given = list(datas)
            return await self._add_plain([name] * len(given), given)
        return await self.add_many([new_job(name, data, options) for data in datas])

    async def _add_plain(self, names: Sequence[str], datas: Sequence[object]) -> list[Job[Any]]:
        payloads = encode_payloads(datas, max_bytes=self._rules.max_payload)
        raw_names = [self._encode_name(name) for name in names]
        if self._traced is not None:
            columns = zip(names, datas, raw_names, payloads, strict=True)
            return await self._add_full(
                [
                    plain_request(name, data, raw_name=raw_name, payload=payload)
                    for name, data, raw_name, payload in columns
                ]
            )
        batches: list[AddBatch] = []
        for start, end in split(payloads, most=self._settings.jobs_a_call):
            batch = PlainBatch()
            batch.names, batch.raw_names = [*names[start:end]], raw_names[start:end]
            batch.datas, batch.payloads = [*datas[start:end]], payloads[start:end]
            batches.append(batch)
        return await self._add_batches(batches)

    async def _add_one(self, request: Request) -> Job[Any]:
        connection = await self._connect()
        waits = self._waits or request.waits
        wait, add = partial(wait_for_room, waits=waits), connection.batcher.add_full
        if self._traced is None:
            return await wait(partial(add, request))
        return await self._traced.add_one(
            request, connection, lambda marked: wait(partial(add, marked))
        )

    async def _add_traced(self, requests: list[Request]) -> list[Job[Any]]:
        if self._traced is None or not requests:
            return await self._send_full(requests)
        return await self._traced.add_many(requests, await self._connect(), self._send_full)

    async def _add_full(self, requests: list[Request]) -> list[Job[Any]]:
        jobs = await self._add_traced(requests)
        for place, job in enumerate(jobs):
            if job.duplicate:
                jobs[place] = await self._conflicts.resolve(requests[place], job)
        return jobs

    async def _send_full(self, requests: list[Request]) -> list[Job[Any]]:
        payloads = [request.payload for request in requests]
        waits = any(request.waits for request in requests)
        batches: list[AddBatch] = []
        for start, end in split(payloads, most=1 if waits else self._settings.jobs_a_call):
            batch = FullBatch()
            batch.requests = requests[start:end]
            batches.append(batch)
        return await self._add_batches(batches, waits=waits)

    async def _add_batches(self, batches: list[AddBatch], *, waits: bool = False) -> list[Job[Any]]:
        batcher = (await self._connect()).batcher
        wait = partial(wait_for_room, waits=waits or self._waits)
        if not batches:
            return []
        if len(batches) == 1:
            return await wait(partial(batcher.add_batch, batches[0]))
        added = await add_together(batches, lambda each: wait(partial(batcher.add_batch, each)))
        return [job for jobs in added for job in jobs]

    def _encode_name(self, name: str) -> bytes:
        """A job's name as bytes. Most producers use few names, so they are checked once."""
        given: object = name
        raw = self._names.get(name) if isinstance(given, str) else None
        if raw is None:
            raw = encode_name(check_job_name(name))
            if len(self._names) < _MOST_NAMES:
                self._names[name] = raw
        return raw

    # --- asking and stopping --------------------------------------------------------------------

    def job(self, job_id: str) -> Job[Any]:
        """The job with this id, whoever added it: ask about it, wait for it, cancel it.

        Asks the server nothing. Its name and data are in `info()`.
        """
        created_ms = time_of_id(check_job_id(job_id)) or 0
        return Job(job_id, "", None, 0, created_ms, self)

    def jobs(
        self,
        *,
        state: JobState | str | None = None,
        name: str | None = None,
        newest_first: bool = False,
        most: int | None = MAX_LISTED,
    ) -> JobListing:
        """The jobs in a state, or in all states, with this name: `async for info in ...`.

        Reads them page by page, and looks at no more than `most` of them (None: all).
        """
        return JobListing(
            self._keys,
            self._connect,
            state=state,
            name=name,
            newest_first=newest_first,
            most=most,
        )

    async def cancel_many(self, job_ids: Iterable[str]) -> list[CancelState]:
        """As `job(id).cancel()`, for many jobs; the answers are in the order of the ids."""
        return await self._jobs.cancel_many(job_ids)

    async def pause(
        self,
        *,
        task: str | None = None,
        key: str | int | None = None,
        until: datetime | Duration | None = None,
    ) -> bool:
        """Let no worker start another job until `resume`; False if it was paused already.

        With `task` or `key`, only jobs of that name or key, or of both. `until` is a time, or how
        long. Running jobs go on. Delayed jobs and schedules keep their times, and their jobs wait.
        It stays paused when workers and the server are restarted.
        """
        lane = (await self._connect()).lane
        return await pause_jobs(lane, self._keys, task=task, key=key, until=until)

    async def resume(self, *, task: str | None = None, key: str | int | None = None) -> bool:
        """Let workers start jobs again; False if it was not paused.

        With `task` or `key`, what was paused with the same.
        """
        return await resume_jobs((await self._connect()).lane, self._keys, task=task, key=key)

    async def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return await is_paused((await self._connect()).lane, self._keys)

    async def drain(self, *, delayed: bool = False, timeout: Duration | None = None) -> Counts:
        """Wait until no job is waiting or active; with `delayed`, until none is delayed either.

        Returns the last counts, also when the time is up.
        """
        lane, group = (await self._connect()).lane, self._settings.group
        timeout_s = None if timeout is None else to_s("timeout", timeout)
        return await drain(lane, self._keys, group=group, delayed=delayed, timeout_s=timeout_s)

    # --- counts and results ---------------------------------------------------------------------

    async def counts(self) -> Counts:
        """How many jobs are waiting, active, delayed and dead, and how many schedules there are."""
        connection = await self._connect()
        return await count_jobs(connection.lane, self._keys, self._settings.group.encode())

    async def results(self, job_ids: Sequence[str]) -> dict[str, object]:
        """The results that exist now, by job id.

        The value of a job that failed is its `JobFailed`, of one that was cancelled `JobCancelled`.
        """
        if isinstance(job_ids, str):
            raise OptionError("job_ids", job_ids, "expected a list of ids")
        return await (await self._connect()).results.get_many(job_ids)

    async def raw_results(self, job_ids: Sequence[str]) -> list[bytes | None]:
        """The stored bytes of results, in the order of the ids, to decode them yourself."""
        return await (await self._connect()).results.get_raw(job_ids)

    async def history(self, span: Span | str = Span.HOUR) -> History:
        """What happened in the last hour ("1h"), day ("24h") or 30 days ("30d"), step by step.

        Workers record it every ten seconds, unless they have `history=False`.
        """
        chosen = parse_span("span", span)
        return await read_history((await self._connect()).lane, self._keys, chosen)

    async def failures(self) -> list[FailureGroup]:
        """Failed attempts of the last 30 days by error and place; the latest group first."""
        return await failure_groups((await self._connect()).lane, self._keys)

    # --- what jobs call -------------------------------------------------------------------------

    @property
    def actions(self) -> JobControl:
        """What a job of this queue can do."""
        return self._jobs

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """Wait for the value that a job's handler returned."""
        return await (await self._connect()).results.wait(job_id, to_s("timeout", timeout))

    def read_results(self, of: NodeResults) -> AsyncIterator[object]:
        """Raises `WrongContext`: `FlowRun.completed` reads them for others."""
        raise WrongContext("read results of a node here", "only the handler that gets them can")

    def charge(self, resources: list[str], tokens: int) -> None:
        """Raises `WrongContext`: only the handler that runs a job can charge a limit."""
        del resources, tokens
        raise WrongContext("charge a limit here", "only the handler that runs the job can")

    def open_output(self, job: Job[Any], rules: OutputRules) -> NoReturn:
        """Raises `WrongContext`: only the handler that runs a job can write its stream."""
        del job, rules
        raise WrongContext("write a stream here", "only the handler that runs the job can")

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Raises `WrongContext`: only the handler that runs a job can report progress."""
        del job, percent
        raise WrongContext("report progress here", "only the handler that runs the job can")
