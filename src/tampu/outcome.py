"""What one run of a handler ends in.

A handler that returns is done. One that raises has failed, and is retried. `Retry`, `Snooze` and
`Bury` say it more exactly; each may be raised or returned.
"""

from enum import Enum, auto
from typing import Final, TypeAlias

from msgspec import Struct

from tampu.duration import Duration, to_ms, to_positive_ms
from tampu.wire.dead import BuryReason, Failure


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


class PutOff(Struct, frozen=True):
    """The handler put the job off."""

    after_ms: int


class Hopeless(Struct, frozen=True):
    """No further attempt can help."""

    failure: Failure
    reason: BuryReason = BuryReason.UNRECOVERABLE


class Abandoned(Struct, frozen=True):
    """The worker stopped before the handler was through; somebody else will run it."""


Outcome: TypeAlias = Done | Failed | PutOff | Hopeless | Abandoned
