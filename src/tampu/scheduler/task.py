"""A function and when it is to run, checked when it is made."""

import inspect
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Generic, TypeVar, cast

from tampu.duration import Duration, to_positive_ms
from tampu.errors import OptionError
from tampu.functions import is_async, yields
from tampu.scheduler.guard import Scope
from tampu.scheduler.run import Function
from tampu.settings import at_least, check_flag, check_type
from tampu.timing import Every, Missed, MissedKind, Overlap, Rule, TimeWindow
from tampu.wire.keys import check_task_id

D = TypeVar("D")

_NO_DEPS: Final = cast("Any", None)


@dataclass(frozen=True, slots=True)
class ScheduledTask(Generic[D]):
    """A function that the scheduler calls with a `TaskRun` at the instants of a rule.

    An async function runs on the scheduler's loop, a plain one too unless it is `blocking`: then in
    a thread. `id` is what its state is stored under.
    """

    id: str
    rule: Rule
    function: Function[D]
    _: KW_ONLY
    deps: D = _NO_DEPS  # handed to each run
    window: TimeWindow | None = None  # occurrences outside of it do not run
    align: bool = False  # occurrences outside of the window move to its next opening
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.SKIP
    max_runs: int | None = None  # ends after so many runs
    max_fires: int | None = None  # ends after so many occurrences, run or not
    blocking: bool = False
    stagger: bool | str = False  # a stable phase by the task's id, or by this text
    jitter: Duration | None = None  # each run is late by less than this, always the same
    resource: str | None = None  # what a guard holds; None: the task's id
    scope: Scope = Scope.OCCURRENCE  # what a guard excludes

    def __post_init__(self) -> None:
        check_task_id("id", self.id)
        check_type("rule", self.rule, Rule, accepted="Every(...), Cron(...) or At(...)")
        self._check_function()
        if self.window is not None:
            check_type("window", self.window, TimeWindow, accepted="a TimeWindow")
        check_type("missed", self.missed, Missed, accepted="Missed.SKIP, .ONCE or .all(...)")
        check_type("overlap", self.overlap, Overlap, accepted="a member of Overlap")
        check_type("scope", self.scope, Scope, accepted="a member of Scope")
        for option in ("max_runs", "max_fires"):
            if (limit := getattr(self, option)) is not None:
                at_least(option, limit, 0)
        if self.resource is not None:
            check_task_id("resource", self.resource)
        self._check_overlap()
        self._check_times()

    def _check_function(self) -> None:
        function: object = self.function
        accepted = "must be a function that takes one argument, the run"
        if not callable(function):
            raise OptionError("function", function, accepted)
        if yields(function):
            raise OptionError("function", function, "must return, not yield")
        try:
            inspect.signature(function).bind(object())
        except TypeError:
            raise OptionError("function", function, accepted) from None
        except ValueError:
            pass  # one that is written in C may not tell
        check_flag("blocking", self.blocking)
        if self.blocking and is_async(function):
            accepted = "is for plain functions, and this one is async"
            raise OptionError("blocking", given=True, problem=accepted)

    def _check_overlap(self) -> None:
        if self.overlap is not Overlap.CANCEL_RUNNING:
            return
        if self.blocking:
            accepted = "cannot be had for a blocking function: a thread cannot be cancelled"
            raise OptionError("overlap", self.overlap, accepted)
        if self.missed.kind is MissedKind.ALL:
            accepted = (
                f"would cancel each of the missed runs for the next one under {self.missed!r}"
            )
            raise OptionError("overlap", self.overlap, accepted)

    def _check_times(self) -> None:
        check_flag("align", self.align)
        if self.align and self.window is None:
            raise OptionError("align", given=True, problem="needs a window to align with")
        self._check_stagger()
        if self.jitter is not None:
            jitter_ms = to_positive_ms("jitter", self.jitter)
            if isinstance(self.rule, Every) and jitter_ms > self.rule.interval_ms:
                raise OptionError("jitter", self.jitter, "must not be longer than the interval")

    def _check_stagger(self) -> None:
        if not isinstance(self.stagger, str):
            check_flag("stagger", self.stagger)
        if self.stagger is False:
            return
        if not isinstance(self.rule, Every):
            raise OptionError("stagger", self.stagger, "is for intervals, Every(...)")
        if self.rule.anchor_ms is not None:
            raise OptionError("stagger", self.stagger, "cannot be given along with an anchor")
