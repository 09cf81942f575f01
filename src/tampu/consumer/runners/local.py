"""The three ways to run a handler: on the loop, in a thread, in a child process.

Each turns whatever the handler does into an outcome; only cancellation is raised.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final, Protocol, TypeVar, assert_never

from msgspec import Raw

from tampu.consumer.batching import BatchDelivery
from tampu.consumer.handler import (
    Function,
    Handler,
    HandlerPlan,
    Place,
    Runner,
    check_batch_isolation,
    timeout_s_of,
)
from tampu.consumer.intake import Delivery
from tampu.consumer.options import WorkerSettings
from tampu.consumer.reporter import wants_traceback
from tampu.consumer.runners.child import (
    ChildChunk,
    ChildOutput,
    ChildRequest,
    ChunkTaken,
    Progress,
    Report,
)
from tampu.consumer.runners.children import Children
from tampu.consumer.runners.threads import HandlerThreads
from tampu.consumer.runners.traced import note_errors
from tampu.errors import Closed, JobCancelled
from tampu.job import Job, unmark_cancelled
from tampu.outcome import (
    MAX_RESULT_BYTES,
    Done,
    Outcome,
    Released,
    outcome_of_error,
    outcome_of_value,
)
from tampu.util.lifecycle import cancel_all, ignore_outcome
from tampu.util.options import is_async
from tampu.wire.output import JobOutput
from tampu.wire.payload import encode_payload, is_own_payload

T = TypeVar("T")
_PLAIN: Final = frozenset({bool, int, float, str, bytes, list, dict})
_DONE: Final = Done(None)


class LoopRunner:
    """Runs async functions on the worker's loop."""

    place: Final = Place.LOOP

    def __init__(self, function: Function) -> None:
        self._function: Any = function  # known to return an awaitable

    async def run(self, delivery: Delivery) -> Outcome:
        """Await the function."""
        try:
            value = await self._function(delivery.job)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not _is_loop_running():
                raise  # not raised by the handler: the loop has ended, and this task with it
            return outcome_of_error(error, traced=wants_traceback(delivery))
        if value is None:
            return _DONE
        return Done(value) if type(value) in _PLAIN else outcome_of_value(value)

    def abandon(self) -> None:
        """Do nothing: it holds no thread."""

    async def close(self) -> None:
        """Do nothing: there is nothing to end."""


class BatchRunner:
    """Runs functions that take a `JobBatch`, on the loop or in threads."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.place: Final = runner.place

    async def run(self, delivery: BatchDelivery) -> Outcome:
        """Free the unique keys of its jobs that are held until now, then run the function."""
        return await self._runner.run(delivery) if await delivery.prepare() else Released()

    def abandon(self) -> None:
        """Passed on."""
        self._runner.abandon()

    async def close(self) -> None:
        """Passed on."""
        await self._runner.close()


class CallsFunctions(Protocol):
    """Threads that call functions; `HandlerThreads` explains the methods."""

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function, which must not raise, in a thread."""

    def replace(self) -> None:
        """Go on with new threads."""

    def close(self) -> None:
        """Begin no more calls."""


class ThreadRunner:
    """Runs plain functions in threads, each with the context of the worker's task."""

    place: Final = Place.THREAD

    def __init__(self, function: Function, threads: CallsFunctions) -> None:
        self._function = function
        self._threads = threads

    async def run(self, delivery: Delivery) -> Outcome:
        """Call the function in a thread, to its end."""
        outcome = await self._threads.call(partial(copy_context().run, self._call, delivery))
        if isinstance(outcome, Done) and isawaitable(outcome.value):
            # It was not a plain function after all: a lambda that calls an async one, for instance.
            return await self._await(outcome.value, delivery)
        return outcome

    async def _await(self, value: Awaitable[object], delivery: Delivery) -> Outcome:
        try:
            return outcome_of_value(await value)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
            return outcome_of_error(error, traced=wants_traceback(delivery))

    def _call(self, delivery: Delivery) -> Outcome:
        try:
            return outcome_of_value(self._function(delivery.job))
        except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
            return outcome_of_error(error, traced=wants_traceback(delivery))
        finally:
            unmark_cancelled(delivery.job)

    def abandon(self) -> None:
        """Replace the thread of a function that goes on."""
        self._threads.replace()

    async def close(self) -> None:
        """Start nothing more; a function that still runs goes on to its end."""
        self._threads.close()


class _ChildRelay:
    """Passes on what a job in a child process tells: its progress, and what it yields."""

    def __init__(self, job: Job[Any]) -> None:
        self._job = job
        self._output: JobOutput | None = None
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._writing: asyncio.Task[None] | None = None

    def take(self, report: Report, answer: Callable[[ChunkTaken], Awaitable[None]]) -> None:
        """The job has told something."""
        match report:
            case Progress(percent):
                self._job.host.report_progress(self._job, percent)
            case ChildOutput(rules):
                output = self._output = self._job.host.open_output(self._job, rules)
                writing = asyncio.create_task(self._write(output, answer), name="tampu-relay")
                writing.add_done_callback(ignore_outcome)
                self._writing = writing
            case ChildChunk(data):
                self._chunks.put_nowait(data)
            case _:
                assert_never(report)

    async def end(self) -> None:
        """The attempt has ended: write what it has yielded."""
        if self._writing is not None:
            await cancel_all([self._writing])
        if self._output is not None:
            with suppress(Closed, JobCancelled):
                await self._output.flush()

    async def _write(
        self, output: JobOutput, answer: Callable[[ChunkTaken], Awaitable[None]]
    ) -> None:
        while True:
            await output.put(Raw(await self._chunks.get()))
            await answer(ChunkTaken())


class ProcessRunner:
    """Runs functions in child processes, which can be killed."""

    place: Final = Place.PROCESS

    def __init__(self, function: Function, *, limit: int) -> None:
        self._children = Children(function, limit=limit)

    async def run(self, delivery: Delivery) -> Outcome:
        """Call the function in a child, which is killed at the time limit."""
        job = delivery.job
        request = ChildRequest(
            job_id=job.id,
            name=job.name,
            payload=_payload_of(delivery),
            attempt=job.attempt,
            created_at_ms=job.created_at_ms,
            extras=delivery.extras or None,
        )
        relay = _ChildRelay(job)
        try:
            return await self._children.run(
                request, timeout_s=delivery.timeout_s, on_report=relay.take
            )
        finally:
            await relay.end()

    def abandon(self) -> None:
        """Do nothing: a killed process ends."""

    async def close(self) -> None:
        """End the children."""
        await self._children.close()


def _payload_of(delivery: Delivery) -> bytes:
    """The data of a job as a child gets it: of a flow's job with the values that it needs."""
    payload = delivery.envelope.payload
    if not is_own_payload(payload):
        return payload
    return encode_payload(delivery.job.data, max_bytes=MAX_RESULT_BYTES)


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def make_plans(
    handlers: Mapping[str | None, Handler], settings: WorkerSettings
) -> dict[str | None, HandlerPlan]:
    """How to run the jobs of each name; starts no thread or process yet."""
    threads = HandlerThreads(settings.concurrency)
    return {
        name: HandlerPlan(
            _make_runner(handler, settings, threads),
            handler.attempts or settings.attempts,
            handler.backoff or settings.backoff,
            timeout_s_of(settings.timeout if handler.timeout is None else handler.timeout),
            settings.kept_results(handler.result_ttl),
            handler.batch,
            handler.streams,
        )
        for name, handler in handlers.items()
    }


def _make_runner(handler: Handler, settings: WorkerSettings, threads: HandlerThreads) -> Runner:
    function: Any = handler.function
    isolation = handler.isolation or settings.isolation
    if handler.batch is not None:
        check_batch_isolation(isolation)
    if isolation == "process":
        return ProcessRunner(function, limit=settings.concurrency)
    if settings.telemetry is not None:
        function = note_errors(function)
    runner = LoopRunner(function) if is_async(function) else ThreadRunner(function, threads)
    return runner if handler.batch is None else BatchRunner(runner)
