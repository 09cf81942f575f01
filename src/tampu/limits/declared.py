"""What a task declares about where its jobs wait, and what that means for one call."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final, TypeAlias, TypeVar, cast

from msgspec import Struct

from tampu.errors import OptionError
from tampu.limits.model import (
    AnyLimit,
    Breaker,
    Debounce,
    FoundValue,
    Limit,
    NamedLimits,
    Rate,
    check_limits,
)
from tampu.limits.placing import (
    FLOW_OPTIONS,
    FlowOptions,
    check_cost,
    check_key,
    check_priority,
    check_rules,
    check_weight,
    name_of,
    value_of,
)
from tampu.util.options import check_flag

L = TypeVar("L", AnyLimit, Debounce)
ArgumentsFunction: TypeAlias = Callable[[dict[str, Any]], Any]
"""A function of a call's arguments by name, with the defaults of those that the call leaves out."""
KeyOf: TypeAlias = str | ArgumentsFunction | None
WeightOf: TypeAlias = float | Callable[[Any], Any] | None
CostOf: TypeAlias = int | str | ArgumentsFunction | None
_PLAIN: Final = ("breaker", "keep", "max_waiting", "on_full", "on_dead")


class TaskFlow(Struct, frozen=True, kw_only=True):
    """The options of a task that decide where its jobs wait: values, or how to find them."""

    priority: int | None = None
    key: KeyOf = None
    weight: WeightOf = None
    limits: Sequence[AnyLimit] = ()
    ordered: bool = False
    on_dead: str | None = None
    cost: CostOf = None
    debounce: Debounce | None = None
    keep: str | None = None
    max_waiting: int | None = None
    on_full: str | None = None
    breaker: Breaker | None = None

    def check(self) -> None:
        """Refuse what is invalid whatever the arguments are."""
        if self.priority is not None:
            check_priority(self.priority)
        _check_key_of(self.key)
        check_flag("ordered", self.ordered)
        for option, given in (("ordered", self.ordered or None), ("weight", self.weight)):
            if given is not None and self.key is None:
                raise OptionError(option, given, "needs a key")
        if self.weight is not None and not callable(self.weight):
            check_weight(self.weight)
        _check_cost_of(self.cost, check_limits(self.limits))
        rules = {name: getattr(self, name) for name in ("debounce", *_PLAIN)}
        check_rules(FlowOptions(**rules))

    def check_arguments(self, known: Collection[str]) -> None:
        """Refuse the name of an argument that the task does not have."""
        wanted: list[tuple[str, object]] = [("key", self.key), ("cost", self.cost)]
        wanted += [("by", each.by) for each in self.limits]
        if self.debounce is not None:
            wanted.append(("by", self.debounce.by))
        for option, by in wanted:
            if isinstance(by, str) and by not in known:
                problem = f"the task has no such argument{_hint(by, known)}"
                raise OptionError(option, by, problem)

    def for_call(self, arguments: dict[str, Any], own: Mapping[str, Any]) -> FlowOptions:
        """The options of the job of a call. `own` are those of the job itself: they win.

        A job whose key is None has no key, and so no order and no weight.
        """
        given: dict[str, Any] = {name: own[name] for name in FLOW_OPTIONS if name in own}
        key = given["key"] if "key" in given else _find("key", self.key, arguments)
        found: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN[:-1]}
        found |= {"priority": self.priority, "key": key}
        if key is not None:
            check_key("key", key)
            found["ordered"] = self.ordered or None
            found["on_dead"] = self.on_dead
            weight = self.weight
            found["weight"] = value_of("weight", weight, key) if callable(weight) else weight
        if "cost" not in given:
            cost = self.cost
            found["cost"] = _find("cost", cost, arguments) if _is_way(cost) else cost
        limits = check_limits(given.get("limits", self.limits) or ())
        found |= given
        found["limits"] = [_settle(each, arguments) for each in limits] or None
        debounce = given.get("debounce", self.debounce)
        found["debounce"] = None if debounce is None else _settle(debounce, arguments)
        return FlowOptions(**found)


NO_FLOW: Final = TaskFlow()


def check_declared(limits: Sequence[AnyLimit] | None, named: NamedLimits) -> None:
    """Refuse the name of a limit that nobody has declared."""
    for each in limits or ():
        if isinstance(each, Limit) and each.name not in named:
            problem = f"no limit of this name is declared{_hint(each.name, named)}"
            advice = f'declare it with app.limit("{each.name}", ...)'
            raise OptionError("limit", each.name, f"{problem}; {advice}")


def _check_key_of(key: KeyOf) -> None:
    if key is not None and not _is_way(key):
        problem = "expected the name of an argument, or a function of the arguments"
        raise OptionError("key", key, problem)


def _check_cost_of(cost: CostOf, limits: Sequence[AnyLimit]) -> None:
    if cost is None:
        return
    if not _is_way(cost):
        check_cost(cost)
    if any(isinstance(each, Rate) and each.strict for each in limits):
        raise OptionError("cost", cost, "cannot be combined with a strict rate")


def _is_way(given: object) -> bool:
    """Whether it names an argument, or is a function of the arguments."""
    return callable(given) or (isinstance(given, str) and given != "")


def _find(option: str, by: object, arguments: dict[str, Any]) -> object:
    return None if by is None else value_of(option, cast("KeyOf", by), arguments)


def _settle(limit: L, arguments: dict[str, Any]) -> L:
    """The limit with its value, found. The job's data may lack it: a default is not sent."""
    if limit.by is None:
        return limit
    value = value_of("by", limit.by, arguments)
    return replace(limit, by=FoundValue(name_of(limit.by), value))


def _hint(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
