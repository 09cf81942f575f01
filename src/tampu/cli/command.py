"""Makes commands out of functions and runs them in an event loop."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar

import typer

from tampu.cli.options import (
    HELP_OPTIONS,
    AsJson,
    NoColor,
    PlainCommand,
    SharedOptions,
    Url,
    explain,
    help_if_alone,
    new_app,
)
from tampu.cli.output import discard_output, print_error, usage_error
from tampu.errors import OptionError

try:
    import uvloop
except ImportError:  # not available on every platform
    new_event_loop = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop

Running: TypeAlias = Coroutine[Any, Any, None]
"""What the function of a command returns, to be run in an event loop."""

F = TypeVar("F", bound=Callable[..., Running])

_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_SHARED: Final = [
    inspect.Parameter("url", _KEYWORD, default=None, annotation=Url),
    inspect.Parameter("as_json", _KEYWORD, default=False, annotation=AsJson),
    inspect.Parameter("no_color", _KEYWORD, default=False, annotation=NoColor),
]


def add_group(app: typer.Typer, name: str, sentence: str) -> typer.Typer:
    """Add a group of commands to an app; typed alone it prints its help."""
    group = new_app(name, sentence)
    group.callback(invoke_without_command=True, help=sentence)(help_if_alone)
    app.add_typer(group)
    return group


def command(app: typer.Typer, name: str, *, print_warnings: bool = True) -> Callable[[F], F]:
    """Make a function a command. It gets the shared options first, then its own.

    The library's warnings are printed on standard error, unless the command writes a log.
    """

    def register(function: F) -> F:
        start = _add_shared_options(function, print_warnings=print_warnings)
        app.command(name, cls=PlainCommand, context_settings=HELP_OPTIONS)(start)
        return function

    return register


def _add_shared_options(
    function: Callable[..., Running], *, print_warnings: bool
) -> Callable[..., None]:
    """The function as typer is to see it: with the shared options after its own."""

    def start(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401 - as typer parsed them
        above = ctx.obj or SharedOptions()
        shared = above.merge(**{each.name: given.pop(each.name) for each in _SHARED})
        try:
            run(function(shared, **given), print_warnings=print_warnings)
        except OptionError as error:
            raise usage_error(explain(error, ctx, url_typed=shared.url is not None)) from None

    own = list(inspect.signature(function).parameters.values())[1:]
    parameters = [
        inspect.Parameter("ctx", _KEYWORD, annotation=typer.Context),
        *(each.replace(kind=_KEYWORD) for each in own),
        *_SHARED,
    ]
    start.__doc__ = function.__doc__
    start.__name__ = function.__name__
    start.__annotations__ = {each.name: each.annotation for each in parameters}
    start.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return start


def run(running: Running, *, print_warnings: bool = True) -> None:
    """Run a command to its end. Ctrl-C cancels it and then raises KeyboardInterrupt."""
    if print_warnings:
        logging.getLogger("tampu").addHandler(_WarningPrinter())
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(running)
    except BrokenPipeError:  # caught here, since typer would turn it into an error
        discard_output()


class _WarningPrinter(logging.Handler):
    """Prints the library's warnings on standard error, one line each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        print_error(record.getMessage())
