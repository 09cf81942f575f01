"""The page on the command line names what there is, and commands on all pages can be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tampu.cli.ending import ExitCode
from tampu.cli.tree import tree
from tests.guide.pages import GUIDE, first_cells, pages

PAGE = GUIDE / "command-line.md"
TREE: Any = get_command(tree())  # typer's own classes, which differ from version to version


def examples(page: Path) -> list[str]:
    """What a page shows to be typed behind `$ tampu`."""
    return re.findall(r"^\$ tampu (.+)$", page.read_text("utf-8"), re.MULTILINE)


EXAMPLES = examples(PAGE)
ELSEWHERE = [typed for page in pages() if page != PAGE for typed in examples(page)]


def commands(group: Any = TREE, path: tuple[str, ...] = ()) -> Iterator[str]:  # noqa: ANN401
    """Every command that can be run, as it is typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name))


@pytest.mark.parametrize("typed", EXAMPLES + ELSEWHERE)
def test_an_example_can_be_typed(typed: str) -> None:
    command, args = TREE, shlex.split(typed)
    while hasattr(command, "commands"):
        command = command.commands[args.pop(0)]
    command.make_context("tampu", args)  # raises what is wrong with them


def test_every_command_has_an_example() -> None:
    shown = {
        name for name in commands() for typed in EXAMPLES if f"{typed} ".startswith(f"{name} ")
    }
    assert shown == set(commands())


def test_every_command_tells_its_json() -> None:
    assert {name for name, _ in first_cells(PAGE, "JSON")} == set(commands())


def test_every_exit_code_is_told_of() -> None:
    told = [code for code, _ in first_cells(PAGE, "Exit codes")]
    assert told == [str(code.value) for code in ExitCode]
