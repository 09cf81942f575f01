"""What every command takes, and how a command is made of a function."""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import typer

from tampu._version import __version__
from tampu.cli.ending import Ended, ExitCode
from tampu.cli.wording import as_typed
from tampu.errors import OptionError

Running: TypeAlias = Coroutine[Any, Any, None]
"""What a command gives back to be run in an event loop."""

F = TypeVar("F", bound=Callable[..., Running])


@dataclass(frozen=True, slots=True)
class Shared:
    """The options that stand before or behind any command."""

    url: str | None = None
    as_json: bool = False
    color: bool = True


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The server; else TAMPU_URL, else embedded:.tampu",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", show_default=False)]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print no colours.", show_default=False)]


def _show_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"tampu {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        help="Show tampu's version and exit.",
        callback=lambda wanted: _show_version(wanted=wanted),
        is_eager=True,
        show_default=False,
    ),
]

QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False)
]
Group = Annotated[str, typer.Option("--group", metavar="NAME", help="The group of workers.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)]

_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_SHARED: Final = [
    inspect.Parameter("url", _KEYWORD, default=None, annotation=Url),
    inspect.Parameter("as_json", _KEYWORD, default=False, annotation=AsJson),
    inspect.Parameter("no_color", _KEYWORD, default=False, annotation=NoColor),
]


def root(sentence: str) -> typer.Typer:
    """The program itself; what is said here holds for every command."""
    made = _plain("tampu", sentence, add_completion=True)

    @made.callback(invoke_without_command=True, help=sentence)
    def start(  # noqa: PLR0917 - typer's way, as the booleans
        ctx: typer.Context,
        url: Url = None,
        as_json: AsJson = False,  # noqa: FBT002
        no_color: NoColor = False,  # noqa: FBT002
        version: Version = False,  # noqa: FBT002
    ) -> None:
        del version  # shown, and ended with
        ctx.obj = _joined(None, url=url, as_json=as_json, no_color=no_color)
        _help_if_alone(ctx)

    return made


def group(name: str, sentence: str) -> typer.Typer:
    """A group of commands; by itself it shows its help."""
    made = _plain(name, sentence, add_completion=False)
    made.callback(invoke_without_command=True, help=sentence)(_help_if_alone)
    return made


def _plain(name: str, sentence: str, *, add_completion: bool) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=sentence,
        rich_markup_mode=None,  # plain help: a page of frames is slower to read, and to make
        add_completion=add_completion,
        pretty_exceptions_enable=False,
    )


def _help_if_alone(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def command(app: typer.Typer, name: str, *, notes: bool = True) -> Callable[[F], F]:
    """Make a function a command; it gets the shared options first, then what it asks for.

    Warnings are noted on standard error, unless the command keeps a log (`notes=False`).
    """

    def register(function: F) -> F:
        app.command(name)(_typed(function, notes=notes))
        return function

    return register


def _typed(function: Callable[..., Running], *, notes: bool) -> Callable[..., None]:
    """The function as typer sees it: with the shared options behind its own."""

    def start(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401 - as typer parsed them
        shared = _joined(
            ctx.obj,
            url=given.pop("url"),
            as_json=given.pop("as_json"),
            no_color=given.pop("no_color"),
        )
        from tampu.cli.running import run  # noqa: PLC0415 - brings asyncio: docs/decisions/0024

        try:
            run(function(shared, **given), notes=notes)
        except OptionError as error:
            sentence = as_typed(error, ctx, url=shared.url is not None)
            raise Ended(ExitCode.USAGE, sentence) from None

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


def _joined(above: Shared | None, *, url: str | None, as_json: bool, no_color: bool) -> Shared:
    """What was said at a command, and else what was said before it."""
    above = above or Shared()
    return Shared(
        url=above.url if url is None else url,
        as_json=above.as_json or as_json,
        color=above.color and not no_color,
    )
