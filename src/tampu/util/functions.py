"""What kind of function a user has given us."""

import functools
import inspect


def is_async(function: object) -> bool:
    """Whether it is an async function; a callable object counts by its `__call__`.

    What a decorator has wrapped does not count: the wrapper is what is called.
    """
    return any(map(inspect.iscoroutinefunction, _kinds_of(function)))


def yields(function: object) -> bool:
    """Whether calling it gives a generator, async or not."""
    return any(
        inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind)
        for kind in _kinds_of(function)
    )


def _kinds_of(function: object) -> tuple[object, object]:
    """The function itself, without arguments that `partial` has bound, and its `__call__`."""
    bare = function
    while isinstance(bare, functools.partial):
        bare = bare.func
    return bare, getattr(bare, "__call__", None)  # noqa: B004 - its kind is asked
