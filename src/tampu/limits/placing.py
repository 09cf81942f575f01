"""Where a job waits: the line for its name, its data and its options."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from msgspec import Struct

from tampu.errors import OptionError
from tampu.limits.model import (
    NO_NAMED,
    AnyLimit,
    Breaker,
    By,
    Concurrency,
    Debounce,
    FoundValue,
    Limit,
    NamedLimits,
    Priority,
    Rate,
    check_limits,
    define,
)
from tampu.util.clock import to_positive_ms
from tampu.util.options import at_least, check_choice, check_flag, check_type
from tampu.wire.lines import (
    HALTED,
    ORDERED,
    OWN_LINE,
    PLAIN_LINE,
    BreakerDefinition,
    LimitDefinition,
    Line,
    escape,
    resource_name,
)

MAX_KEY_BYTES: Final = 256
MOST_LIMITS: Final = 8
MAX_COST: Final = 4_294_967_295
ON_FULL: Final = ("raise", "wait", "drop_new", "drop_old")
_MAX_WAITING: Final = 1_000_000_000
_NO_RULE: Final = (None, None, None)
_LEAST_WEIGHT: Final = 0.000_001  # the turns of a key are 1/weight apart, as a float
_MAX_WEIGHT: Final = 1_000_000


class FlowOptions(Struct, frozen=True, kw_only=True):
    """The options of a job that decide where it waits."""

    priority: int | None = None
    key: str | int | None = None
    weight: object = None
    limits: Sequence[AnyLimit] | None = None
    ordered: bool | None = None
    on_dead: str | None = None
    cost: object = None
    debounce: Debounce | None = None
    keep: str | None = None
    max_waiting: int | None = None
    on_full: str | None = None
    breaker: Breaker | None = None


FLOW_OPTIONS: Final = FlowOptions.__struct_fields__


Definitions: TypeAlias = tuple[tuple[str, LimitDefinition | None], ...]
"""Limits by name; None for what is declared elsewhere."""


class Placement(Struct, frozen=True):
    """Where a job waits, and what the gate must know for that."""

    line: str
    limits: Definitions = ()
    weight: float | None = None
    cost: int | None = None
    rule: str = ""  # what the add script does with other jobs that wait
    waits: bool = False  # until there is room in its line

    def flags(self, *, expires: bool) -> set[bytes]:
        """What the gate must look for in its lines because of jobs like this one."""
        flags = {b"e": expires, b"c": self.cost is not None, b"w": self.weight is not None}
        return {flag for flag, is_used in flags.items() if is_used}

    @property
    def own_rule(self) -> str | None:
        """The rule as it travels with the job."""
        return self.rule or None

    @property
    def weight_text(self) -> bytes:
        """The weight as scripts get it."""
        return b"" if self.weight is None else b"%r" % self.weight


def encode_definitions(limits: Mapping[str, LimitDefinition | None]) -> list[bytes]:
    """Names and definitions in turns, as scripts get them; b"" for what is declared elsewhere."""
    return [
        text.encode()
        for name, definition in limits.items()
        for text in (name, "" if definition is None else definition.to_text())
    ]


NO_OPTIONS: Final = FlowOptions()


def find_place(
    name: str, data: object, options: FlowOptions, *, named: NamedLimits = NO_NAMED
) -> Placement | None:
    """The place of a job, None if it needs no flow control; raises `OptionError`."""
    if options == NO_OPTIONS:
        return None
    place = place_job(name, data, options, named=named)
    return None if place.line == PLAIN_LINE and not place.rule else place


def place_job(
    name: str, data: object, options: FlowOptions, *, named: NamedLimits = NO_NAMED
) -> Placement:
    """The place of a job; raises `OptionError`."""
    level = Priority.DEFAULT if options.priority is None else check_priority(options.priority)
    key = None if options.key is None else check_key("key", options.key)
    limits = check_limits(options.limits or ())
    resources, definitions = _needed(name, data, limits, named=named)
    resources += _in_order(options, key)
    rule = _rule(name, data, options)
    if rule.startswith(("most", "last")):
        resources.append(resource_name(OWN_LINE, name))
    if options.breaker is not None:
        check_rules(options)
        resources.append(_breaker_resource(name, options.breaker))
    if len(resources) > MOST_LIMITS:
        problem = f"a job can have at most {MOST_LIMITS} limits"
        raise OptionError("limits", f"{len(resources)} of them", problem)
    weight = None if options.weight is None else check_weight(options.weight)
    if weight is not None and key is None:
        raise OptionError("weight", weight, "needs a key, whose share it is")
    cost = None if options.cost is None else check_cost(options.cost)
    if cost is not None and any(each is not None and each.strict for _, each in definitions):
        raise OptionError("cost", cost, "cannot be combined with a strict rate")
    line = str(Line(level, key, tuple(resources)))
    return Placement(line, definitions, weight, cost, rule, options.on_full == "wait")


def check_options(options: FlowOptions) -> None:
    """Refuse what is invalid whatever the job and its other options are."""
    if options.priority is not None:
        check_priority(options.priority)
    if options.key is not None:
        check_key("key", options.key)
    if options.ordered is not None:
        check_flag("ordered", options.ordered)
    if options.weight is not None:
        check_weight(options.weight)
    if options.cost is not None:
        check_cost(options.cost)
    check_limits(options.limits or ())


def check_priority(given: object) -> int:
    """A valid level."""
    at_least("priority", given, 0, most=9)
    assert isinstance(given, int)  # noqa: S101 - checked above
    return int(given)


def check_weight(given: object) -> float:
    """A valid share of a key."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise OptionError("weight", given, "expected a number above 0")
    if not _LEAST_WEIGHT <= given <= _MAX_WEIGHT:
        problem = f"expected a number above 0: from {_LEAST_WEIGHT:f} to {_MAX_WEIGHT}"
        raise OptionError("weight", given, problem)
    return float(given)


def check_cost(given: object) -> int:
    """A valid number of tokens."""
    at_least("cost", given, 1, most=MAX_COST)
    assert isinstance(given, int)  # noqa: S101 - checked above
    return int(given)


def check_key(option: str, given: object) -> str:
    """A key or value as text; `OptionError` if it is none."""
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise OptionError(option, type(given), "expected text or a whole number")
    # As it is sent: an enum of texts is its text.
    key = str.__str__(given) if isinstance(given, str) else _digits(given)
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= MAX_KEY_BYTES:
        problem = f"must be 1 to {MAX_KEY_BYTES} bytes of text, and has {size}"
        raise OptionError(option, key[:40], problem)
    return key


def _digits(number: int) -> str:
    try:
        return str(int(number))
    except ValueError:  # Python does not write numbers of thousands of digits
        return ""


def value_of(option: str, by: By, data: Any) -> object:  # noqa: ANN401 - the user's data
    """The value that a name or function stands for; None if it has none."""
    if isinstance(by, FoundValue):
        return by.value
    if callable(by):
        try:
            return by(data)
        except Exception as error:  # border: a function of the user's
            problem = f"the function raised {type(error).__name__}"
            raise OptionError(option, name_of(by), problem) from error
    if not isinstance(data, dict) or by not in data:
        problem = "the job's data has no item of this name"
        raise OptionError(option, by, problem)
    return data[by]


def name_of(by: By) -> str:
    """How a limit names what it counts by."""
    if isinstance(by, FoundValue):
        return by.name
    return by if isinstance(by, str) else getattr(by, "__name__", type(by).__name__)


class _Need(Struct, frozen=True):
    """A limit that a job needs: its name, what it counts by, and how it is defined."""

    limit: str
    by: By
    definition: LimitDefinition | None  # None: declared under its name


def _needed(
    name: str, data: object, limits: Sequence[AnyLimit], *, named: NamedLimits
) -> tuple[list[str], Definitions]:
    """The resources that a job needs, and the definitions of their limits."""
    if not limits:
        return [], ()
    needs = _needs_of(name, tuple(limits))
    values: dict[str, str | None] = {}
    for need in needs:
        value = None
        if need.by is not None:
            found = value_of("by", need.by, data)
            if found is None:
                continue  # this job has no such value: the limit does not apply to it
            value = check_key("by", found)
        if values.setdefault(need.limit, value) != value:
            problem = "two of them have the same name for different values"
            raise OptionError("limits", need.limit, problem)
    definitions = {each.limit: each.definition or named.get(each.limit) for each in needs}
    resources = [resource_name(limit, value) for limit, value in values.items()]
    return resources, tuple((limit, definitions[limit]) for limit in values)


def _needs_of(name: str, limits: tuple[AnyLimit, ...]) -> tuple[_Need, ...]:
    """What the limits of a job are called: worked out once for all jobs with the same ones."""
    if any(type(each.by) is FoundValue for each in limits):
        return _name_limits(name, limits)  # the value differs from job to job
    try:
        return _cached_needs(name, limits)
    except TypeError:  # a function that has no hash
        return _name_limits(name, limits)


def _name_limits(name: str, limits: tuple[AnyLimit, ...]) -> tuple[_Need, ...]:
    own: dict[str, list[Concurrency | Rate]] = {}
    names = [
        each.name if isinstance(each, Limit) else _own_limit(name, each, own) for each in limits
    ]
    return tuple(
        _Need(limit, each.by, define(own[limit]) if limit in own else None)
        for limit, each in zip(names, limits, strict=True)
    )


_cached_needs: Final = lru_cache(maxsize=1024)(_name_limits)


def limits_of(
    name: str, limits: Sequence[AnyLimit], named: NamedLimits
) -> dict[str, LimitDefinition]:
    """All limits that jobs of this name may need, by their names."""
    own: dict[str, list[Concurrency | Rate]] = {}
    shared = [each.name for each in limits if isinstance(each, Limit)]
    for each in limits:
        if not isinstance(each, Limit):
            _own_limit(name, each, own)
    found = {limit: define(same) for limit, same in own.items()}
    return found | {limit: named[limit] for limit in shared if limit in named}


def _own_limit(
    name: str, each: Concurrency | Rate, own: dict[str, list[Concurrency | Rate]]
) -> str:
    """The name of a limit of a task; a second one of the same kind gets a number."""
    base = f"{escape(name)}({'' if each.by is None else escape(name_of(each.by))})"
    for number in range(1, MOST_LIMITS + 2):
        limit = base if number == 1 else f"{base}#{number}"
        same = own.setdefault(limit, [])
        if not any(type(other) is type(each) for other in same):
            same.append(each)
            break
    return limit


def _in_order(options: FlowOptions, key: str | None) -> list[str]:
    """What lets the jobs of a key through one after the other."""
    if options.ordered is not None:
        check_flag("ordered", options.ordered)
    if options.on_dead is not None:
        check_choice("on_dead", options.on_dead, ("go_on", "halt"))
        if not options.ordered:
            raise OptionError("on_dead", options.on_dead, "only ordered jobs have it")
    if not options.ordered:
        return []
    if key is None:
        raise OptionError("ordered", options.ordered, "needs a key: jobs of a key run in order")
    halted = [resource_name(HALTED, key)] if options.on_dead == "halt" else []
    return [resource_name(ORDERED, key), *halted]


def _rule(name: str, data: object, options: FlowOptions) -> str:
    """What becomes of other jobs that wait, as the add script reads it."""
    given = (options.debounce, options.keep, options.max_waiting)
    if given == _NO_RULE and options.on_full is None:
        return ""
    if sum(each is not None for each in given) > 1:
        problem = "only one of debounce, keep and max_waiting can be given"
        raise OptionError("debounce", options.debounce, problem)
    check_rules(options)
    if options.keep is not None:
        return "last"
    if options.max_waiting is not None:
        mode = options.on_full or "raise"
        return f"most {options.max_waiting} {mode}"
    debounce = options.debounce
    return "" if debounce is None else _quiet(name, data, debounce)


def check_rules(options: FlowOptions) -> None:
    """Refuse invalid rules about other jobs that wait, or that failed."""
    if options.on_full is not None:
        check_choice("on_full", options.on_full, ON_FULL)
        if options.max_waiting is None:
            raise OptionError("on_full", options.on_full, "needs max_waiting")
    if options.keep is not None:
        check_choice("keep", options.keep, ("latest",))
    if options.max_waiting is not None:
        at_least("max_waiting", options.max_waiting, 1, most=_MAX_WAITING)
    if options.debounce is not None:
        given: object = options.debounce
        if not isinstance(given, Debounce):
            raise OptionError("debounce", given, "expected Debounce(...)")
    if options.breaker is not None:
        check_type("breaker", options.breaker, Breaker, accepted="Breaker(...)")


def _name_breaker(name: str, breaker: Breaker) -> str:
    cooldown_ms = to_positive_ms("cooldown", breaker.cooldown)
    return BreakerDefinition(name, breaker.failures, breaker.of, cooldown_ms).resource


_breaker_resource: Final = lru_cache(maxsize=1024)(_name_breaker)


def _quiet(name: str, data: object, debounce: Debounce) -> str:
    value = None if debounce.by is None else value_of("by", debounce.by, data)
    own = "" if value is None else f"/{escape(check_key('by', value))}"
    longest_ms = 0 if debounce.max is None else to_positive_ms("max", debounce.max)
    return f"quiet {to_positive_ms('wait', debounce.wait)} {longest_ms} {escape(name)}{own}"
