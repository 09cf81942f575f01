"""What a task declares about where its jobs wait, and what that means for a call."""

from typing import Any

import pytest

from tampu.errors import OptionError
from tampu.limits import Concurrency, Limit, Priority, Rate
from tampu.limits.declared import TaskFlow, check_declared
from tampu.limits.placing import FlowOptions, place_job
from tampu.wire.lines import LimitDefinition

CALL: dict[str, Any] = {"tenant": "t1", "doc": "d", "tokens": 40, "nobody": None}


def fails(_: object) -> object:
    raise ZeroDivisionError


def for_call(own: dict[str, Any] | None = None, **declared: Any) -> FlowOptions:  # noqa: ANN401
    flow = TaskFlow(**declared)
    flow.check()
    flow.check_arguments(CALL.keys())
    return flow.for_call(dict(CALL), own or {})


class TestForCall:
    @pytest.mark.parametrize(
        ("declared", "found"),
        [
            ({}, {}),
            ({"priority": Priority.HIGH}, {"priority": 7}),
            ({"key": "tenant"}, {"key": "t1"}),
            ({"key": lambda call: call["doc"] + "!"}, {"key": "d!"}),
            ({"key": "tenant", "weight": 2}, {"key": "t1", "weight": 2}),
            ({"key": "tenant", "weight": len}, {"key": "t1", "weight": 2}),
            ({"key": "tenant", "ordered": True}, {"key": "t1", "ordered": True}),
            ({"cost": 5}, {"cost": 5}),
            ({"cost": "tokens"}, {"cost": 40}),
            ({"cost": lambda call: call["tokens"] * 2}, {"cost": 80}),
            ({"cost": "nobody"}, {}),
            ({"key": "nobody", "ordered": True, "weight": 2}, {}),
        ],
    )
    def test_names_and_functions_are_replaced_by_values(
        self, declared: dict[str, Any], found: dict[str, Any]
    ) -> None:
        assert for_call(**declared) == FlowOptions(**found)

    @pytest.mark.parametrize(
        ("own", "found"),
        [
            ({"priority": 1}, {"priority": 1, "key": "t1", "weight": 2, "ordered": True}),
            ({"key": "long"}, {"priority": 7, "key": "long", "weight": 4, "ordered": True}),
            ({"key": None}, {"priority": 7}),
            ({"weight": 9}, {"priority": 7, "key": "t1", "weight": 9, "ordered": True}),
            ({"ordered": False}, {"priority": 7, "key": "t1", "weight": 2, "ordered": False}),
        ],
    )
    def test_the_options_of_the_job_itself_win(
        self, own: dict[str, Any], found: dict[str, Any]
    ) -> None:
        made = for_call(own, priority=7, key="tenant", weight=len, ordered=True)
        assert made == FlowOptions(**found)

    def test_other_options_of_the_job_are_kept(self) -> None:
        assert for_call({"keep": "latest"}, key="tenant").keep == "latest"

    def test_limits_keep_their_names_when_their_values_are_found(self) -> None:
        limits = [Concurrency(2, by="tenant"), Rate("5/s", by="doc")]
        made = for_call(limits=[*limits, Limit("api", by="tenant"), Limit("stripe")])
        place = place_job("charge", {"other": "data"}, made)
        assert place.line == "5|charge(tenant):t1|charge(doc):d|api:t1|stripe"

    def test_limits_of_the_job_see_the_defaults_too(self) -> None:
        made = for_call({"limits": [Concurrency(1, by="doc")]}, limits=[Limit("stripe")])
        assert place_job("charge", None, made).line == "5|charge(doc):d"

    @pytest.mark.parametrize(
        ("declared", "problem"),
        [
            ({"key": fails}, "Invalid key .*fails.*: the function raised ZeroDivisionError"),
            ({"key": lambda _: 1.5}, "Invalid key <class 'float'>: expected text or a whole"),
            ({"key": lambda _: ""}, "Invalid key ''"),
            ({"key": "tenant", "weight": fails}, "Invalid weight .*fails.*: the function raised"),
            ({"cost": fails}, "Invalid cost .*fails.*: the function raised"),
            ({"cost": lambda _: 0}, "Invalid cost 0"),
            ({"cost": "doc"}, "Invalid cost 'd'"),
            ({"key": "tenant", "weight": lambda _: -1}, "Invalid weight -1"),
            ({"limits": [Limit("api", by=fails)]}, "Invalid by .*fails.*: the function raised"),
            ({"limits": [Limit("api", by=lambda _: 1.5)]}, "Invalid by <class 'float'>"),
        ],
    )
    def test_what_a_function_returns_is_checked(
        self, declared: dict[str, Any], problem: str
    ) -> None:
        with pytest.raises(OptionError, match=problem):
            place_job("charge", CALL, for_call(**declared))

    def test_a_key_of_the_job_that_is_none_reaches_no_function(self) -> None:
        with pytest.raises(OptionError, match="Invalid key <class 'float'>"):
            for_call({"key": 1.5}, key="tenant", weight=fails)


class TestDeclaring:
    @pytest.mark.parametrize(
        ("declared", "problem"),
        [
            ({"priority": 10}, "Invalid priority 10"),
            ({"key": 5}, "Invalid key 5: expected the name of an argument, or a function"),
            ({"key": ""}, "Invalid key ''"),
            ({"ordered": True}, "Invalid ordered True: needs a key"),
            ({"ordered": 1, "key": "tenant"}, "Invalid ordered 1: expected True or False"),
            ({"weight": 2}, "Invalid weight 2: needs a key"),
            ({"weight": 0, "key": "tenant"}, "Invalid weight 0"),
            ({"weight": "2", "key": "tenant"}, "Invalid weight '2'"),
            ({"limits": Limit("stripe")}, "expected a list of"),
            ({"limits": ["stripe"]}, "expected Concurrency"),
            ({"cost": 0}, "Invalid cost 0"),
            ({"cost": ""}, "Invalid cost ''"),
            ({"cost": 2, "limits": [Rate("5/s", strict=True)]}, "combined with a strict rate"),
            (
                {"key": "tenent"},
                r"Invalid key 'tenent': the task has no such argument \(did you mean tenant\?\)",
            ),
            ({"cost": "size"}, "Invalid cost 'size': the task has no such argument"),
            ({"limits": [Concurrency(1, by="dok")]}, r"Invalid by 'dok': .*\(did you mean doc\?\)"),
        ],
    )
    def test_what_can_be_known_without_a_call_is_refused(
        self, declared: dict[str, Any], problem: str
    ) -> None:
        with pytest.raises(OptionError, match=problem):
            for_call(**declared)

    def test_a_limit_that_nobody_has_declared_is_refused_with_a_hint(self) -> None:
        named = {"stripe": LimitDefinition(concurrency=1)}
        check_declared([Limit("stripe", by="tenant"), Concurrency(1)], named)
        check_declared(None, named)
        with pytest.raises(
            OptionError, match=r"Invalid limit 'strpe': .*\(did you mean stripe\?\)"
        ):
            check_declared([Limit("strpe")], named)
        with pytest.raises(OptionError, match=r'declare it with app.limit\("other", ...\)'):
            check_declared([Limit("other")], {})
