"""What all commands share: their options, their plain help, and errors in the words typed."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from tampu.errors import OptionError

_HIDDEN: Final = "..."  # stands for a value that may be a secret


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """The options that can be typed before or after the name of any command."""

    url: str | None = None
    as_json: bool = False
    color: bool = True

    def merge(self, *, url: str | None, as_json: bool, no_color: bool) -> "SharedOptions":
        """These options, overridden by those that were typed after the command's name."""
        return SharedOptions(
            url=self.url if url is None else url,
            as_json=self.as_json or as_json,
            color=self.color and not no_color,
        )


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The server. Default: TAMPU_URL, or else embedded:.tampu",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", show_default=False)]
NoColor = Annotated[
    bool, typer.Option("--no-color", help="Print without colours.", show_default=False)
]

QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)
]
WorkerGroup = Annotated[
    str, typer.Option("--group", metavar="NAME", help="Consumer group of the workers.")
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.", show_default=False)
]


HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}
# What typer adds for programmers: types, and ranges that the command checks anyway.
_TYPE: Final = re.compile(r" <(?:str|int|float|list\[str\])>")
_CHOICES: Final = re.compile(r"<(?:list\[)?([\w|]+)\]?>")
_NOTE: Final = re.compile(r"  \[([^\[\]]*)\]\Z")
_RANGE: Final = re.compile(r"(\d+)<=x<=(\d+)")


class PlainCommand(TyperCommand):
    """A command whose help is in words, without the types of its parameters."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click's is private
        """The pieces of the usage line; what is required stands without brackets."""
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write the lists of arguments and options."""
        lists: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                lists[param.param_type_name].append(_plain_record(*record))
        for title, records in (("Arguments", lists["argument"]), ("Options", lists["option"])):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _plain_record(name: str, text: str) -> tuple[str, str]:
    name = _CHOICES.sub(r"\1", _TYPE.sub("", name))
    found = _NOTE.search(text)
    if found is None:
        return name, text
    notes = [each for each in found[1].split("; ") if each != "required" and "x>=" not in each]
    shown = "; ".join(_RANGE.sub(r"\1 to \2", each) for each in notes)
    return name, text[: found.start()] + (f"  [{shown}]" if shown else "")


def new_app(
    name: str | None = None, sentence: str | None = None, *, add_completion: bool = False
) -> typer.Typer:
    """A holder of commands. Help is plain text, which is quicker to read and to print."""
    return typer.Typer(
        name=name,
        help=sentence,
        context_settings=HELP_OPTIONS,
        rich_markup_mode=None,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
    )


def help_if_alone(ctx: typer.Context) -> None:
    """Print the help of a group that was typed without a command."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def explain(error: OptionError, ctx: typer.Context, *, url_typed: bool) -> str:
    """The error's sentence with the option named as the command has it.

    An option that was not typed keeps its name: its value came from the app or the environment.
    """
    for param in ctx.command.params:
        value = ctx.params.get(str(param.name))
        typed = url_typed if param.name == "url" else value not in (None, False, [])
        if typed and _names(error.option, str(param.name), param.opts):
            is_option = param.param_type_name == "option"
            name = max(param.opts, key=len) if is_option else param.metavar
            quoted = _quote(error.given, value)
            return f"Invalid {name}{quoted and f' {quoted}'}: {error.problem}."
    return str(error)


def _names(option: str, name: str, spellings: list[str]) -> bool:
    return option == name or f"--{option.replace('_', '-')}" in spellings


def _quote(given: object, typed: object) -> str:
    """What was given, or the text that it was made from; nothing for a flag or a secret."""
    if given == _HIDDEN or isinstance(given, bool):
        return ""
    return repr(given if isinstance(given, str | int | float) else typed)
