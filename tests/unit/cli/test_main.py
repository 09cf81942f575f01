"""The tree of commands, whose modules are imported when they are needed."""

import subprocess
import sys
from typing import Any

import pytest
from typer.main import get_command

from tampu.cli.main import COMMANDS, build_tree, load_command
from tests.servers import ROOT

MODULES = sorted(
    str(path.relative_to(ROOT / "src").with_suffix("")).replace("/", ".")
    for path in (ROOT / "src" / "tampu" / "cli").rglob("*.py")
)
LIGHT = ["tampu.cli.main", "tampu.cli.options", "tampu.cli.output"]


def imported_modules(*typed: str) -> list[str]:
    """Which modules of the command line, and of what is slow to import, a command imports."""
    slow = ["asyncio", "msgspec", "redis", "rich"]
    script = (
        f"import sys; from tampu.cli.main import main; sys.argv = ['tampu', *{typed!r}]\n"
        "try: main()\n"
        f"except SystemExit: print(*sorted(sys.modules.keys() & set({MODULES + slow!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("typed", ["--help", "--version", "", "inspekt"])
def test_without_a_command_no_command_is_imported(typed: str) -> None:
    assert imported_modules(*typed.split()) == LIGHT


def test_a_command_imports_its_own_module_alone() -> None:
    others = {"tampu.cli.jobs", "tampu.cli.schedules", "tampu.cli.worker.command"}
    found = imported_modules("dead", "--help")
    assert "tampu.cli.dead" in found
    assert not others & set(found)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_table_is_the_first_line_of_the_help_of_a_command(name: str) -> None:
    line = COMMANDS[name][1]
    assert load_command(name).help.splitlines()[0] == line
    assert len(f"  {max(COMMANDS, key=len)}  {line}") <= 78


def test_the_tree_has_the_commands_of_the_table_in_their_order() -> None:
    tree: Any = get_command(build_tree())
    assert list(tree.commands) == list(COMMANDS)
