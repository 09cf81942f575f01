"""Prepares the documentation site, and checks what was built.

`python -m tools.docs_site` gathers the pages in `build/docs`, and writes the settings with the
navigation, for `zensical build`. Pages stay as they are, so that they can be read in the repository
too. Only links change: those to a page lead to its place on the site, those to code to a page that
shows it. With `--check`, it looks for requests to other hosts in the pages that were built.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.docs_contents import (
    ROOT,
    Entry,
    navigation,
    pages,
    place_of,
    write_llms,
    write_llms_full,
)

BUILD: Final = ROOT / "build"
SETTINGS: Final = ROOT / "docs" / "zensical.toml"
STYLE: Final = ROOT / "docs" / "site.css"
HEAD: Final = "---\nhide:\n  - navigation\n---\n\n"
"""Of the first page: there is nothing beside it to choose from."""

_PARTS: Final = re.compile(
    r"^ *`{3,}.*?^ *`{3,}$|`[^`\n]+`|\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL
)
_LIGHT: Final = re.compile(r"!\[([^\]]*)\]\(([^)]+)-light\.png\)")
_REQUEST: Final = re.compile(
    r"<(?!a\b)[a-z]+\b[^>]*?\b(?:src|srcset|href|data)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|url\([\"']?((?:https?:)?//[^\"')]+)|@import[^;]*?((?:https?:)?//[^\"');]+)"
)
_MADE: Final = ("index.html", "search.json", "llms.txt", "llms-full.txt", "objects.inv")
_NOT_LOADED: Final = re.compile(r"<link[^>]*rel=[\"']?(?:canonical|alternate|next|prev)\b[^>]*>")


def gather(root: Path, to: Path) -> None:
    """Write every page, and every file that a page leads to, as the site has them."""
    shutil.rmtree(to, ignore_errors=True)
    todo, done = pages(root), set[Path]()
    while todo:
        source = todo.pop()
        if source in done or not source.is_relative_to(root):
            continue
        done.add(source)
        target = to / place_of(source, root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = source.read_text("utf-8")
            if source == root / "README.md":
                text = HEAD + show_in_both_colours(text)
            todo += _files_linked(text, source)
            target.write_text(relink(text, source, root), "utf-8")
        elif target.suffix == ".md":
            target.write_text(show(source, root), "utf-8")
        else:
            shutil.copyfile(source, target)


def show_in_both_colours(text: str) -> str:
    """The text with a dark picture beside each light one; the reader's colours choose."""
    both = r"![\1](\2-light.png#only-light)![\1](\2-dark.png#only-dark)"
    return _LIGHT.sub(both, text)


def relink(text: str, page: Path, root: Path) -> str:
    """The text of a page with links between places on the site; code stays as it is."""
    here = os.path.dirname(place_of(page, root)) or "."

    def replaced(found: re.Match[str]) -> str:
        target = _target(found[1], page) if found[1] else None
        if target is None or not target.is_relative_to(root):
            return found[0]
        _, sharp, anchor = found[1].partition("#")
        return f"]({os.path.relpath(place_of(target, root), here)}{sharp}{anchor})"

    return _PARTS.sub(replaced, text)


def show(source: Path, root: Path) -> str:
    """A page that shows a file, or every file of a folder."""
    name = source.relative_to(root).as_posix()
    if source.is_file():
        return f"# {source.name}\n\n`{name}` in the repository:\n\n{_fenced(source)}"
    files = sorted(file for file in source.rglob("*") if file.is_file())
    parts = [f"## {file.relative_to(source).as_posix()}\n\n{_fenced(file)}" for file in files]
    return "\n".join([f"# {source.name}\n\nThe files of `{name}` in the repository.\n", *parts])


def _fenced(file: Path) -> str:
    language = file.suffix.removeprefix(".") or "text"
    return f"````{language}\n{file.read_text('utf-8').rstrip()}\n````\n"


def _files_linked(text: str, page: Path) -> Iterator[Path]:
    for found in _PARTS.finditer(text):
        target = _target(found[1], page) if found[1] else None
        if target is not None and target.exists():
            yield target


def _target(link: str, page: Path) -> Path | None:
    """The file of the repository that a link leads to; a folder stands for its README.md."""
    path = link.partition("#")[0]
    if not path or "://" in link or link.startswith("mailto:"):
        return None
    target = (page.parent / path).resolve()
    return target / "README.md" if (target / "README.md").exists() else target


def requests_in(text: str) -> list[str]:
    """The addresses on other hosts that a page or a style sheet makes a browser load."""
    found = _REQUEST.findall(_NOT_LOADED.sub("", text))
    return [address for groups in found for address in groups if address]


def settings(nav: list[Entry]) -> str:
    """The settings for zensical, with a navigation."""
    return SETTINGS.read_text("utf-8").replace("\nnav = []\n", f"\nnav = {_toml(nav)}\n")


def _toml(value: Entry) -> str:
    match value:
        case dict():
            pairs = [f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()]
            return "{ " + ", ".join(pairs) + " }"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case str():
            return json.dumps(value)


def prepare() -> int:
    """Write what zensical reads."""
    gather(ROOT, BUILD / "docs")
    shutil.copyfile(STYLE, BUILD / "docs" / STYLE.name)
    (BUILD / "docs" / "llms.txt").write_text(write_llms(), "utf-8")
    (BUILD / "docs" / "llms-full.txt").write_text(write_llms_full(), "utf-8")
    (BUILD / "zensical.toml").write_text(settings(navigation()), "utf-8")
    return 0


def check() -> int:
    """Look for requests to other hosts in the built site, and for what must be there."""
    files = [file for kind in ("*.html", "*.css") for file in (BUILD / "site").rglob(kind)]
    found = [f"site/{name} is missing" for name in _MADE if not (BUILD / "site" / name).exists()]
    found += [
        f"{file.relative_to(BUILD)} loads {address}"
        for file in sorted(files)
        for address in requests_in(file.read_text("utf-8"))
    ]
    print("\n".join(found) or f"docs: {len(files)} pages load nothing from other hosts")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(check() if "--check" in sys.argv[1:] else prepare())
