"""The examples as tests see them: what there is, what each says that it prints."""

import ast
import os
import re
import textwrap
from pathlib import Path
from typing import Final

from tests.servers import ROOT

EXAMPLES: Final = ROOT / "examples"
_PRINTS: Final = "\nIt prints:\n\n"


def programs() -> list[Path]:
    """Every example there is."""
    return sorted(EXAMPLES.glob("*.py"))


def printed_by(program: Path) -> str | None:
    """What an example's docstring says that it prints; None if it does not end by itself."""
    told = ast.get_docstring(ast.parse(program.read_text("utf-8"))) or ""
    _, found, lines = told.partition(_PRINTS)
    return textwrap.dedent(lines).rstrip() + "\n" if found else None


def named_by_the_page() -> set[str]:
    """The examples that the page in their folder leads to."""
    page = (EXAMPLES / "README.md").read_text("utf-8")
    return set(re.findall(r"\]\((\w+\.py)\)", page))


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a newcomer: no server is named."""
    return {name: value for name, value in os.environ.items() if name != "TAMPU_URL"} | more
