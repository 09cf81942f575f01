"""Arguments of the wrong type, refused in chasquimq's words."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def instance(name: str, given: object, kind: type[T]) -> T:
    """What was given, if it is of that type."""
    if not isinstance(given, kind):
        raise _refusal(name, given, kind.__name__)
    return given


def texts(name: str, given: object) -> list[str]:
    """Several texts; one text is not a sequence of them."""
    if isinstance(given, str):
        raise TypeError(f"argument '{name}': Can't extract `str` to `Vec`")
    if not isinstance(given, Sequence):
        raise _refusal(name, given, "Sequence")
    return [instance(name, each, str) for each in given]


def whole(name: str, given: object) -> int:
    """A whole number."""
    if not isinstance(given, int):
        kind = type(given).__name__
        raise TypeError(f"argument '{name}': '{kind}' object cannot be interpreted as an integer")
    return int(given)


def _refusal(name: str, given: object, wanted: str) -> TypeError:
    told = "'None'" if given is None else f"'{type(given).__name__}' object"
    return TypeError(f"argument '{name}': {told} is not an instance of '{wanted}'")
