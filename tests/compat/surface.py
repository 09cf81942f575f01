"""The public names and signatures of a package, as plain data.

The interpreter that has the package runs this file: `python surface.py MODULE` prints JSON.
"""

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

_EXPECTED = Path(__file__).parent.parent / "golden" / "chasquimq_surface.json"


def surface_of(module: Any) -> dict[str, Any]:  # noqa: ANN401 - a module
    """Each public name with its parameters, and its members with theirs."""
    return {name: _describe(getattr(module, name)) for name in module.__all__ if name != "Handler"}


def expected_surface() -> dict[str, Any]:
    """The surface of the real package, from a file."""
    found: dict[str, Any] = json.loads(_EXPECTED.read_text("utf-8"))
    del found["source"]
    return found


def _describe(thing: Any) -> dict[str, Any]:  # noqa: ANN401 - a class or a function
    if not isinstance(thing, type):
        return {"": _parameters(thing)}
    described: dict[str, Any] = {
        "bases": [base.__name__ for base in thing.__mro__ if _is_builtin_error(base)]
    }
    if not issubclass(thing, BaseException):
        described[""] = _parameters(thing)
    for name in dir(thing):
        if not name.startswith("_") and name not in dir(Exception):
            described[name] = _parameters(getattr(thing, name))
    return described


def _is_builtin_error(base: type) -> bool:
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
