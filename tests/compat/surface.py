"""What a package offers to callers, as plain data; run by the interpreter that has the package.

`python surface.py MODULE` prints it as JSON.
"""

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

_PINNED = Path(__file__).parent.parent / "golden" / "chasquimq_surface.json"


def surface_of(module: Any) -> dict[str, Any]:  # noqa: ANN401 - a module
    """Each public name: what it is called with, and what its members are called with."""
    return {name: _described(getattr(module, name)) for name in module.__all__ if name != "Handler"}


def pinned() -> dict[str, Any]:
    """What the real package offers, as it was once told."""
    found: dict[str, Any] = json.loads(_PINNED.read_text("utf-8"))
    del found["source"]
    return found


def _described(thing: Any) -> dict[str, Any]:  # noqa: ANN401 - a class or a function
    if not isinstance(thing, type):
        return {"": _parameters(thing)}
    told: dict[str, Any] = {"bases": [base.__name__ for base in thing.__mro__ if _tells(base)]}
    if not issubclass(thing, BaseException):
        told[""] = _parameters(thing)
    for name in dir(thing):
        if not name.startswith("_") and name not in dir(Exception):
            told[name] = _parameters(getattr(thing, name))
    return told


def _tells(base: type) -> bool:
    return base.__module__ == "builtins" and issubclass(base, Exception)


def _parameters(thing: Any) -> list[list[str]] | str:  # noqa: ANN401 - a callable or a value
    if not callable(thing):
        return "property" if isinstance(thing, property) else repr(thing)
    return [
        [parameter.name, parameter.kind.name, _default(parameter.default)]
        for parameter in inspect.signature(thing).parameters.values()
        if parameter.name != "self"
    ]


def _default(default: object) -> str:
    return "" if default is inspect.Parameter.empty else repr(default)


if __name__ == "__main__":
    print(json.dumps(surface_of(importlib.import_module(sys.argv[1]))), flush=True)  # noqa: T201
