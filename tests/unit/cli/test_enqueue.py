"""The arguments of a task as they are typed."""

import pytest

from tampu import OptionError
from tampu.cli.enqueue import parse_json, parse_named_values


def test_a_value_is_json_if_it_can_be_and_else_text() -> None:
    given = ["a=1", "b=[1, 2]", "c=ada", 'd="1"', "e=null", "f=x=y", "g="]
    found = {"a": 1, "b": [1, 2], "c": "ada", "d": "1", "e": None, "f": "x=y", "g": ""}
    assert parse_named_values("arg", given) == found


@pytest.mark.parametrize("wrong", [["a"], ["=1"], ["a=1", "a=2"]])
def test_a_value_needs_a_name_that_is_given_once(wrong: list[str]) -> None:
    with pytest.raises(OptionError, match="Invalid arg"):
        parse_named_values("arg", wrong)


def test_an_error_does_not_quote_the_json_that_was_typed() -> None:
    with pytest.raises(OptionError) as caught:
        parse_json("data", "{secret")
    assert "secret" not in str(caught.value)
