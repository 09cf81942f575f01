"""Handlers: the user's functions, and how to run each of them."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from tampu.backoff import Backoff, check_retrying
from tampu.errors import OptionError
from tampu.job import Job
from tampu.limits.model import By, check_by
from tampu.outcome import Outcome
from tampu.util.clock import Duration, to_ms, to_positive_ms
from tampu.util.options import at_least, check_type, yields
from tampu.wire.names import check_job_name
from tampu.wire.result import result_ttl_s

if TYPE_CHECKING:
    from tampu.consumer.batch import JobBatch

Isolation: TypeAlias = Literal["process"] | None
Function: TypeAlias = Callable[[Job[Any]], Awaitable[object]] | Callable[[Job[Any]], object]
BatchFunction: TypeAlias = (
    "Callable[[JobBatch[Any]], Awaitable[object]] | Callable[[JobBatch[Any]], object]"
)
MAX_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True)
class Batch:
    """A handler gets up to `size` jobs at once, as a `JobBatch`.

    A full batch starts at once, any other `wait` after its first job came. With `by`, the name of
    an item of the job's data or a function of the data, jobs with different values are never in
    the same batch.
    """

    size: int
    wait: Duration = "50ms"
    by: By = None

    def __post_init__(self) -> None:
        at_least("size", self.size, 1, most=MAX_BATCH)
        to_ms("wait", self.wait)
        check_by(self.by)

    @property
    def wait_s(self) -> float:
        """How long a batch waits for more jobs, in seconds."""
        return to_ms("wait", self.wait) / 1000


@dataclass(frozen=True, slots=True)
class Handler:
    """A function with options of its own; an option that is None comes from the worker.

    An async function runs on the worker's loop, a plain one in a thread. With
    `isolation="process"` both run in a child process, which is killed at the time limit. With
    `batch` the function gets a `JobBatch` instead of a job.
    """

    function: "Function | BatchFunction"
    attempts: int | None = None
    backoff: Backoff | None = None
    timeout: Duration | None = None
    isolation: Isolation = None
    result_ttl: Duration | None = None  # 0: its results are not stored
    batch: Batch | None = None

    streams: ClassVar[bool] = False  # whether its function writes the streams of its jobs

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise OptionError("handler", self.function, "must be a function that takes a job")
        if yields(self.function) and not self.streams:
            problem = "must return, not yield; only a task of an app can yield"
            raise OptionError("handler", self.function, problem)
        check_policy(self.attempts, self.backoff, timeout=self.timeout, isolation=self.isolation)
        if self.result_ttl is not None:
            to_ms("result_ttl", self.result_ttl)
        check_type("batch", self.batch, Batch | None, accepted="Batch(...)")
        if self.batch is not None:
            check_batch_isolation(self.isolation)


class StreamHandler(Handler):
    """The handler of a task that yields."""

    streams: ClassVar[bool] = True


Handlers: TypeAlias = Function | Handler | Mapping[str, Function | Handler]


class Place(Enum):
    """Where a function runs. It decides how an attempt can be stopped, and who keeps its limit."""

    LOOP = auto()  # cancelling the task that runs it stops it; the pool does so at the time limit
    THREAD = auto()  # nothing stops it; the pool fails it afterwards
    PROCESS = auto()  # cancelling the task that waits for it kills it; its runner keeps the limit


class Runner(Protocol):
    """One way to run a function."""

    @property
    def place(self) -> Place:
        """Where the function runs."""

    async def run(self, delivery: Any) -> Outcome:  # noqa: ANN401 - a Delivery or BatchDelivery
        """Run the function for one delivery; raises nothing but cancellation."""

    def abandon(self) -> None:
        """Make up for a thread that an attempt holds although it was told to stop."""

    async def close(self) -> None:
        """End threads or processes."""


class KeptResults(Struct, frozen=True):
    """How long results of a handler are kept, in seconds; 0: they are not stored.

    A job whose result cannot be stored is buried, unless results are `optional`: then it is done,
    and whoever waits for the result gets the error.
    """

    ttl_s: int = 0
    none_ttl_s: int = 0  # for a result of None
    optional: bool = False

    @classmethod
    def of(cls, ttl: Duration) -> "KeptResults":
        """All results are kept for that long."""
        ttl_ms = to_ms("result_ttl", ttl)
        ttl_s = result_ttl_s(ttl_ms) if ttl_ms else 0
        return cls(ttl_s, ttl_s)


NOTHING_KEPT: Final = KeptResults()


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """How to run the jobs of one name."""

    runner: Runner
    attempts: int
    backoff: Backoff
    timeout_s: float | None
    results: KeptResults = NOTHING_KEPT
    batch: Batch | None = None
    streams: bool = False  # its jobs have streams
    repeats_crash: bool = False  # a job whose last attempt crashed its worker runs once more


def check_policy(
    attempts: int | None, backoff: Backoff | None, *, timeout: Duration | None, isolation: Isolation
) -> None:
    """Raise `OptionError` for the first invalid option of a handler or a worker."""
    check_retrying(attempts, backoff)
    if timeout is not None:
        to_positive_ms("timeout", timeout)
    if isolation not in {None, "process"}:
        raise OptionError("isolation", isolation, 'expected None or "process"')
    if isolation is not None and sys.platform == "win32":
        raise OptionError("isolation", isolation, "is not supported on Windows")


def check_batch_isolation(isolation: Isolation) -> None:
    """Refuse a batch in a child process: settling one of its jobs alone would not reach us."""
    if isolation is not None:
        problem = "not supported with batch: a batch runs in the worker's process"
        raise OptionError("isolation", isolation, problem)


def handlers_by_name(handlers: Handlers) -> dict[str | None, Handler]:
    """Each handler by the name of its jobs; a handler for all names is under None."""
    if isinstance(handlers, Mapping):
        if not handlers:
            raise OptionError("handler", handlers, "must name at least one handler")
        return {check_job_name(name): _as_handler(given) for name, given in handlers.items()}
    return {None: _as_handler(handlers)}


def timeout_s_of(timeout: Duration | None) -> float | None:
    """The time limit in seconds, None for none."""
    return None if timeout is None else to_positive_ms("timeout", timeout) / 1000


def _as_handler(given: Function | Handler) -> Handler:
    return given if isinstance(given, Handler) else Handler(given)
