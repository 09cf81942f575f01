"""Options given as keywords, checked as one frozen group."""

from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import TYPE_CHECKING, TypeVar

from tampu.errors import OptionError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


def parse_options(kind: type[S], owner: str, options: Mapping[str, object]) -> S:
    """The group made of the options; one that it does not know is an error that names it."""
    known = [field.name for field in fields(kind)]
    for option, given in options.items():
        if option not in known:
            raise OptionError(
                option, given, f"is no option of {owner}, which takes {', '.join(known)}"
            )
    return kind(**options)


def at_least(option: str, given: int, least: int) -> None:
    """Refuse what is no whole number from `least` on."""
    if isinstance(given, bool) or not isinstance(given, int) or given < least:  # type: ignore[redundant-expr]
        raise OptionError(option, given, f"must be a whole number from {least}")


def check_flag(option: str, given: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(given, bool):
        raise OptionError(option, given, "expected True or False")


def check_type(option: str, given: object, kind: type | UnionType, *, accepted: str) -> None:
    """Refuse what is not of a kind."""
    if not isinstance(given, kind):
        raise OptionError(option, given, f"expected {accepted}")
