"""The outcome of an attempt, and the exceptions by which a handler chooses it.

A handler that returns is done. If it raises, the attempt has failed and the job is retried.
`Retry`, `Snooze`, `RateLimited`, `Unrecoverable` and `Bury` ask for something else, raised or
returned.
"""

import traceback
from enum import Enum, auto
from types import TracebackType
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from tampu.errors import duration_text, text_of
from tampu.limits.model import RateLimited
from tampu.util.clock import Duration, to_ms, to_positive_ms
from tampu.wire.dead import MAX_MESSAGE_BYTES, MAX_TRACEBACK_BYTES, BuryReason, Failure
from tampu.wire.fields import cut_text, cut_text_front


class Retry(Exception):
    """Fail this attempt and choose the wait before the next one.

    It counts as an attempt: after the last one the job is buried.
    """

    def __init__(self, message: str = "", *, after: Duration | None = None) -> None:
        self.after_ms = None if after is None else to_ms("after", after)
        super().__init__(message or "the handler asked for another attempt")


class Snooze(Exception):
    """Run the job again later. This run does not count as an attempt."""

    def __init__(self, after: Duration) -> None:
        self.after_ms = to_positive_ms("after", after)
        super().__init__("the handler snoozed the job")


class Unrecoverable(Exception):
    """Bury the job at once, because another attempt cannot help. Meant to be subclassed."""


class Bury(Unrecoverable):
    """Bury the job at once, with a message of your own.

    With `error` the dead letter shows that error instead: `raise Bury(error=error) from error`.
    """

    def __init__(self, message: str = "", *, error: BaseException | None = None) -> None:
        self.error = error
        text = "the handler buried the job" if error is None else text_of(error)
        super().__init__(message or text)


Decision: TypeAlias = Retry | Snooze | RateLimited | Unrecoverable
"""What a handler raises or returns to decide what becomes of the job."""


class NoResult(Enum):
    """The type of `NO_RESULT`."""

    NO_RESULT = auto()  # returned by a handler: store no result, even if the worker stores results


NO_RESULT: Final = NoResult.NO_RESULT


class Done(Struct, frozen=True, tag=True):
    """The handler returned."""

    value: object


class Failed(Struct, frozen=True, tag=True):
    """The attempt failed. `after_ms` is the wait that the handler asked for, if any."""

    failure: Failure
    after_ms: int | None = None


class Snoozed(Struct, frozen=True, tag=True):
    """The handler asked to run later."""

    after_ms: int


class UnrecoverableFailure(Struct, frozen=True, tag=True):
    """The attempt failed, and another one cannot help."""

    failure: Failure
    reason: BuryReason = BuryReason.UNRECOVERABLE


class Cancelled(Struct, frozen=True):
    """The job was cancelled, before its handler ran or while it did."""


class Released(Struct, frozen=True):
    """The worker stopped before the handler had finished; another worker will run the job."""


class Throttled(Struct, frozen=True, tag=True):
    """The handler met a rate limit: `limit` is closed for that time, None for all of the job's."""

    after_ms: int
    limit: str | None = None


Outcome: TypeAlias = (
    Done | Failed | Snoozed | Throttled | UnrecoverableFailure | Cancelled | Released
)
"""Those of a handler are tagged, because a child process sends them to its parent."""

MAX_RESULT_BYTES: Final = 64 * 1024 * 1024
"""The largest result that can be stored, or sent by a child process, as MessagePack."""
_CALLERS: Final = frozenset({"tampu", "asyncio", "concurrent", "threading", "uvloop"})
"""Packages whose frames are between the worker and the handler."""
_MAIN: Final = {"__mp_main__": "__main__"}
"""The main module of a script has another name in a child process."""


def outcome_of_value(value: object) -> Outcome:
    """The outcome of a handler that returned. A returned `Retry` counts as raised, and so on."""
    if isinstance(value, Decision):
        return outcome_of_error(value)
    return Done(value)


def outcome_of_error(error: BaseException, *, traced: bool = True) -> Outcome:
    """The outcome of a handler that raised.

    With `traced=False` a failure that may be retried has only the last places of its traceback:
    formatting all of it takes longer than all the rest of a failed attempt.
    """
    match error:
        case Snooze():
            return Snoozed(error.after_ms)
        case RateLimited():
            return Throttled(error.after_ms, error.limit)
        case Retry():
            return Failed(failure_of(error, traced=traced), error.after_ms)
        case Bury(error=BaseException() as cause):
            return UnrecoverableFailure(failure_of(cause))
        case Unrecoverable():
            return UnrecoverableFailure(failure_of(error))
        case _:
            return Failed(failure_of(error, traced=traced))


def timeout_outcome(limit_s: float) -> Failed:
    """The outcome of an attempt that was stopped at its time limit."""
    return Failed(_timeout_failure(limit_s))


def outcome_after_limit(outcome: Outcome, limit_s: float) -> Outcome:
    """The outcome of an attempt that ended by itself, but after its time limit.

    It has failed, whatever the handler returned. If the handler raised, its traceback and the wait
    that it asked for are kept; `Unrecoverable` still buries the job.
    """
    match outcome:
        case UnrecoverableFailure() | Released() | Cancelled():
            return outcome
        case Failed(failure, after_ms):
            return Failed(_timeout_failure(limit_s, failure.traceback), after_ms)
        case Done() | Snoozed() | Throttled():
            return timeout_outcome(limit_s)
        case _:
            assert_never(outcome)


def failure_of(error: BaseException, *, traced: bool = True) -> Failure:
    """The error as text, cut to a size that a dead letter can hold; never raises."""
    frames = _traceback_text(error) if traced else _last_frames(error)
    return Failure(
        cut_text(_qualified_name(type(error)), MAX_MESSAGE_BYTES),
        cut_text(text_of(error), MAX_MESSAGE_BYTES),
        cut_text_front(frames, MAX_TRACEBACK_BYTES),
    )


def _timeout_failure(limit_s: float, traceback_text: str = "") -> Failure:
    text = f"it ran longer than its time limit of {duration_text(limit_s)}"
    return Failure("JobTimeout", text, traceback_text)


def _qualified_name(kind: type[BaseException]) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{_MAIN.get(kind.__module__, kind.__module__)}.{kind.__qualname__}"


def _traceback_text(error: BaseException) -> str:
    """The traceback from the handler's first frame; empty for an error that was never raised."""
    if error.__traceback__ is None:
        return ""
    try:
        return "".join(traceback.format_exception(type(error), error, handler_frames(error)))
    except BaseException:  # noqa: BLE001 - it calls methods of the user's objects
        return ""


def _last_frames(error: BaseException) -> str:
    """Where it was raised: the last three places of the traceback, without source lines."""
    places: list[str] = []
    frame = handler_frames(error)
    while frame is not None:
        code = frame.tb_frame.f_code
        places.append(f'  File "{code.co_filename}", line {frame.tb_lineno}, in {code.co_name}\n')
        frame = frame.tb_next
    return "".join(places[-3:])


def handler_frames(error: BaseException) -> TracebackType | None:
    """The traceback without the frames between the worker and the handler."""
    frames = error.__traceback__
    while frames is not None and _is_caller(frames):
        frames = frames.tb_next
    return frames


def _is_caller(frame: TracebackType) -> bool:
    module = frame.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] in _CALLERS
