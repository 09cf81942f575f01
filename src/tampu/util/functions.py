"""Kinds of functions that users pass to us."""

import functools
import inspect


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


def _callables_of(function: object) -> tuple[object, object]:
    """The function without arguments that `partial` has bound, and its `__call__`."""
    bare = function
    while isinstance(bare, functools.partial):
        bare = bare.func
    return bare, getattr(bare, "__call__", None)  # noqa: B004 - its kind is checked
