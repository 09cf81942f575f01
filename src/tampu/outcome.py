"""What one run of a handler ends in.

A handler that returns is done. One that raises has failed, and is retried. `Retry`, `Snooze` and
`Bury` say it more exactly; each may be raised or returned.
"""

import traceback
from enum import Enum, auto
from types import TracebackType
from typing import Final, TypeAlias

from msgspec import Struct

from tampu.errors import text_of
from tampu.util.clock import Duration, to_ms, to_positive_ms
from tampu.wire.dead import MAX_MESSAGE_BYTES, MAX_TRACEBACK_BYTES, BuryReason, Failure
from tampu.wire.fields import clip_text, clip_text_front, decode_text


class Retry(Exception):
    """This attempt failed; try again after a time of the handler's choice.

    It counts as an attempt: behind the last one the job is buried.
    """

    def __init__(self, message: str = "", *, after: Duration | None = None) -> None:
        self.after_ms = None if after is None else to_ms("after", after)
        super().__init__(message or "the handler asked for another attempt")


class Snooze(Exception):
    """Not now: run the job again later, as if this run had not been. It counts as no attempt."""

    def __init__(self, after: Duration) -> None:
        self.after_ms = to_positive_ms("after", after)
        super().__init__("the handler put the job off")


class Unrecoverable(Exception):
    """No further attempt can help: the job is buried at once. Made to be subclassed."""


class Bury(Unrecoverable):
    """Bury the job now, for the reason given."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "the handler buried the job")


class NoResult(Enum):
    """What a handler may return in place of a result."""

    NO_RESULT = auto()  # nothing is kept, also by a worker that stores results


NO_RESULT: Final = NoResult.NO_RESULT


class Done(Struct, frozen=True):
    """The handler returned."""

    value: object


class Failed(Struct, frozen=True):
    """The attempt failed; `after_ms` is the wait that the handler asked for, if it did."""

    failure: Failure
    after_ms: int | None = None


class Snoozed(Struct, frozen=True):
    """The handler put the job off."""

    after_ms: int


class UnrecoverableFailure(Struct, frozen=True):
    """No further attempt can help."""

    failure: Failure
    reason: BuryReason = BuryReason.UNRECOVERABLE


class Released(Struct, frozen=True):
    """The worker stopped before the handler was through; somebody else will run it."""


Outcome: TypeAlias = Done | Failed | Snoozed | UnrecoverableFailure | Released


_CALLERS: Final = frozenset({"tampu", "asyncio", "concurrent", "threading", "uvloop"})
"""The packages whose frames lie between the worker and the handler."""
_MAIN: Final = {"__mp_main__": "__main__"}
"""A script's own module has another name in a child process."""


def outcome_of_value(value: object) -> Outcome:
    """The outcome of a handler that returned; a returned `Retry` and the like count as raised."""
    if isinstance(value, Retry | Snooze | Unrecoverable):
        return outcome_of_error(value)
    return Done(value)


def outcome_of_error(error: BaseException, *, last: bool = True) -> Outcome:
    """The outcome of a handler that raised, whatever it raised.

    Only what buries a job is kept with its traceback, so one that is not the `last` attempt goes
    without: making the text takes longer than all the rest of a failed run.
    """
    match error:
        case Snooze():
            return Snoozed(error.after_ms)
        case Retry():
            return Failed(failure_of(error, traced=last), error.after_ms)
        case Unrecoverable():
            return UnrecoverableFailure(failure_of(error))
        case _:
            return Failed(failure_of(error, traced=last))


def timed_out(limit_s: float) -> Failed:
    """The outcome of a run that took longer than its time limit."""
    return Failed(Failure("JobTimeout", f"it ran longer than its time limit of {limit_s:g} s"))


def failure_of(error: BaseException, *, traced: bool = True) -> Failure:
    """The error in words, cut to a size that a dead letter can have; never raises."""
    return Failure(
        decode_text(clip_text(_name_of(type(error)), MAX_MESSAGE_BYTES)),
        decode_text(clip_text(text_of(error), MAX_MESSAGE_BYTES)),
        decode_text(clip_text_front(_traceback_of(error), MAX_TRACEBACK_BYTES)) if traced else "",
    )


def _name_of(kind: type[BaseException]) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{_MAIN.get(kind.__module__, kind.__module__)}.{kind.__qualname__}"


def _traceback_of(error: BaseException) -> str:
    """From the handler's first frame on; empty for an error that was never raised."""
    if error.__traceback__ is None:
        return ""
    frames = _frames_of_handler(error.__traceback__)
    try:
        return "".join(traceback.format_exception(type(error), error, frames))
    except BaseException:  # noqa: BLE001 - it looks into the user's objects
        return ""


def _frames_of_handler(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and _is_caller(frames):
        frames = frames.tb_next
    return frames


def _is_caller(frame: TracebackType) -> bool:
    module = frame.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] in _CALLERS
