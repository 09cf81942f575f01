"""Deliveries for tests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from tampu.backoff import Backoff
from tampu.consumer.handler import NOTHING_KEPT, HandlerPlan, KeptResults, Place, Runner
from tampu.consumer.intake import Delivery
from tampu.job import Job, JobActions
from tampu.outcome import Done, Outcome
from tampu.util.clock import Duration
from tampu.wire.envelope import Envelope, RetryOverride
from tampu.wire.extras import NO_EXTRAS, Extras, encode_extras
from tampu.wire.output import JobOutput, OutputRules
from tampu.wire.result import NodeResults

PAYLOAD = b"\x01"
ADDED_MS = 1000


class NoHost:
    """A host that supports nothing."""

    @property
    def actions(self) -> JobActions:
        raise NotImplementedError

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        raise NotImplementedError

    def charge(self, resources: list[str], tokens: int) -> None:
        raise NotImplementedError

    def read_results(self, of: NodeResults) -> AsyncIterator[object]:
        raise NotImplementedError

    def open_output(self, job: Job[Any], rules: OutputRules) -> JobOutput:
        raise NotImplementedError

    def report_progress(self, job: Job[Any], percent: int) -> None:
        raise NotImplementedError


async def at_once(delivery: Delivery) -> Outcome:
    return Done(delivery.job.data)


class FunctionRunner:
    """A runner that calls a function."""

    place: Final = Place.LOOP

    def __init__(self, run: Callable[[Delivery], Awaitable[Outcome]] = at_once) -> None:
        self._run = run

    async def run(self, delivery: Any) -> Outcome:  # noqa: ANN401 - as the protocol has it
        return await self._run(delivery)

    def abandon(self) -> None:
        """Nothing to make up for."""

    async def close(self) -> None:
        """Nothing to end."""


def plan(
    run: Callable[[Delivery], Awaitable[Outcome]] = at_once,
    *,
    attempts: int = 3,
    backoff: Backoff | None = None,
    timeout_s: float | None = None,
    results: KeptResults = NOTHING_KEPT,
) -> HandlerPlan:
    runner = FunctionRunner(run)
    return HandlerPlan(runner, attempts, backoff or Backoff.fixed(0.05), timeout_s, results)


def runner_plan(runner: Runner) -> HandlerPlan:
    """The plan of a handler that is run by this runner."""
    return HandlerPlan(runner, 3, Backoff.fixed(0.05), None)


def delivery(
    data: object = 1,
    *,
    job_id: str = "j",
    attempt: int = 1,
    made: HandlerPlan | None = None,
    retry: RetryOverride | None = None,
    extras: bytes = b"",
    known: Extras = NO_EXTRAS,
    timeout_s: float | None = None,
    read_at: float = 0.0,
) -> Delivery:
    """A job in its first delivery; `attempt` counts from 1. `known` are its extras as a value."""
    envelope = Envelope(job_id, PAYLOAD, ADDED_MS, attempt - 1, retry)
    job: Job[Any] = Job(job_id, "greet", data, attempt, ADDED_MS, NoHost(), known)
    extras = extras or encode_extras(known) or b""
    return Delivery(b"1-1", envelope, job, made or plan(), b"greet", extras, read_at, timeout_s)
