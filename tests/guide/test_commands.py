"""The page on the command line is complete, and the commands on all pages can be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tampu.cli.main import COMMANDS, load_command
from tampu.cli.output import ExitCode
from tests.guide.pages import GUIDE, first_cells
from tools.docs_contents import pages

PAGE = GUIDE / "command-line.md"
LOADED: dict[str, Any] = {name: load_command(name) for name in COMMANDS}


def examples(page: Path) -> list[str]:
    """What a page shows after `$ tampu`."""
    return re.findall(r"^\$ tampu (.+)$", page.read_text("utf-8"), re.MULTILINE)


EXAMPLES = examples(PAGE)
ELSEWHERE = [typed for page in pages() if page != PAGE for typed in examples(page)]


def commands() -> Iterator[str]:
    """Every command that can be run, as it is typed."""
    for name, command in LOADED.items():
        if hasattr(command, "commands"):
            yield from (f"{name} {each}" for each in command.commands)
        else:
            yield name


@pytest.mark.parametrize("typed", EXAMPLES + ELSEWHERE)
def test_an_example_can_be_typed(typed: str) -> None:
    name, *args = shlex.split(typed)
    command = LOADED[name]
    if hasattr(command, "commands"):
        command = command.commands[args.pop(0)]
    command.make_context("tampu", args)  # raises if they are wrong


def test_every_command_has_an_example() -> None:
    shown = {
        name for name in commands() for typed in EXAMPLES if f"{typed} ".startswith(f"{name} ")
    }
    assert shown == set(commands())


def test_the_json_of_every_command_is_documented() -> None:
    assert {name for name, _ in first_cells(PAGE, "JSON")} == set(commands())


def test_every_exit_code_is_documented() -> None:
    documented = [code for code, _ in first_cells(PAGE, "Exit codes")]
    assert documented == [str(code.value) for code in ExitCode]


def everything() -> Iterator[Any]:
    for command in LOADED.values():
        yield command
        yield from getattr(command, "commands", {}).values()


@pytest.mark.parametrize("command", list(everything()), ids=lambda each: each.name)
def test_help_is_in_words_without_the_types_of_python(command: Any) -> None:  # noqa: ANN401 - click's
    assert set(command.context_settings["help_option_names"]) == {"-h", "--help"}
    text = command.get_help(command.make_context("tampu", ["-q"], resilient_parsing=True))
    for word in ("<", ">", "INTEGER", "Optional", "timedelta", "list[", "str]", "x>=", "required"):
        assert word not in text
