"""What to do with instants that were missed, and with runs that overlap."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar, Final, NamedTuple, Self

from tampu.errors import OptionError
from tampu.timing.rule import Rule, short
from tampu.util.clock import Duration, to_ms


class Overlap(Enum):
    """How the runs of one schedule may overlap."""

    ALLOW = auto()  # run beside the one that is running
    SKIP = auto()  # drop this fire
    QUEUE_ONE = auto()  # run after the one that is running; at most one waits
    CANCEL_RUNNING = auto()  # cancel the one that is running, then run


GRACE_MS: Final = 60_000
CATCH_UP_MS: Final = 86_400_000
MAX_MISSED: Final = 100
FIRES_AT_ONCE: Final = 1000
"""More fires than that are left to the next decision, which is due at once."""
_MOST: Final = 2**32 - 1  # what the wire has room for


class MissedKind(Enum):
    """Which of the missed instants fire after all."""

    SKIP = auto()  # none
    ONCE = auto()  # one for all of them: the latest
    ALL = auto()  # each, up to a number


@dataclass(frozen=True, slots=True, repr=False)
class Missed:
    """What to do about missed instants: `Missed.SKIP`, `Missed.ONCE` or `Missed.all(max=...)`.

    An instant is missed when it is later than the grace, by default a minute; up to then it is on
    time and fires under every policy. A missed one fires only if it is no older than the
    catch-up window, by default a day.
    """

    SKIP: ClassVar["Missed"]
    ONCE: ClassVar["Missed"]

    kind: MissedKind
    max: int = 0
    grace_ms: int = GRACE_MS
    catch_up_ms: int = CATCH_UP_MS

    @classmethod
    def all(cls, *, max: int = MAX_MISSED) -> Self:
        """Each missed instant fires, in order; of more than `max` the oldest are dropped."""
        given: object = max
        if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= _MOST:
            raise OptionError("max", max, f"must be a whole number from 1 to {_MOST}")
        return cls(MissedKind.ALL, max)

    def within(self, *, grace: Duration | None = None, catch_up: Duration | None = None) -> Self:
        """A copy with another grace or another catch-up window, or both."""
        grace_ms = self.grace_ms if grace is None else to_ms("grace", grace)
        if catch_up is None:
            catch_up_ms = max(self.catch_up_ms, grace_ms)
        else:
            catch_up_ms = to_ms("catch_up", catch_up)
            if self.kind is MissedKind.SKIP:
                raise OptionError(
                    "catch_up", catch_up, "means nothing where missed ones are skipped"
                )
            if catch_up_ms < grace_ms:
                raise OptionError("catch_up", catch_up, f"must be at least grace={short(grace_ms)}")
        return replace(self, grace_ms=grace_ms, catch_up_ms=catch_up_ms)

    def __repr__(self) -> str:
        kind = f"all(max={self.max})" if self.kind is MissedKind.ALL else self.kind.name
        options = []
        if self.grace_ms != GRACE_MS:
            options.append(f"grace={short(self.grace_ms)!r}")
        if self.catch_up_ms != CATCH_UP_MS:
            options.append(f"catch_up={short(self.catch_up_ms)!r}")
        return f"Missed.{kind}" + (f".within({', '.join(options)})" if options else "")


Missed.SKIP = Missed(MissedKind.SKIP)
Missed.ONCE = Missed(MissedKind.ONCE)


class MissedDecision(NamedTuple):
    """What to fire now, oldest first; when to decide again; how many instants were dropped.

    `next_ms` lies in the past if there is more to fire than fits into one decision, and is None
    when the rule has ended. What is dropped is always older than what fires.
    """

    fires: tuple[int, ...]
    next_ms: int | None
    skipped: int


def decide_missed(rule: Rule, policy: Missed, *, due_ms: int, now_ms: int) -> MissedDecision:
    """What becomes of the instant a schedule was armed for, and of all that passed since."""
    if due_ms > now_ms:
        return MissedDecision((), due_ms, 0)
    due = _DueInstants(rule.anchored(due_ms), due_ms, now_ms)
    first_ms = due.first_fire(policy)
    if first_ms is None:
        return MissedDecision((), due.rule.next_ms(now_ms), due.count(due_ms, now_ms + 1))
    fires = [first_ms]
    next_ms = due.rule.next_ms(first_ms)
    while next_ms is not None and next_ms <= now_ms and len(fires) < FIRES_AT_ONCE:
        fires.append(next_ms)
        next_ms = due.rule.next_ms(next_ms)
    return MissedDecision(tuple(fires), next_ms, due.count(due_ms, first_ms))


def first_fire(rule: Rule, policy: Missed, *, due_ms: int, now_ms: int) -> int | None:
    """The oldest instant that fires of those that are due, without making a list of them."""
    return _DueInstants(rule.anchored(due_ms), due_ms, now_ms).first_fire(policy)


@dataclass(frozen=True, slots=True)
class _DueInstants:
    """All that is due: the instant that was armed, of the rule or not, and the rule's since."""

    rule: Rule
    due_ms: int
    now_ms: int

    def first(self, from_ms: int) -> int | None:
        """The oldest one from an instant on."""
        if self.due_ms >= from_ms:
            return self.due_ms
        found = self.rule.next_ms(from_ms - 1)
        return found if found is not None and found <= self.now_ms else None

    def latest(self) -> int:
        """The youngest one."""
        last = self.rule.first_after_many(self.due_ms, self.now_ms).last_ms
        return self.due_ms if last is None else last

    def count(self, from_ms: int, end_ms: int) -> int:
        """How many there are from an instant up to another, that one left out."""
        after_ms = max(self.due_ms, from_ms - 1)
        armed = from_ms <= self.due_ms < end_ms
        return armed + self.rule.count_between(after_ms, end_ms - 1)

    def first_fire(self, policy: Missed) -> int | None:
        """The oldest instant that fires; everything due after it fires too."""
        on_time_from_ms = self.now_ms - policy.grace_ms
        catch_up_from_ms = self.now_ms - policy.catch_up_ms
        match policy.kind:
            case MissedKind.SKIP:
                return self.first(on_time_from_ms)
            case MissedKind.ONCE:
                # One that is on time makes up for all that were missed.
                return self.first(min(on_time_from_ms, max(self.latest(), catch_up_from_ms)))
            case MissedKind.ALL:
                missed = range(max(catch_up_from_ms, self.due_ms), on_time_from_ms)
                # Found by halving, since a rule counts faster than it steps.
                kept = bisect_left(
                    missed, 1, key=lambda ms: int(self.count(ms, on_time_from_ms) <= policy.max)
                )
                return self.first(missed.start + kept)
