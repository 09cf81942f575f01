"""What to do with instants that were missed, and with runs that overlap."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import auto
from typing import ClassVar, Final, NamedTuple, Self

from tampu.errors import OptionError
from tampu.timing.rule import Rule, duration_text
from tampu.util.clock import Duration, to_ms
from tampu.util.options import Word

GRACE_MS: Final = 60_000
CATCH_UP_MS: Final = 86_400_000
MAX_MISSED: Final = 100
FIRES_AT_ONCE: Final = 1000
"""The most fires of one decision. The next decision, which is due at once, has the others."""
_MOST_ON_THE_WIRE: Final = 2**32 - 1


class Overlap(Word):
    """What to do when an instant comes while the previous run of the same schedule is active.

    - `ALLOW`: run at the same time. The default for a queue's schedules.
    - `SKIP`: do not run this instant. The default for a `ScheduledTask`.
    - `QUEUE_ONE`: run it after the active run ends. At most one instant waits; more are skipped.
    - `CANCEL_RUNNING`: cancel the active run, wait until it has ended, then run. Not supported for
      a queue's schedules, and not for blocking functions.
    """

    ALLOW = auto()
    SKIP = auto()
    QUEUE_ONE = auto()
    CANCEL_RUNNING = auto()


class MissedKind(Word):
    """Which of the missed instants run."""

    SKIP = auto()  # none
    ONCE = auto()  # the latest
    ALL = auto()  # each, up to a number


@dataclass(frozen=True, slots=True, repr=False)
class Missed:
    """What to do with instants that nobody ran in time, such as during a restart.

    - `Missed.SKIP`: missed instants do not run.
    - `Missed.ONCE`: only the latest missed instant runs, and none if a newer one is on time.
    - `Missed.all(max=100)`: every missed instant runs, oldest first. If there are more than `max`,
      the oldest are dropped.

    An instant is missed if it is later than the *grace*, one minute by default. Up to then it is on
    time, whatever the policy. A missed instant that is older than the *catch-up window*, one day by
    default, never runs. `within` changes both: `Missed.ONCE.within(grace="5s", catch_up="1h")`.

    If several instants are on time together, a queue's schedule fires each of them. The in-process
    scheduler runs only the latest, unless the policy is `Missed.all`.
    """

    SKIP: ClassVar["Missed"]
    ONCE: ClassVar["Missed"]

    kind: MissedKind
    max: int = 0
    grace_ms: int = GRACE_MS
    catch_up_ms: int = CATCH_UP_MS

    @classmethod
    def all(cls, *, max: int = MAX_MISSED) -> Self:
        """Run every missed instant, oldest first; if there are more than `max`, drop the oldest."""
        given: object = max
        is_number = isinstance(given, int) and not isinstance(given, bool)
        if not is_number or not 1 <= max <= _MOST_ON_THE_WIRE:
            problem = f"must be a whole number from 1 to {_MOST_ON_THE_WIRE}"
            raise OptionError("max", max, problem)
        return cls(MissedKind.ALL, max)

    def within(self, *, grace: Duration | None = None, catch_up: Duration | None = None) -> Self:
        """A copy with another grace, another catch-up window, or both.

        `grace` is how late an instant may be and still be on time. `catch_up` is how old a missed
        instant may be and still run; it must be at least `grace`.
        """
        grace_ms = self.grace_ms if grace is None else to_ms("grace", grace)
        if catch_up is None:
            return replace(self, grace_ms=grace_ms, catch_up_ms=max(self.catch_up_ms, grace_ms))
        catch_up_ms = to_ms("catch_up", catch_up)
        if self.kind is MissedKind.SKIP:
            raise OptionError("catch_up", catch_up, "cannot be combined with Missed.SKIP")
        if catch_up_ms < grace_ms:
            problem = f"must be at least as long as grace, which is {duration_text(grace_ms)}"
            raise OptionError("catch_up", catch_up, problem)
        return replace(self, grace_ms=grace_ms, catch_up_ms=catch_up_ms)

    def __repr__(self) -> str:
        kind = f"all(max={self.max})" if self.kind is MissedKind.ALL else self.kind.name
        options = []
        if self.grace_ms != GRACE_MS:
            options.append(f"grace={duration_text(self.grace_ms)!r}")
        if self.catch_up_ms != CATCH_UP_MS:
            options.append(f"catch_up={duration_text(self.catch_up_ms)!r}")
        return f"Missed.{kind}" + (f".within({', '.join(options)})" if options else "")


Missed.SKIP = Missed(MissedKind.SKIP)
Missed.ONCE = Missed(MissedKind.ONCE)


class MissedDecision(NamedTuple):
    """What to fire now, oldest first, when to decide again, and how many instants were dropped.

    `next_ms` is in the past if there is more to fire than one decision takes, and None if the rule
    has ended. Everything that is dropped is older than everything that fires.
    """

    fires: tuple[int, ...]
    next_ms: int | None
    skipped: int


def decide_missed(rule: Rule, policy: Missed, *, due_ms: int, now_ms: int) -> MissedDecision:
    """What to do about the instant that a schedule waited for, and about all instants since."""
    if due_ms > now_ms:
        return MissedDecision((), due_ms, 0)
    due = _DueInstants(rule.with_anchor(due_ms), due_ms, now_ms)
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
    """The oldest due instant that fires; None if none does."""
    return _DueInstants(rule.with_anchor(due_ms), due_ms, now_ms).first_fire(policy)


@dataclass(frozen=True, slots=True)
class _DueInstants:
    """The instant that a schedule waited for, whether the rule has it or not, and those since.

    They are counted and never listed: there may be a year of milliseconds.
    """

    rule: Rule
    due_ms: int
    now_ms: int

    def first(self, from_ms: int) -> int | None:
        """The oldest one from `from_ms` on."""
        if self.due_ms >= from_ms:
            return self.due_ms
        found = self.rule.next_ms(from_ms - 1)
        return found if found is not None and found <= self.now_ms else None

    def latest(self) -> int:
        """The newest one."""
        latest_ms = self.rule.latest_ms(self.due_ms, self.now_ms)
        return self.due_ms if latest_ms is None else latest_ms

    def count(self, from_ms: int, end_ms: int) -> int:
        """How many there are from `from_ms` up to `end_ms`, which is excluded."""
        after_ms = max(self.due_ms, from_ms - 1)
        counts_due = from_ms <= self.due_ms < end_ms
        return counts_due + self.rule.count_between(after_ms, end_ms - 1)

    def first_fire(self, policy: Missed) -> int | None:
        """The oldest one that fires; all later ones fire too."""
        on_time_from_ms = self.now_ms - policy.grace_ms
        catch_up_from_ms = self.now_ms - policy.catch_up_ms
        match policy.kind:
            case MissedKind.SKIP:
                return self.first(on_time_from_ms)
            case MissedKind.ONCE:
                # An instant that is on time replaces all the missed ones.
                return self.first(min(on_time_from_ms, max(self.latest(), catch_up_from_ms)))
            case MissedKind.ALL:
                missed = range(max(catch_up_from_ms, self.due_ms), on_time_from_ms)
                # A binary search, because a rule counts faster than it steps.
                kept = bisect_left(
                    missed, 1, key=lambda ms: int(self.count(ms, on_time_from_ms) <= policy.max)
                )
                return self.first(missed.start + kept)
