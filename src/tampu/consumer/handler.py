"""Handlers: a user's functions, and how each wants to be run."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from tampu.backoff import Backoff, check_retrying
from tampu.errors import OptionError
from tampu.job import Job
from tampu.outcome import Outcome
from tampu.util.clock import Duration, to_positive_ms
from tampu.util.functions import yields
from tampu.wire.keys import check_job_name

Isolation: TypeAlias = Literal["process"] | None
Function: TypeAlias = Callable[[Job[Any]], Awaitable[object]] | Callable[[Job[Any]], object]


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and what it asks for; what is None is as the worker has it.

    An async function runs on the worker's loop, a plain one in a thread. With
    `isolation="process"` either runs in a child process, which a time limit can kill.
    """

    function: Function
    attempts: int | None = None
    backoff: Backoff | None = None
    timeout: Duration | None = None
    isolation: Isolation = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise OptionError("handler", self.function, "must be a function that takes a job")
        if yields(self.function):
            raise OptionError("handler", self.function, "must return, not yield")
        check_policy(self)


Handlers: TypeAlias = Function | Handler | Mapping[str, Function | Handler]


class Runner(Protocol):
    """One way to run a function."""

    async def run(self, delivery: Any) -> Outcome:  # noqa: ANN401 - a Delivery, which knows us
        """Run it for one delivery; nothing but cancellation is raised."""

    async def close(self) -> None:
        """Let go of threads or processes."""


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """How the jobs of one name are run."""

    runner: Runner
    attempts: int
    backoff: Backoff
    timeout_s: float | None


class Policy(Protocol):
    """What both a handler and a worker may say of how jobs are run."""

    @property
    def attempts(self) -> int | None:
        """How many runs a job has."""

    @property
    def backoff(self) -> Backoff | None:
        """The wait between them."""

    @property
    def timeout(self) -> Duration | None:
        """The longest that one may take."""

    @property
    def isolation(self) -> Isolation:
        """Whether it runs in a process of its own."""


def check_policy(policy: Policy) -> None:
    """Refuse what cannot be, naming it."""
    check_retrying(policy.attempts, policy.backoff)
    if policy.timeout is not None:
        to_positive_ms("timeout", policy.timeout)
    if policy.isolation not in {None, "process"}:
        raise OptionError("isolation", policy.isolation, 'expected None or "process"')
    if policy.isolation is not None and sys.platform == "win32":
        raise OptionError("isolation", policy.isolation, "is not to be had on Windows")


def by_name(handlers: Handlers) -> dict[str | None, Handler]:
    """Each handler by its job's name; under None the one that takes every name."""
    if isinstance(handlers, Mapping):
        if not handlers:
            raise OptionError("handler", handlers, "must name at least one handler")
        return {check_job_name(name): _handler(given) for name, given in handlers.items()}
    return {None: _handler(handlers)}


def timeout_s_of(timeout: Duration | None) -> float | None:
    """Seconds, or None for no limit."""
    return None if timeout is None else to_positive_ms("timeout", timeout) / 1000


def _handler(given: Function | Handler) -> Handler:
    return given if isinstance(given, Handler) else Handler(given)
