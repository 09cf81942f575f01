"""Where a job waits: its line, the definitions of its limits, and every refusal."""

import enum
import math
from collections.abc import Callable
from typing import Any

import pytest

from tampu.errors import OptionError
from tampu.limits import Concurrency, Limit, Rate
from tampu.limits.model import define, define_named
from tampu.limits.placing import FlowOptions, Placement, check_options, find_place, place_job
from tampu.wire.lines import LimitDefinition, parse_line

DATA = {"tenant": "t1", "doc": "d", "nothing": None, "amount": 1.5, "yes": True}
NAMED = {
    "stripe": LimitDefinition(count=25, per_us=1_000_000),
    "exact": define([Rate("5/s", strict=True)]),
}


class Plan(str, enum.Enum):  # noqa: UP042 - the older way to write it
    FREE = "free"


class Color(enum.StrEnum):
    RED = "red"


def fails(data: object) -> object:
    raise KeyError(data)


def place(data: object = DATA, **options: Any) -> Placement:  # noqa: ANN401 - as the test gives them
    return place_job("charge", data, FlowOptions(**options), named=NAMED)


class TestLine:
    @pytest.mark.parametrize(
        ("options", "line"),
        [
            ({}, "5"),
            ({"priority": 0}, "0"),
            ({"key": "a/b|c"}, "5/a%2Fb%7Cc"),
            ({"key": 7}, "5/7"),
            ({"key": Plan.FREE}, "5/free"),
            ({"key": Color.RED}, "5/red"),
            ({"key": "k", "ordered": True}, "5/k|>:k"),
            ({"key": "k", "ordered": False}, "5/k"),
            ({"limits": [Concurrency(2)]}, "5|charge()"),
            ({"limits": [Concurrency(2), Rate("5/s")]}, "5|charge()"),
            ({"limits": [Concurrency(2, by="tenant")]}, "5|charge(tenant):t1"),
            ({"limits": [Concurrency(2), Concurrency(3)]}, "5|charge()|charge()#2"),
            ({"limits": [Limit("stripe"), Limit("api", by="doc")]}, "5|stripe|api:d"),
            ({"limits": [Concurrency(2, by="nothing")]}, "5"),
            (
                {"limits": [Concurrency(2, by=lambda data: data["doc"] * 2)]},
                "5|charge(<lambda>):dd",
            ),
        ],
    )
    def test_it_names_what_the_job_needs(self, options: dict[str, Any], line: str) -> None:
        made = place(**options)
        assert made.line == line
        assert str(parse_line(made.line)) == line

    def test_own_limits_are_defined_and_named_ones_if_they_are_known(self) -> None:
        made = place(limits=[Concurrency(2), Rate("5/s"), Limit("stripe"), Limit("elsewhere")])
        both = LimitDefinition(concurrency=2, count=5, per_us=1_000_000)
        assert dict(made.limits) == {
            "charge()": both,
            "stripe": NAMED["stripe"],
            "elsewhere": None,
        }

    @pytest.mark.parametrize("options", [{}, {"priority": 5}, {"ordered": False}, {"cost": 5}])
    def test_a_job_that_waits_for_nothing_special_needs_no_place(
        self, options: dict[str, Any]
    ) -> None:
        assert find_place("charge", DATA, FlowOptions(**options)) is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"priority": 10}, "Invalid priority 10: must be a whole number from 0 to 9"),
            ({"priority": -1}, "from 0 to 9"),
            ({"priority": True}, "from 0 to 9"),
            ({"priority": "high"}, "from 0 to 9"),
            ({"key": ""}, "Invalid key '': must be 1 to 256 bytes of text, and has 0"),
            ({"key": "k" * 257}, "and has 257"),
            ({"key": "\ud800"}, "must be 1 to 256 bytes"),
            ({"key": 10**5000}, "must be 1 to 256 bytes"),
            ({"key": 1.5}, "Invalid key <class 'float'>: expected text or a whole number"),
            ({"key": True}, "expected text or a whole number"),
            ({"key": b"k"}, "expected text or a whole number"),
            ({"key": "k", "ordered": 1}, "Invalid ordered 1: expected True or False"),
            ({"ordered": True}, "needs a key: jobs of a key run in order"),
            ({"weight": 2}, "needs a key, whose share it is"),
            ({"key": "k", "weight": 0}, "expected a number above 0"),
            ({"key": "k", "weight": -1}, "expected a number above 0"),
            ({"key": "k", "weight": math.nan}, "expected a number above 0"),
            ({"key": "k", "weight": math.inf}, "expected a number above 0"),
            ({"key": "k", "weight": 10**400}, "expected a number above 0"),
            ({"key": "k", "weight": True}, "expected a number above 0"),
            ({"key": "k", "weight": "2"}, "expected a number above 0"),
            ({"cost": 0}, "Invalid cost 0: must be a whole number from 1"),
            ({"cost": 1.5}, "must be a whole number from 1"),
            ({"cost": 2**32}, "must be a whole number from 1"),
            ({"cost": 2, "limits": [Rate("5/s", strict=True)]}, "combined with a strict rate"),
            ({"cost": 2, "limits": [Limit("exact")]}, "combined with a strict rate"),
            ({"limits": Concurrency(2)}, "expected a list of Concurrency, Rate and Limit"),
            ({"limits": ["stripe"]}, "expected Concurrency"),
            ({"limits": [Concurrency(2)] * 9}, "Invalid limits '9 of them': .* at most 8 limits"),
            ({"limits": [Concurrency(2, by="tenent")]}, "Invalid by 'tenent': .* no item of this"),
            ({"limits": [Concurrency(2, by="amount")]}, "expected text or a whole number"),
            ({"limits": [Concurrency(2, by="yes")]}, "expected text or a whole number"),
            ({"limits": [Concurrency(2, by=fails)]}, "Invalid by 'fails': .* raised KeyError"),
            (
                {"limits": [Limit("api", by="tenant"), Limit("api", by="doc")]},
                "Invalid limits 'api': two of them have the same name for different values",
            ),
        ],
    )
    def test_an_invalid_option_is_named(self, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(OptionError, match=problem):
            place(**options)

    @pytest.mark.parametrize("data", [None, 5, ["tenant"], {}])
    def test_data_without_the_value_is_refused(self, data: object) -> None:
        with pytest.raises(OptionError, match="Invalid by 'tenant': the job's data has no item"):
            place(data, limits=[Concurrency(2, by="tenant")])

    @pytest.mark.parametrize(
        "options",
        [
            {"priority": 10},
            {"key": ""},
            {"ordered": 1},
            {"weight": 0},
            {"cost": 0},
            {"limits": ["stripe"]},
        ],
    )
    def test_what_is_wrong_for_every_job_is_found_without_one(
        self, options: dict[str, Any]
    ) -> None:
        with pytest.raises(OptionError):
            check_options(FlowOptions(**options))


class TestDefinitions:
    @pytest.mark.parametrize(
        ("make", "problem"),
        [
            (lambda: Concurrency(0), "Invalid Concurrency 0"),
            (lambda: Concurrency(2, by=5), "Invalid by 5: expected the name of an argument"),  # type: ignore[arg-type]
            (lambda: Concurrency(2, by=""), "Invalid by ''"),
            (lambda: Rate("fast"), "Invalid Rate 'fast': expected .* \"25/s\""),
            (lambda: Rate("0/s"), "Invalid Rate 0"),
            (lambda: Rate("5/y"), "Invalid Rate '5/y'"),
            (lambda: Rate(5), "Invalid Rate 5"),  # type: ignore[arg-type]
            (lambda: Rate("5/s", burst=6), "Invalid burst 6"),
            (lambda: Rate("5/s", burst=2, strict=True), "combined with strict, which has no burst"),
            (lambda: Rate("5/s", strict=1), "Invalid strict 1"),  # type: ignore[arg-type]
            (lambda: Limit("a b"), "Invalid limit 'a b': must be 1 to 128 bytes"),
            (lambda: Limit("a:b"), "Invalid limit 'a:b'"),
            (lambda: Limit(">"), "Invalid limit '>'"),
            (lambda: Limit("k" * 129), "Invalid limit 'k+'"),
            (lambda: Limit(5), "Invalid limit 5"),  # type: ignore[arg-type]
            (lambda: define([]), "expected a Concurrency, a Rate, or one of each"),
            (lambda: define([Rate("1/s"), Rate("2/s")]), "expected a Concurrency, a Rate, or"),
            (
                lambda: define([Concurrency(1), Concurrency(2)]),
                "expected a Concurrency, a Rate, or",
            ),
            (lambda: define([Limit("other")]), "expected a Concurrency, a Rate, or"),  # type: ignore[list-item]
            (
                lambda: define_named("stripe", [Concurrency(1, by="tenant")]),
                r'Invalid by \'tenant\': .* tasks write Limit\("stripe", by=...\)',
            ),
        ],
    )
    def test_an_invalid_limit_is_refused(self, make: Callable[[], object], problem: str) -> None:
        with pytest.raises(OptionError, match=problem):
            make()
