"""Alerts: what users declare, and the decision when one fires and resolves. Pure."""

from collections.abc import Sequence
from typing import Final, TypeAlias, TypedDict, Unpack, assert_never

from msgspec import Struct
from msgspec.structs import replace

from tampu.errors import OptionError
from tampu.metrics.conditions import (
    MINUTE_MS,
    Condition,
    DeadGrowing,
    Eviction,
    FailureRate,
    LoopLag,
    NoWorkers,
    Observation,
    Oldest,
    Reading,
    ScheduleMissed,
    ServerMemoryAbove,
    minutes_in,
)
from tampu.util.clock import Duration, instant, to_ms, to_positive_ms
from tampu.util.options import at_least, check_names, check_type
from tampu.wire.alerts import AlertKind, AlertNotice, AlertPhase, StoredAlert
from tampu.wire.names import check_job_name, check_queue_name, check_schedule_key

MAX_ALERTS: Final = 200
MAX_KEY_BYTES: Final = 300
_LONGEST_MS: Final = 60 * MINUTE_MS
_FOR: Final = "30s"
_OWN: Final = ("key", "for_")


class AlertRules(TypedDict, total=False):
    """What every alert takes besides its condition.

    `key` tells it from others of the same kind on a queue. Its condition must hold for `for_`
    before it fires, and must not hold for as long before it resolves.
    """

    key: str
    for_: Duration


class Alert(Struct, frozen=True):
    """A condition to be told of. Make one with a method such as `Alert.oldest("emails", "5m")`.

    An alert fires once when its condition has held for `for_`, 30 seconds by default, and resolves
    once when it has not held for as long. Each alert of a queue has a key of its own.
    """

    queue: str | None  # None: the queue that the app or the worker chooses
    key: str
    condition: Condition
    for_ms: int

    @classmethod
    def oldest(cls, queue: str, above: Duration, **rules: Unpack[AlertRules]) -> "Alert":
        """The oldest waiting job waits for longer than `above`."""
        return _make(queue, Oldest(to_positive_ms("above", above)), rules)

    @classmethod
    def no_workers(cls, queue: str, **rules: Unpack[AlertRules]) -> "Alert":
        """There are jobs to run, but no worker. Another queue's worker must be there to see it."""
        return _make(queue, NoWorkers(), rules)

    @classmethod
    def dead_growing(
        cls,
        queue: str,
        *,
        more_than: int = 10,
        within: Duration = "10m",
        **rules: Unpack[AlertRules],
    ) -> "Alert":
        """More than so many jobs became dead letters within a time of up to an hour."""
        at_least("more_than", more_than, 0)
        return _make(queue, DeadGrowing(more_than, _within_ms(within)), rules)

    @classmethod
    def failure_rate(
        cls,
        queue: str,
        task: str | None = None,
        *,
        above: float = 0.2,
        within: Duration = "10m",
        at_least: int = 20,
        **rules: Unpack[AlertRules],
    ) -> "Alert":
        """More than that share of the attempts failed, if there were at least so many of them.

        `task` is the name of a task or job; without it, all jobs of the queue count.
        """
        if task is not None:
            check_job_name(task)
        _check_share("above", above)
        _check_count("at_least", at_least)
        condition = FailureRate(task, above, _within_ms(within), at_least)
        return _make(queue, condition, rules, about=task)

    @classmethod
    def schedule_missed(
        cls,
        queue: str,
        schedule: str | None = None,
        *,
        by: Duration = "1m",
        within: Duration = "10m",
        **rules: Unpack[AlertRules],
    ) -> "Alert":
        """A schedule should have fired longer ago than `by`, or missed fires `within` that time.

        The one with this key, or any. Missed fires are those that its missed policy skipped.
        """
        if schedule is not None:
            check_schedule_key(schedule)
        condition = ScheduleMissed(schedule, to_positive_ms("by", by), _within_ms(within))
        return _make(queue, condition, rules, about=schedule)

    @classmethod
    def server_memory(
        cls, *, above: float = 0.9, queue: str | None = None, **rules: Unpack[AlertRules]
    ) -> "Alert":
        """The server uses more than that share of its memory.

        That is its `maxmemory`, or the memory of its machine if it has no limit. In a cluster it
        is the node that holds `queue`.
        """
        _check_share("above", above)
        return _make(queue, ServerMemoryAbove(above), rules)

    @classmethod
    def eviction(cls, *, queue: str | None = None, **rules: Unpack[AlertRules]) -> "Alert":
        """The server deletes keys at its memory limit: its policy is not `noeviction`."""
        return _make(queue, Eviction(), rules)

    @classmethod
    def loop_lag(
        cls, queue: str, *, above: Duration = "1s", **rules: Unpack[AlertRules]
    ) -> "Alert":
        """The event loop of a worker was blocked for longer than `above`."""
        return _make(queue, LoopLag(to_positive_ms("above", above)), rules)

    @property
    def kind(self) -> AlertKind:
        """What it is about."""
        return self.condition.kind

    def bind(self, queue: str) -> "Alert":
        """The alert on that queue, unless it has one of its own."""
        return replace(self, queue=queue) if self.queue is None else self

    @property
    def minutes(self) -> int:
        """How many minutes of history it needs."""
        condition = self.condition
        if isinstance(condition, DeadGrowing | FailureRate | ScheduleMissed):
            return minutes_in(condition.within_ms)
        return 0


def _make(
    queue: str | None, condition: Condition, rules: AlertRules, *, about: str | None = None
) -> Alert:
    check_names("an alert", rules, _OWN)
    if queue is not None:
        check_queue_name(queue)
    derived = condition.kind.value if about is None else f"{condition.kind.value}:{about}"
    key = check_schedule_key(rules.get("key", derived))
    if len(key.encode()) > MAX_KEY_BYTES:
        raise OptionError("key", key[:80] + "…", f"must be at most {MAX_KEY_BYTES} bytes of text")
    return Alert(queue, key, condition, to_ms("for_", rules.get("for_", _FOR)))


def _within_ms(within: Duration) -> int:
    ms = to_ms("within", within)
    if not MINUTE_MS <= ms <= _LONGEST_MS:
        raise OptionError("within", within, "must be from a minute to an hour")
    return ms


def _check_share(option: str, given: object) -> None:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 <= given < 1:  # type: ignore[operator]
        raise OptionError(option, given, "must be a share, a number from 0 to below 1")


def _check_count(option: str, given: int) -> None:
    at_least(option, given, 1)


def check_alerts(given: object) -> None:
    """Refuse anything but a list of alerts with different keys on each queue."""
    check_type("alerts", given, list | tuple, accepted="a list of alerts")
    assert isinstance(given, list | tuple)  # noqa: S101 - for the type checker
    if len(given) > MAX_ALERTS:
        raise OptionError("alerts", f"{len(given)} alerts", f"must be at most {MAX_ALERTS}")
    seen: set[tuple[str | None, str]] = set()
    for each in given:
        check_type("alerts", each, Alert, accepted='alerts such as Alert.oldest("emails", "5m")')
        if (each.queue, each.key) in seen:
            where = "of the server" if each.queue is None else f"of queue {each.queue!r}"
            problem = f"two alerts {where} have this key; give one of them its own: key=..."
            raise OptionError("key", each.key, problem)
        seen.add((each.queue, each.key))


def bind_alerts(alerts: Sequence[Alert], queue: str) -> tuple[Alert, ...]:
    """Alerts that all have a queue: those of the server belong to that one."""
    bound = tuple(each.bind(queue) for each in alerts)
    check_alerts(bound)
    return bound


# --- deciding -----------------------------------------------------------------------------------


class Keep(Struct, frozen=True):
    """Nothing to tell. The state may have changed: the condition began or ceased to hold."""

    state: StoredAlert


class Fire(Struct, frozen=True):
    """The alert fires."""

    state: StoredAlert


class Resolve(Struct, frozen=True):
    """The alert resolves."""

    state: StoredAlert


Decision: TypeAlias = Keep | Fire | Resolve


def evaluate(
    alert: Alert, observation: Observation, state: StoredAlert | None, *, now_ms: int
) -> Decision:
    """What becomes of an alert at this moment. Without a reading, nothing."""
    before = StoredAlert(alert.kind) if state is None else state
    reading = alert.condition.read(observation)
    if reading is None:
        return Keep(before)
    match before.phase:
        case AlertPhase.FIRED:
            return _while_fired(alert, before, reading, now_ms=now_ms)
        case AlertPhase.QUIET | AlertPhase.PENDING | AlertPhase.RESOLVED:
            return _while_quiet(alert, before, reading, now_ms=now_ms)
        case _ as never:
            assert_never(never)


def forget(alert_key: str, queue: str, state: StoredAlert, *, now_ms: int) -> Decision:
    """What becomes of an alert that is no longer declared."""
    if state.phase is not AlertPhase.FIRED:
        return Keep(StoredAlert(state.kind))
    sentence = f"Resolved. Queue {queue!r}: alert {alert_key!r} is no longer declared."
    return Resolve(replace(state, resolved_ms=now_ms, since_ms=0, clear_ms=0, sentence=sentence))


def _while_quiet(
    alert: Alert, before: StoredAlert, reading: Reading, *, now_ms: int
) -> Keep | Fire:
    if not reading.holds:
        return Keep(replace(before, since_ms=0))
    since_ms = min(before.since_ms or now_ms, now_ms)
    if now_ms - since_ms < alert.for_ms:
        return Keep(replace(before, since_ms=since_ms))
    return Fire(
        StoredAlert(
            alert.kind,
            since_ms=since_ms,
            # Later than before, whatever the server's clock does: it makes the id of the notice.
            fired_ms=max(now_ms, before.fired_ms + 1),
            sentence=f"Queue {alert.queue!r}: {reading.text}.",
            value=float(reading.value),
            limit=float(reading.limit),
        )
    )


def _while_fired(
    alert: Alert, before: StoredAlert, reading: Reading, *, now_ms: int
) -> Keep | Resolve:
    if reading.holds:
        return Keep(replace(before, clear_ms=0))
    clear_ms = min(before.clear_ms or now_ms, now_ms)
    if now_ms - clear_ms < alert.for_ms:
        return Keep(replace(before, clear_ms=clear_ms))
    return Resolve(
        replace(
            before,
            since_ms=0,
            clear_ms=0,
            resolved_ms=max(now_ms, before.fired_ms),
            sentence=f"Resolved. Queue {alert.queue!r}: {reading.text}.",
            value=float(reading.value),
            limit=float(reading.limit),
        )
    )


def notice_of(
    key: str, queue: str, decision: Fire | Resolve, *, before: StoredAlert
) -> AlertNotice:
    """What is told when an alert fires or resolves."""
    state = decision.state
    fired = isinstance(decision, Fire)
    phase, at_ms = state.phase, state.fired_ms if fired else state.resolved_ms
    return AlertNotice(
        id=f"alert:{queue}:{key}:{state.fired_ms}:{phase}",
        key=key,
        kind=state.kind,
        queue=queue,
        state=phase,
        sentence=state.sentence,
        value=state.value,
        limit=state.limit,
        since=instant(state.since_ms if fired else before.since_ms),
        at=instant(at_ms),
    )
