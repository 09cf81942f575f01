"""Finding the app that a user names: module:app, or module alone."""

import importlib
import os
import sys
from inspect import isfunction
from types import ModuleType

from tampu.app import App
from tampu.cli.acts.blame import raised
from tampu.cli.acts.desk import near_misses
from tampu.cli.ending import Ended, ExitCode
from tampu.cli.shared import Shared


def app_at(target: str, shared: Shared) -> App:
    """Import the module and find the app; the directory that we are in is on the path.

    With --url it is the app's server. Ends the command with one sentence if there is no app, and
    with the traceback as well if the module itself raises.
    """
    module_name, colon, path = target.partition(":")
    if not module_name or (colon and not path):
        raise _wrong(f"{target!r} names no app; it is MODULE:APP, such as shop:app.")
    if "/" in module_name or module_name.startswith("."):
        raise _wrong(f"{module_name!r} is no module; one {_as_module(module_name)}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _imported(module_name, alone=not colon)
    app = _attribute(module, path) if path else _only_app(module)
    if shared.url is not None:
        app.url = shared.url
    return app


def _imported(name: str, *, alone: bool) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from None
        there = "in this directory or on the path (PYTHONPATH)"
        raise _wrong(
            f"there is no module {error.name!r} {there}{_hint(name, alone=alone)}"
        ) from None
    except Exception as error:  # noqa: BLE001 - border: the user's code
        raise _broken(name, error) from None


def _hint(name: str, *, alone: bool) -> str:
    """What a file's name, or a dot for the colon, was meant to be."""
    if name.endswith(".py"):
        return f"; a module {_as_module(name)}"
    module, dot, attribute = name.rpartition(".")
    return f"; did you mean {module}:{attribute}?" if dot and alone else "."


def _as_module(path: str) -> str:
    name = path.removesuffix(".py").strip("./").replace("/", ".")
    return f"goes by its name alone, such as {name}:app."


def _attribute(module: ModuleType, path: str) -> App:
    found: object = module
    for name in path.split("."):
        if not hasattr(found, name):
            misses = near_misses(path, list(_apps(module)))
            raise _wrong(f"module {module.__name__!r} has no {path!r}{misses}")
        found = getattr(found, name)
    if not isinstance(found, App):
        hint = f"; call it in the module: app = {path}()" if isfunction(found) else ""
        kind = type(found).__name__
        raise _wrong(f"{module.__name__}:{path} is no App, but of type {kind}{hint}.")
    return found


def _only_app(module: ModuleType) -> App:
    apps = _apps(module)
    if not apps:
        raise _wrong(f"module {module.__name__!r} has no App at its top; say MODULE:APP.")
    if len(set(map(id, apps.values()))) > 1:
        choices = " or ".join(f"{module.__name__}:{name}" for name in sorted(apps))
        raise _wrong(f"module {module.__name__!r} has several apps; say {choices}.")
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: each for name, each in vars(module).items() if isinstance(each, App)}


def _broken(name: str, error: Exception) -> Ended:
    return raised(error, ExitCode.USAGE, f"module {name!r} cannot be imported")


def _wrong(sentence: str) -> Ended:
    return Ended(ExitCode.USAGE, sentence)
