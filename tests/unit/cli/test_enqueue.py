"""The arguments of a task as they are typed."""

from datetime import date
from typing import Any

import pytest

from tampu import App, OptionError
from tampu.cli.enqueue import _parse_arguments, parse_json, split_named

app = App()


@app.task
def any_of(a: Any, b: Any = None, c: Any = None) -> None: ...  # noqa: ANN401 - whatever is typed


@app.task
def typed(
    text: str = "", maybe: str | None = None, number: int = 0, on: date | None = None
) -> None: ...


def test_a_value_is_json_if_it_can_be_and_else_text() -> None:
    given = ["a=1", "b=[1, 2]", "c=x=y"]
    assert _parse_arguments(any_of, given, None) == {"a": 1, "b": [1, 2], "c": "x=y"}
    given = ['a="1"', "b=null", "c="]
    assert _parse_arguments(any_of, given, None) == {"a": "1", "b": None, "c": ""}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("text=7", "7"),
        ("text=true", "true"),
        ("text=[1]", "[1]"),
        ('text="7"', "7"),
        ("maybe=null", None),
        ("maybe=12", "12"),
        ("number=7", 7),
        ("on=2026-12-24", "2026-12-24"),
    ],
)
def test_text_needs_no_quotes_where_the_task_takes_text(given: str, value: object) -> None:
    assert list(_parse_arguments(typed, [given], None).values()) == [value]


@pytest.mark.parametrize("wrong", [["a"], ["=1"], ["a=1", "a=2"]])
def test_a_value_needs_a_name_that_is_given_once(wrong: list[str]) -> None:
    with pytest.raises(OptionError, match="Invalid arg"):
        split_named("arg", wrong)


def test_an_error_does_not_quote_the_json_that_was_typed() -> None:
    with pytest.raises(OptionError) as caught:
        parse_json("data", "{secret")
    assert "secret" not in str(caught.value)
