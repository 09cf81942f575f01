"""What a command works on: a queue that exists, or the app that MODULE:APP names."""

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import isfunction
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Final

import tampu
from tampu.admin.queues import queue_exists, queue_names
from tampu.app import App, held_app
from tampu.cli.options import SharedOptions
from tampu.cli.output import CommandFailed, ExitCode, usage_error
from tampu.queue import Queue
from tampu.server.connect import URL_VARIABLE, Server, Target, connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys


@dataclass(frozen=True, slots=True)
class QueueLane:
    """A connection to the node that holds a queue."""

    server: Server
    lane: Lane
    keys: QueueKeys


def name_server(server: str, *urls: Target) -> str:
    """A server's name for people; if nobody has chosen it, with how to choose another one."""
    if server.startswith("embedded:") and not any(urls) and not os.environ.get(URL_VARIABLE):
        return f"{server} (to use another one, set {URL_VARIABLE}=redis://HOST:PORT/DB)"
    return server


@asynccontextmanager
async def connect_to(shared: SharedOptions, queue: str) -> AsyncIterator[QueueLane]:
    """Connect to a queue; `CommandFailed` if it does not exist."""
    keys = QueueKeys(queue)
    async with (
        await connect(shared.url) as server,
        await Lane.open(server, keys.stream) as lane,
    ):
        await check_queue(server, lane, keys)
        yield QueueLane(server, lane, keys)


@asynccontextmanager
async def open_queue(shared: SharedOptions, name: str) -> AsyncIterator[Queue]:
    """Open a queue as programs do; `CommandFailed` if it does not exist."""
    async with connect_to(shared, name), Queue(name, shared.url) as queue:
        yield queue


async def check_queue(server: Server, lane: Lane, keys: QueueKeys) -> None:
    """Raise `CommandFailed` if a queue does not exist, with names that are similar."""
    if not await queue_exists(lane, keys):
        hint = did_you_mean(keys.name, await queue_names(server))
        raise CommandFailed(f"There is no queue {keys.name!r} on {server.name}.{hint}")


def did_you_mean(typed: str, known: Sequence[str]) -> str:
    """A question to append to an error, if something similar is known; else nothing."""
    close = get_close_matches(typed, known, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


_NOT_THEIRS: Final = (str(Path(tampu.__file__).parent), sysconfig.get_path("stdlib"), "<frozen ")


def find_app(target: str, shared: SharedOptions, imports: Sequence[str] = ()) -> App:
    """Import the module and find the app in it; --url replaces the app's own.

    Also imports the modules with its tasks: those of --import, those that the app names, or if it
    has no tasks yet, the module `tasks` beside it.

    The current directory is on the path. `CommandFailed` if there is no app; if the module itself
    raises, its traceback is printed first.
    """
    module_name, colon, path = target.partition(":")
    if not module_name or (colon and not path):
        raise usage_error(f"{target!r} names no app. Write MODULE:APP, such as shop:app.")
    if "/" in module_name or module_name.startswith("."):
        raise usage_error(f"{module_name!r} is not the name of a module.{_path_hint(module_name)}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import_module(module_name, alone=not colon)
    app = _attribute(module, path) if path else _only_app(module)
    if shared.url is not None:
        app.url = shared.url
    for name in (*imports, *app.imports):
        _import_module(name, alone=False)
    beside = _tasks_beside(module)
    if not app.tasks and beside is not None:
        _import_module(beside, alone=False)
    if not app.tasks:
        name = beside or f"{module.__name__}.tasks"
        raise usage_error(
            f"{target} has no tasks. Declare them with @app.task in its module, or name the "
            f'modules that do: --import {name}, or App(imports=["{name}"]).'
        )
    return app


def _tasks_beside(module: ModuleType) -> str | None:
    """The module `tasks` in the package, or in the directory, of a module; None if it has none."""
    package = module.__name__ if hasattr(module, "__path__") else module.__package__
    name = f"{package}.tasks" if package else "tasks"
    folder = Path(module.__file__ or ".").resolve().parent
    is_other = name != module.__name__ and (folder / "tasks.py").is_file()
    return name if is_other else None


def _import_module(name: str, *, alone: bool) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken_module(name, error) from None
        where = "in this directory or on the Python path"
        hint = _module_hint(name, alone=alone)
        raise usage_error(f"There is no module {error.name!r} {where}.{hint}") from None
    except Exception as error:  # noqa: BLE001 - border: the user's code
        raise _broken_module(name, error) from None


def _module_hint(name: str, *, alone: bool) -> str:
    """What the name of a file, or a dot in place of the colon, was meant to be."""
    if name.endswith(".py"):
        return _path_hint(name)
    module, dot, attribute = name.rpartition(".")
    return f" Did you mean {module}:{attribute}?" if dot and alone else ""


def _path_hint(path: str) -> str:
    name = path.removesuffix(".py").strip("./").replace("/", ".")
    return f" Did you mean {name}:app?"


def _attribute(module: ModuleType, path: str) -> App:
    found: object = module
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(path, list(_apps(module)))
            raise usage_error(f"Module {module.__name__!r} has no attribute {path!r}.{hint}")
        found = getattr(found, name)
    app = held_app(found)
    if app is None:
        hint = f" Call it in the module: app = {path}()" if isfunction(found) else ""
        kind = type(found).__name__
        raise usage_error(f"{module.__name__}:{path} is not an App but of type {kind}.{hint}")
    return app


def _only_app(module: ModuleType) -> App:
    apps = _apps(module)
    if not apps:
        raise usage_error(f"Module {module.__name__!r} contains no App. Write MODULE:APP.")
    if len(set(map(id, apps.values()))) > 1:
        choices = " or ".join(f"{module.__name__}:{name}" for name in sorted(apps))
        raise usage_error(f"Module {module.__name__!r} contains several apps. Write {choices}.")
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, App]:
    found = {name: held_app(each) for name, each in vars(module).items()}
    return {name: app for name, app in found.items() if app is not None}


def _broken_module(name: str, error: Exception) -> CommandFailed:
    return show_traceback(error, f"Cannot import module {name!r}", code=ExitCode.USAGE)


# --- errors of the user's own code --------------------------------------------------------------


def show_traceback(error: Exception, problem: str, *, code: ExitCode) -> CommandFailed:
    """Print the traceback of an error in the user's code; returns the error for the command."""
    own = _own_part(error.__traceback__)
    if own is None and not isinstance(error, SyntaxError):  # no frame of it is theirs
        own = error.__traceback__
    sys.stderr.write("".join(traceback.format_exception(type(error), error, own)))
    return CommandFailed(f"{problem}: it raised {type(error).__name__}.", code=code)


def _own_part(found: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame of the user's code on; None if there is none."""
    while found is not None and not _is_theirs(found.tb_frame.f_code.co_filename):
        found = found.tb_next
    return found


def _is_theirs(file: str) -> bool:
    """Whether a file is the user's: not tampu's, nor of the standard library."""
    if "site-packages" in file.removeprefix(_NOT_THEIRS[0]):
        return True
    return not file.startswith(_NOT_THEIRS)
