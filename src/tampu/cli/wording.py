"""What the library says of an option, in the words of who typed it."""

from typing import Final

import typer

from tampu.errors import OptionError

_HIDDEN: Final = "..."  # what is not quoted, since it may be a secret


def as_typed(error: OptionError, ctx: typer.Context, *, url: bool) -> str:
    """The error's sentence with the option as the command has it; `url`: whether one was typed.

    What was not typed is not renamed: it came from the app, or from the environment.
    """
    for each in ctx.command.params:
        given = ctx.params.get(str(each.name))
        was_typed = url if each.name == "url" else given not in (None, False, [])
        if was_typed and _is_meant(error.option, str(each.name), each.opts):
            name = max(each.opts, key=len) if each.param_type_name == "option" else each.metavar
            return _sentence(str(name), _shown(error.given, given), error.problem)
    return str(error)


def _is_meant(option: str, name: str, spellings: list[str]) -> bool:
    return option == name or f"--{option.replace('_', '-')}" in spellings


def _sentence(name: str, shown: str, problem: str) -> str:
    return f"Invalid {name}{shown and f' {shown}'}: {problem}."


def _shown(given: object, typed: object) -> str:
    """What was given; of a value that was made of it, the text itself. Nothing of a flag."""
    if given == _HIDDEN or isinstance(given, bool):
        return ""
    return repr(given if isinstance(given, str | int | float) else typed)
