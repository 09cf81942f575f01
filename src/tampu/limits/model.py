"""What users write: limits, priorities, and the error by which a handler closes a limit."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import IntEnum
from typing import Any, Final, TypeAlias

from msgspec import Struct

from tampu.errors import OptionError
from tampu.util.clock import Duration, now_ms, to_ms, to_positive_ms
from tampu.util.options import at_least, check_flag
from tampu.wire.lines import LimitDefinition, escape


class FoundValue(Struct, frozen=True):
    """A value of a job that was found already, with the name of what it was found by."""

    name: str
    value: object


By: TypeAlias = str | Callable[[Any], object] | FoundValue | None
"""The name of an item of the job's data, or a function of the data; None for one limit for all."""
MAX_CONCURRENCY: Final = 1_000_000
MAX_COUNT: Final = 1_000_000_000
MAX_BREAKER_OF: Final = 1_000
_MAX_NAME_BYTES: Final = 128
_MAX_OWN_BYTES: Final = 1024
_RATE: Final = re.compile(r"([0-9]+)/([0-9]*)([a-z0-9]+)")
_NAME: Final = re.compile(r"[^\s|:()/%>!@~#=][^\s|:()/%#=]*")
_UNITS_OF_ONE: Final = ("s", "m", "h", "d")


class Priority(IntEnum):
    """Levels with a name. Larger is sooner; any whole number from 0 to 9 will do."""

    LOWEST = 0
    LOW = 3
    DEFAULT = 5
    HIGH = 7
    HIGHEST = 9


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most so many jobs run at the same time, over all workers; with `by`, of each value."""

    most: int
    by: By = None

    def __post_init__(self) -> None:
        at_least("Concurrency", self.most, 1, most=MAX_CONCURRENCY)
        check_by(self.by)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many jobs start in a time, over all workers: "100/m", "5/10s".

    With `by`, so many of each value. Jobs pass evenly spaced, and up to `burst` at once after a
    quiet time. With `strict`, no window of that length has more jobs; they may come all at once.
    """

    rate: str
    by: By = None
    burst: int | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        count, _ = self.parts
        check_by(self.by)
        check_flag("strict", self.strict)
        if self.burst is not None:
            if self.strict:
                problem = "cannot be combined with strict, which has no burst"
                raise OptionError("burst", self.burst, problem)
            at_least("burst", self.burst, 1, most=max(1, count))

    @property
    def parts(self) -> tuple[int, int]:
        """How many, and in how many microseconds."""
        given: object = self.rate
        found = _RATE.fullmatch(given) if isinstance(given, str) else None
        problem = 'expected a number and a time, such as "25/s", "100/m" or "5/10s"'
        if found is None:
            raise OptionError("Rate", given, problem)
        try:
            per_ms = to_positive_ms("Rate", f"{found[2] or 1}{found[3]}")
        except OptionError:
            raise OptionError("Rate", given, problem) from None
        count = int(found[1])
        at_least("Rate", count, 1, most=MAX_COUNT)
        return count, per_ms * 1000


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that was declared under a name; with `by`, for each value apart."""

    name: str
    by: By = None

    def __post_init__(self) -> None:
        check_limit_name(self.name)
        check_by(self.by)


@dataclass(frozen=True, slots=True)
class Debounce:
    """Run only the latest of several jobs: once none has been added for `wait`.

    With `max` it runs at the latest so long after the first of them. With `by`, jobs of each value
    apart. The earlier jobs are dropped.
    """

    wait: Duration
    max: Duration | None = None
    by: By = None

    def __post_init__(self) -> None:
        wait_ms = to_positive_ms("wait", self.wait)
        if self.max is not None and to_positive_ms("max", self.max) < wait_ms:
            raise OptionError("max", self.max, "must be at least as long as wait")
        check_by(self.by)


@dataclass(frozen=True, slots=True)
class Breaker:
    """Stop a task that keeps failing: start none of its jobs for `cooldown`, then try one.

    It stops when at least the share `failures` of the last `of` attempts failed. If the job that is
    tried succeeds, all go on; if it fails, the next cooldown begins. Attempts are counted over all
    workers.
    """

    failures: float = 0.5
    of: int = 20
    cooldown: Duration = "30s"

    def __post_init__(self) -> None:
        given: object = self.failures
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1:
            raise OptionError("failures", given, "expected a share above 0, at most 1")
        at_least("of", self.of, 1, most=MAX_BREAKER_OF)
        to_positive_ms("cooldown", self.cooldown)


AnyLimit: TypeAlias = Concurrency | Rate | Limit


class RateLimited(Exception):
    """Raised by a handler: let nothing through a limit until then, and run this job again first.

    `retry_after` is a time, or the value of an HTTP header `Retry-After`. Without `limit` it closes
    all limits that the job needs. The attempt does not count.
    """

    def __init__(self, retry_after: Duration | str, *, limit: str | None = None) -> None:
        self.after_ms = max(1, _retry_after_ms(retry_after))
        self.limit = None if limit is None else check_any_limit(limit)
        super().__init__("the handler met a rate limit")


def _retry_after_ms(given: Duration | str) -> int:
    if isinstance(given, str) and given.strip().isdigit():
        return int(given) * 1000
    if isinstance(given, str) and "," in given:
        try:
            moment = parsedate_to_datetime(given)
        except ValueError:
            problem = "expected a time, or the value of a Retry-After header"
            raise OptionError("retry_after", given, problem) from None
        at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round((at - datetime.fromtimestamp(now_ms() / 1000, UTC)).total_seconds() * 1000)
    return to_ms("retry_after", given)


def check_by(by: object) -> None:
    """Refuse what names no value of a job."""
    known = by is None or callable(by) or isinstance(by, FoundValue)
    if not known and not (isinstance(by, str) and by):
        raise OptionError("by", by, "expected the name of an argument, or a function of the data")


def check_limit_name(name: object) -> str:
    """A valid name of a limit that is declared under a name."""
    problem = (
        f"must be 1 to {_MAX_NAME_BYTES} bytes of text without whitespace and | : ( ) / % # =, and "
        "must not begin with > ! @ or ~"
    )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError("limit", name, problem)
    if len(name.encode("utf-8", "replace")) > _MAX_NAME_BYTES:
        raise OptionError("limit", name[:80], problem)
    return name


def check_any_limit(name: object) -> str:
    """The name of any limit, as a queue lists it; returns it as the gate spells it."""
    if not isinstance(name, str) or "(" not in name or ")" not in name:
        return check_limit_name(name)
    if len(name.encode("utf-8", "replace")) > _MAX_OWN_BYTES:
        raise OptionError("limit", name[:80], "there is no limit with such a name")
    return escape(name)  # that of a task has brackets


def define(limits: Sequence[Concurrency | Rate]) -> LimitDefinition:
    """One definition of a concurrency, a rate, or both."""
    concurrency = [each for each in limits if isinstance(each, Concurrency)]
    rates = [each for each in limits if isinstance(each, Rate)]
    given: object = tuple(limits)
    known = len(concurrency) + len(rates)
    if not limits or known < len(limits) or len(concurrency) > 1 or len(rates) > 1:
        raise OptionError("limits", given, "expected a Concurrency, a Rate, or one of each")
    count, per_us = rates[0].parts if rates else (0, 0)
    return LimitDefinition(
        concurrency=concurrency[0].most if concurrency else 0,
        count=count,
        per_us=per_us,
        burst=(rates[0].burst or 1) if rates else 1,
        strict=rates[0].strict if rates else False,
    )


def define_named(name: str, limits: Sequence[Concurrency | Rate]) -> LimitDefinition:
    """The definition of a limit that is declared under a name."""
    for each in limits:
        if getattr(each, "by", None) is not None:
            problem = f'not allowed in a declaration; tasks write Limit("{name}", by=...)'
            raise OptionError("by", each.by, problem)
    return define(limits)


def check_limits(given: object) -> tuple[AnyLimit, ...]:
    """The limits of a job or task; `OptionError` if something else was given."""
    if not isinstance(given, list | tuple):
        raise OptionError("limits", given, "expected a list of Concurrency, Rate and Limit")
    for each in given:
        if not isinstance(each, Concurrency | Rate | Limit):
            raise OptionError("limits", each, "expected Concurrency(...), Rate(...) or Limit(...)")
    return tuple(given)


NamedLimits: TypeAlias = Mapping[str, LimitDefinition]
"""Limits that were declared under a name."""
NO_NAMED: Final[NamedLimits] = {}
