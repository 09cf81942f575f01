"""Runs that telemetry is told about.

A worker with telemetry has these runners around its own, and functions that note what they raise.
Without telemetry neither exists.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import replace
from inspect import isawaitable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from tampu.consumer.batch import JobBatch
from tampu.consumer.batching import jobs_of
from tampu.consumer.handler import Place
from tampu.metrics.facts import OUTCOME_KINDS
from tampu.metrics.telemetry import Endpoint, JobRun, RunEnd, SafeTelemetry
from tampu.outcome import (
    Cancelled,
    Failed,
    Outcome,
    Released,
    UnrecoverableFailure,
    outcome_after_limit,
    outcome_of_error,
    timeout_outcome,
)
from tampu.util.clock import now_ms
from tampu.util.options import is_async
from tampu.wire.dead import Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tampu.consumer.batching import Work
    from tampu.consumer.handler import Function, HandlerPlan, Runner
    from tampu.consumer.options import WorkerSettings
    from tampu.job import Job
    from tampu.server.lane import Lane

_SLACK_S: Final = 0.02  # the pool's clock for the limit of an attempt starts a little earlier
_CANCELLED_ITSELF: Final = Failed(Failure("CancelledError", "the handler was cancelled"))


class _Noted:
    """What the function of an attempt raised, and whether its job was cancelled by then."""

    __slots__ = ("error", "is_cancelled")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.is_cancelled = False


_noted: ContextVar[_Noted] = ContextVar("tampu_noted")


class TracedRunner:
    """Tells telemetry about each attempt of another runner, in the context of the handler."""

    def __init__(
        self, runner: Runner, telemetry: SafeTelemetry, *, endpoint: Callable[[], Endpoint]
    ) -> None:
        self._runner, self._telemetry, self._endpoint = runner, telemetry, endpoint

    @property
    def place(self) -> Place:
        """Where the function runs."""
        return self._runner.place

    async def run(self, delivery: Work) -> Outcome:
        """Run the function for one delivery."""
        began = perf_counter()  # before telemetry takes its time: the limit of the attempt runs
        span = self._telemetry.start_run(self._describe(delivery))
        noted = _Noted()
        token = _noted.set(noted)
        error: BaseException | None = None
        try:
            outcome = told = await self._runner.run(delivery)
            told = self._after_limit(delivery, outcome, perf_counter() - began)
            if noted.is_cancelled:
                told = Cancelled()
        except asyncio.CancelledError as cancelled:
            error = cancelled
            told = self._outcome_of_cancelling(delivery, perf_counter() - began)
        except Exception as unexpected:  # noqa: BLE001 - raised again below
            error, told = unexpected, outcome_of_error(unexpected)
        _noted.reset(token)
        span.end(_run_end(told, perf_counter() - began, noted.error))
        noted.error = None  # it refers to the frames that refer to it
        if error is None:
            return outcome
        try:
            raise error
        finally:
            del error

    def abandon(self) -> None:
        """Passed on."""
        self._runner.abandon()

    async def close(self) -> None:
        """Passed on."""
        await self._runner.close()

    def _describe(self, delivery: Work) -> JobRun:
        job, jobs = delivery.job, jobs_of((delivery,))
        added_ms = min(int(each.entry_id.partition(b"-")[0]) for each in jobs)  # again for a retry
        return JobRun(
            endpoint=self._endpoint(),
            job=job,
            attempts=delivery.budget,
            wait_ms=max(0, now_ms() - added_ms),
            delay_ms=max(0, added_ms - job.created_at_ms),
            body_bytes=sum(len(each.envelope.payload) for each in jobs),
            jobs=job.jobs if isinstance(job, JobBatch) else (),
        )

    def _after_limit(self, delivery: Work, outcome: Outcome, duration_s: float) -> Outcome:
        """What the pool will make of it: a late attempt has failed."""
        limit_s = delivery.timeout_s
        if limit_s is None or duration_s <= limit_s or self.place is Place.PROCESS:
            return outcome
        return outcome_after_limit(outcome, limit_s)

    def _outcome_of_cancelling(self, delivery: Work, duration_s: float) -> Outcome:
        """Why the attempt was cancelled: by its limit, by a user, by the stop of the worker."""
        limit_s, task = delivery.timeout_s, asyncio.current_task()
        if limit_s is not None and duration_s >= limit_s - _SLACK_S:
            return timeout_outcome(limit_s)
        if delivery.job.cancelled:
            return Cancelled()
        return Released() if task is not None and task.cancelling() else _CANCELLED_ITSELF


def _run_end(outcome: Outcome, duration_s: float, error: BaseException | None) -> RunEnd:
    kind = OUTCOME_KINDS[type(outcome)]
    if isinstance(outcome, Failed | UnrecoverableFailure):
        return RunEnd(kind, duration_s, outcome.failure, error)
    return RunEnd(kind, duration_s)


def trace_plans(
    plans: Mapping[str | None, HandlerPlan],
    settings: WorkerSettings,
    *,
    lane: Lane,
    queue: str,
    worker: str,
) -> Mapping[str | None, HandlerPlan]:
    """The plans of a worker: the same, unless it has telemetry to tell about each run."""
    if settings.telemetry is None:
        return plans
    telemetry, group = SafeTelemetry(settings.telemetry), settings.group

    def endpoint() -> Endpoint:
        return Endpoint(queue, worker, *lane.address, group)

    return {
        name: replace(plan, runner=TracedRunner(plan.runner, telemetry, endpoint=endpoint))
        for name, plan in plans.items()
    }


def note_errors(function: Function) -> Function:
    """The function; what it raises is noted for the traced runner that runs it."""
    called: Any = function

    async def finish(value: Awaitable[object], job: Job[Any]) -> object:
        try:
            return await value
        except BaseException as error:
            _note(error, job)
            raise

    async def run(job: Job[Any]) -> object:
        try:
            return await called(job)
        except BaseException as error:
            _note(error, job)
            raise

    def run_plainly(job: Job[Any]) -> object:
        try:
            value = called(job)
        except BaseException as error:
            _note(error, job)
            raise
        return finish(value, job) if isawaitable(value) else value  # a decorator may hide that

    return run if is_async(function) else run_plainly


def _note(error: BaseException, job: Job[Any]) -> None:
    noted = _noted.get(None)
    if noted is not None:
        noted.error, noted.is_cancelled = error, job.cancelled
