"""Checks of what callers pass in.

The errors and their texts are those of chasquimq. Its engine is compiled, so many of them come from
the library that converts Python values for it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

# --- arguments ------------------------------------------------------------------------------------


def check_type(name: str, given: object, kind: type[T]) -> T:
    """Return the argument if it has the right type."""
    if not isinstance(given, kind):
        raise _wrong_type(name, given, kind.__name__)
    return given


def check_texts(name: str, given: object) -> list[str]:
    """Return a sequence of texts as a list; a single text is refused."""
    if isinstance(given, str):
        raise TypeError(f"argument '{name}': Can't extract `str` to `Vec`")
    if not isinstance(given, Sequence):
        raise _wrong_type(name, given, "Sequence")
    return [check_type(name, each, str) for each in given]


def check_int(name: str, given: object) -> int:
    """Return the argument if it is an integer."""
    if not isinstance(given, int):
        kind = type(given).__name__
        raise TypeError(f"argument '{name}': '{kind}' object cannot be interpreted as an integer")
    return int(given)


def check_unsigned(name: str, given: int | None) -> int | None:
    """Return the argument if it is None or an integer of at least 0."""
    if given is not None and check_int(name, given) < 0:
        raise OverflowError("out of range integral type conversion attempted")
    return given


def check_non_negative(name: str, given: int | None) -> int | None:
    """Like `check_unsigned`, for arguments that chasquimq refuses with a `RuntimeError`."""
    if given is not None and check_int(name, given) < 0:
        raise RuntimeError(f"{name} must be non-negative; got {given}")
    return given


def check_positive(name: str, given: int | None) -> int | None:
    """Return the argument if it is None or an integer of at least 1."""
    if given is not None and check_int(name, given) <= 0:
        raise RuntimeError(f"{name} must be positive; got {given}")
    return given


def check_limit(limit: object) -> int:
    """Return how many items a caller wants, at least 0."""
    count = check_int("limit", limit)
    check_unsigned("limit", count)
    return count


def log_ignored_options(owner: str, **options: int | None) -> None:
    """Log the options that were set but have no effect in tampu."""
    given = ", ".join(name for name, value in options.items() if value is not None)
    if given:
        facts = {"owner": owner, "options": given}
        logger.info("%s: options without effect in tampu: %s", owner, given, extra=facts)


def _wrong_type(name: str, given: object, expected: str) -> TypeError:
    got = "'None'" if given is None else f"'{type(given).__name__}' object"
    return TypeError(f"argument '{name}': {got} is not an instance of '{expected}'")


# --- fields of dicts ------------------------------------------------------------------------------
#
# `owner` is the name of the dict in error texts.


def get_text(given: Mapping[str, Any], owner: str, name: str) -> str | None:
    """A text field, or None if it is missing."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{owner}.{name} must be a string")
    return value


def get_dict(given: Mapping[str, Any], owner: str, name: str) -> Mapping[str, Any] | None:
    """A dict field, or None if it is missing."""
    value = given.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{owner}.{name} must be a dict or None")
    return value


def get_count(given: Mapping[str, Any], owner: str, name: str, *, bits: int = 64) -> int | None:
    """An unsigned integer field that fits into `bits` bits, or None if it is missing."""
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < 2**bits:
        raise ValueError(f"{owner}.{name} must be a non-negative int")
    return int(value)


def get_number(given: Mapping[str, Any], owner: str, name: str) -> float | None:
    """A number field, or None if it is missing."""
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{owner}.{name} must be a float")  # noqa: TRY004 - as in chasquimq
    return float(value)


def require_text(given: Mapping[str, Any], owner: str, name: str) -> str:
    """A text field that must be present."""
    if name not in given:
        raise ValueError(f"{owner}.{name} is required")
    if not isinstance(given[name], str):
        raise ValueError(f"{owner}.{name} must be a string")  # noqa: TRY004 - as in chasquimq
    return str(given[name])


def require_value(given: Mapping[str, Any], owner: str, name: str) -> Any:  # noqa: ANN401 - a caller's
    """A field of any type that must be present and not None."""
    if given.get(name) is None:
        raise ValueError(f"{owner}.{name} is required")
    return given[name]
