"""A task's options as its decisions need them. Pure, like all that is made of them."""

from hashlib import blake2b

from msgspec import Struct, structs

from tampu.duration import to_ms
from tampu.scheduler.task import ScheduledTask
from tampu.timing import (
    Aligned,
    At,
    Cron,
    Every,
    Missed,
    MissedKind,
    Overlap,
    Rule,
    TimeWindow,
    offset_ms,
)
from tampu.wire.task_state import TaskState


class Plan(Struct, frozen=True, kw_only=True):
    """When a task is to run, by a scheduler's zone and from an anchor."""

    task_id: str
    rule: Rule
    fingerprint: str  # of all that the instants depend on
    window: TimeWindow | None
    missed: Missed
    overlap: Overlap
    max_runs: int | None
    max_fires: int | None
    jitter_ms: int

    @property
    def replays(self) -> bool:
        """Whether each missed occurrence runs, one after the other."""
        return self.missed.kind is MissedKind.ALL

    def anchored(self, at_ms: int | None) -> "Plan":
        """The same, an interval's grid beginning at an instant."""
        return self if at_ms is None else structs.replace(self, rule=self.rule.anchored(at_ms))

    def starts_ms(self, at_ms: int) -> int:
        """When an occurrence is to run."""
        if not self.jitter_ms:
            return at_ms
        next_ms = self.rule.next_ms(at_ms)
        spread = self.jitter_ms if next_ms is None else min(self.jitter_ms, next_ms - at_ms)
        return at_ms + offset_ms(self.task_id, at_ms, spread)

    def has_run_enough(self, state: TaskState) -> bool:
        """Whether the task has had all its runs."""
        return self.max_runs is not None and state.ran >= self.max_runs

    def has_fired_enough(self, state: TaskState) -> bool:
        """Whether the task has had all its occurrences."""
        return self.max_fires is not None and state.fired >= self.max_fires

    def spent(self, state: TaskState) -> bool:
        """Whether the task has had all that it may have."""
        # Both spelled out: asked at each run.
        return (self.max_runs is not None and state.ran >= self.max_runs) or (
            self.max_fires is not None and state.fired >= self.max_fires
        )


def plan_of(task: ScheduledTask[object], tz: str) -> Plan:
    """The plan of a task in a scheduler of this zone."""
    window = None if task.window is None else task.window.zoned(tz)
    rule = task.rule.zoned(tz)
    if task.stagger is not False and isinstance(rule, Every):
        rule = rule.staggered(task.stagger if isinstance(task.stagger, str) else task.id)
    if task.align and window is not None:
        rule = Aligned(rule, window)
    return Plan(
        task_id=task.id,
        rule=rule,
        fingerprint=_fingerprint(rule),
        window=window,
        missed=task.missed,
        overlap=task.overlap,
        max_runs=task.max_runs,
        max_fires=task.max_fires,
        jitter_ms=0 if task.jitter is None else to_ms("jitter", task.jitter),
    )


def _fingerprint(rule: Rule) -> str:
    return blake2b(_spelled(rule).encode(), digest_size=8).hexdigest()


def _spelled(rule: Rule) -> str:
    match rule:
        case Every(interval_ms=interval_ms, anchor_ms=anchor_ms):
            return f"every {interval_ms} {anchor_ms}"
        case Cron(text=text, tz=tz):
            return f"cron {text} {tz}"
        case At(instants_ms=instants_ms):
            return f"at {instants_ms}"
        case Aligned(rule=inner, window=window):
            return f"{_spelled(inner)} {window!r}"
        case _:
            return repr(rule)
