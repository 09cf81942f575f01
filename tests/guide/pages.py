"""The pages of the docs as tests see them: their blocks of code, their tables, their links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers import ROOT

DOCS: Final = ROOT / "docs"
GUIDE: Final = DOCS / "guide"

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MODULE: Final = re.compile(r"# ([\w/]+)\.py\n")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """Python code of a page: where it begins, and what the page says that it prints."""

    line: int
    source: str
    output: str

    @property
    def module(self) -> str | None:
        """The module that it is the text of, if its first line is `# name.py` or `# a/name.py`."""
        named = _MODULE.match(self.source)
        return named[1] if named else None


def name_of(page: Path) -> str:
    """The page as a test names it."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """The Python blocks of a page, in order.

    A text block that follows with nothing in between is what the block before it prints.
    """
    text = page.read_text("utf-8")
    found: list[Block] = []
    end = -1
    for match in _BLOCK.finditer(text):
        language, source = match[1], match[2]
        if language == "python":
            found.append(Block(text.count("\n", 0, match.start(2)), source, ""))
        elif language == "text" and end >= 0 and not text[end : match.start()].strip():
            found[-1] = Block(found[-1].line, found[-1].source, source)
        end = match.end() if language == "python" else -1
    return found


def first_cells(page: Path, heading: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the table under a heading, without their backquotes."""
    section = page.read_text("utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return [(row[0].strip("`"), row[1].strip("`")) for row in cells]


def block_of(page: Path, heading: str, language: str) -> str:
    """The first block in a language under a heading of any level."""
    text = page.read_text("utf-8")
    section = re.split(rf"^#+ {re.escape(heading)}$", text, maxsplit=1, flags=re.MULTILINE)[1]
    return next(match[2] for match in _BLOCK.finditer(section) if match[1] == language)


def links_of(page: Path) -> Iterator[tuple[Path, str]]:
    """The files and headings that a page's relative links lead to; code is left out."""
    text = _CODE.sub("", _BLOCK.sub("", page.read_text("utf-8")))
    for link in _LINK.findall(text):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            yield ((page.parent / path).resolve() if path else page), anchor


def anchors_of(page: Path) -> set[str]:
    """The anchors that the headings of a page give."""
    headings = _HEADING.findall(_BLOCK.sub("", page.read_text("utf-8")))
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in kept}
