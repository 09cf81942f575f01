"""What users pass: options, checked as one frozen group, and functions.

Options come in pairs. `QueueOptions`, a TypedDict, names the keywords for type checkers
(`**options: Unpack[QueueOptions]`). `QueueSettings`, a frozen dataclass with the same fields, has
the defaults and checks the values. A test compares the two halves of every pair.
"""

import functools
import inspect
from collections.abc import Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches
from enum import Enum
from math import inf
from types import UnionType
from typing import TYPE_CHECKING, TypeVar

from tampu.errors import OptionError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


def parse_options(settings: type[S], owner: str, options: Mapping[str, object]) -> S:
    """The settings made from the options; `OptionError` names an unknown or invalid one."""
    check_names(owner, options, [field.name for field in fields(settings)])
    return settings(**options)


def check_names(owner: str, options: Mapping[str, object], known: Collection[str]) -> None:
    """Refuse an option that the owner does not have."""
    for option in options:
        if option not in known:
            problem = f"unknown option{hint_of(option, known)}; {owner} accepts {', '.join(known)}"
            raise OptionError(option, options[option], problem)


def hint_of(name: str, known: Collection[str], *, likeness: float = 0.6) -> str:
    """The known name that is nearly the same, as a hint in brackets; empty if none is."""
    close = get_close_matches(name, known, n=1, cutoff=likeness)
    return f" (did you mean {close[0]}?)" if close else ""


def at_least(option: str, given: object, least: int, *, most: float = inf) -> None:
    """Refuse anything but a whole number from `least` to `most`."""
    if isinstance(given, int) and not isinstance(given, bool) and least <= given <= most:
        return
    bounds = f"of at least {least}" if most == inf else f"from {least} to {most}"
    raise OptionError(option, given, f"must be a whole number {bounds}")


class Word(Enum):
    """An enum whose members print as a word: `f"{EventKind.ADDED}"` is "added"."""

    def __str__(self) -> str:
        return self.value if isinstance(self.value, str) else self.name.lower()


def check_flag(option: str, given: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(given, bool):
        raise OptionError(option, given, "expected True or False")


def check_type(option: str, given: object, kind: type | UnionType, *, accepted: str) -> None:
    """Refuse a value of another type; `accepted` describes the right one."""
    if not isinstance(given, kind):
        raise OptionError(option, given, f"expected {accepted}")


def check_choice(option: str, given: object, choices: Collection[str]) -> None:
    """Refuse anything but one of the choices."""
    if not isinstance(given, str) or given not in choices:
        raise OptionError(option, given, f"expected one of {', '.join(choices)}")


def is_async(function: object) -> bool:
    """Whether calling it gives something to await. A callable object counts by its `__call__`.

    A decorated function counts as its wrapper: the wrapper is what gets called.
    """
    return any(map(inspect.iscoroutinefunction, _callables_of(function)))


def yields(function: object) -> bool:
    """Whether calling it gives a generator, async or not."""
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each)
        for each in _callables_of(function)
    )


def yields_async(function: object) -> bool:
    """Whether calling it gives an async generator."""
    return any(map(inspect.isasyncgenfunction, _callables_of(function)))


def _callables_of(function: object) -> tuple[object, object]:
    """The function without arguments that `partial` has bound, and its `__call__`."""
    bare = function
    while isinstance(bare, functools.partial):
        bare = bare.func
    return bare, getattr(bare, "__call__", None)  # noqa: B004 - its kind is checked
