"""Dicts that callers hand over, read field by field; a complaint names the field."""

from collections.abc import Mapping
from typing import Any


def text_of(given: Mapping[str, Any], owner: str, name: str) -> str | None:
    """A text, or None if it is not there."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{owner}.{name} must be a string")
    return value


def dict_of(given: Mapping[str, Any], owner: str, name: str) -> Mapping[str, Any] | None:
    """A dict, or None if it is not there."""
    value = given.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{owner}.{name} must be a dict or None")
    return value


def count_of(given: Mapping[str, Any], owner: str, name: str, *, bits: int = 64) -> int | None:
    """A whole number from 0 that fits into so many bits, or None if it is not there."""
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < 2**bits:
        raise ValueError(f"{owner}.{name} must be a non-negative int")
    return int(value)


def number_of(given: Mapping[str, Any], owner: str, name: str) -> float | None:
    """A number, or None if it is not there."""
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{owner}.{name} must be a float")  # noqa: TRY004 - theirs
    return float(value)


def needed_text(given: Mapping[str, Any], owner: str, name: str) -> str:
    """A text that must be there."""
    if name not in given:
        raise ValueError(f"{owner}.{name} is required")
    if not isinstance(given[name], str):
        raise ValueError(f"{owner}.{name} must be a string")  # noqa: TRY004 - theirs
    return str(given[name])


def needed(given: Mapping[str, Any], owner: str, name: str) -> Any:  # noqa: ANN401 - of a caller
    """What must be there, whatever it is."""
    if given.get(name) is None:
        raise ValueError(f"{owner}.{name} is required")
    return given[name]
