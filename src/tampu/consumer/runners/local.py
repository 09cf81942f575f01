"""The three ways to run a handler: on the loop, in a thread, in a child process.

Each turns whatever the handler does into an outcome; only cancellation passes.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from time import monotonic
from typing import Any

from tampu.consumer.handler import Function, Handler, HandlerPlan, Runner, timeout_s_of
from tampu.consumer.intake import Delivery
from tampu.consumer.options import WorkerSettings
from tampu.consumer.runners.child import ChildRequest
from tampu.consumer.runners.children import Children
from tampu.job import enter_job
from tampu.outcome import Done, Outcome, outcome_of_error, outcome_of_value, timed_out
from tampu.util.functions import is_async

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, dict})


class LoopRunner:
    """Async functions, on the worker's own loop."""

    def __init__(self, function: Function) -> None:
        self._function: Any = function  # known to give something to await

    async def run(self, delivery: Delivery) -> Outcome:
        """Await the function; a time limit cancels it."""
        job = delivery.job
        enter_job(job)
        try:
            if delivery.timeout_s is None:
                value = await self._function(job)
            else:
                return await self._limited(delivery, delivery.timeout_s)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not _loop_runs():
                raise  # not the handler's: the loop is gone, and this task with it
            return outcome_of_error(error, last=job.attempt >= delivery.budget)
        return Done(value) if type(value) in _PLAIN else outcome_of_value(value)

    async def _limited(self, delivery: Delivery, limit_s: float) -> Outcome:
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return outcome_of_value(await self._function(delivery.job))
        except TimeoutError:
            if not limit.expired():
                raise
            return timed_out(limit_s)

    async def close(self) -> None:
        """Nothing to let go of."""


class ThreadRunner:
    """Plain functions, each in a thread, with the context of the worker's task."""

    def __init__(self, function: Function, threads: ThreadPoolExecutor) -> None:
        self._function = function
        self._threads = threads

    async def run(self, delivery: Delivery) -> Outcome:
        """Call the function in a thread. It cannot be interrupted: past its time it has failed."""
        enter_job(delivery.job)
        loop = asyncio.get_running_loop()
        began = monotonic()
        outcome = await loop.run_in_executor(
            self._threads, copy_context().run, self._call, delivery
        )
        if isinstance(outcome, Done) and isawaitable(outcome.value):
            # It was no plain function after all: a lambda around an async one, mostly.
            outcome = await self._awaited(outcome.value, delivery)
        limit_s = delivery.timeout_s
        if limit_s is not None and monotonic() - began > limit_s:
            return timed_out(limit_s)
        return outcome

    async def _awaited(self, value: Awaitable[object], delivery: Delivery) -> Outcome:
        try:
            return outcome_of_value(await value)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
            return outcome_of_error(error, last=delivery.job.attempt >= delivery.budget)

    def _call(self, delivery: Delivery) -> Outcome:
        try:
            return outcome_of_value(self._function(delivery.job))
        except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
            return outcome_of_error(error, last=delivery.job.attempt >= delivery.budget)

    async def close(self) -> None:
        """Start nothing more; a function that still runs goes on to its end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class ProcessRunner:
    """Functions in child processes, which can be killed."""

    def __init__(self, function: Function, *, limit: int) -> None:
        self._children = Children(function, limit=limit)

    async def run(self, delivery: Delivery) -> Outcome:
        """Have a child call the function; a time limit, or the child's end, fails the attempt."""
        job, envelope = delivery.job, delivery.envelope
        request = ChildRequest(
            job_id=job.id,
            name=job.name,
            payload=envelope.payload,
            attempt=job.attempt,
            created_at_ms=job.created_at_ms,
            extras=delivery.extras or None,
        )
        return await self._children.run(
            request,
            timeout_s=delivery.timeout_s,
            on_progress=partial(job.host.report_progress, job),
        )

    async def close(self) -> None:
        """End the children."""
        await self._children.close()


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def make_plans(
    handlers: Mapping[str | None, Handler], settings: WorkerSettings
) -> dict[str | None, HandlerPlan]:
    """How the jobs of each name are run; starts no thread and no process yet."""
    threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="tampu-handler")
    return {
        name: HandlerPlan(
            _runner(handler, settings, threads),
            handler.attempts or settings.attempts,
            handler.backoff or settings.backoff,
            timeout_s_of(settings.timeout if handler.timeout is None else handler.timeout),
        )
        for name, handler in handlers.items()
    }


def _runner(handler: Handler, settings: WorkerSettings, threads: ThreadPoolExecutor) -> Runner:
    if (handler.isolation or settings.isolation) == "process":
        return ProcessRunner(handler.function, limit=settings.concurrency)
    if is_async(handler.function):
        return LoopRunner(handler.function)
    return ThreadRunner(handler.function, threads)
