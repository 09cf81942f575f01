"""What the documentation site contains: its pages, their places and their order."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[1]
OUTSIDE: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/README.md",
    "benchmarks/README.md",
    "deploy/README.md",
)
"""Pages of the site that are not in `docs`."""
TABS: Final = {
    "Home": ["README.md"],
    "Tutorial": ["docs/tutorial/README.md"],
    "Guide": ["docs/guide/README.md"],
    "Recipes": ["docs/recipes.md"],
    "Reference": ["docs/reference/README.md"],
    "Troubleshooting": ["docs/troubleshooting.md"],
    "Examples": ["examples/README.md"],
    "Internals": ["docs/internals/README.md"],
    "Decisions": ["docs/decisions/README.md"],
    "More": [
        "docs/comparison.md",
        "benchmarks/README.md",
        "deploy/README.md",
        "docs/observability/README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ],
}
"""The navigation. A README.md brings the pages of its folder, in the order of its links."""
IN_FULL: Final = ("Tutorial", "Guide", "Recipes", "Troubleshooting")
"""The parts whose text is in llms-full.txt."""

_AS_THEY_ARE: Final = (".md", ".png", ".svg")
_LINK: Final = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
_GROUP: Final = re.compile(r"^\*\*(.+?)\*\*", re.MULTILINE)
_FIRST: Final = re.compile(r"\n\n(?![#|!<`>*\-:\[(])(.+?[.:])(?=\s)", re.DOTALL)

Entry: TypeAlias = "str | dict[str, Entry] | list[Entry]"


def pages(root: Path = ROOT) -> list[Path]:
    """Every page there is."""
    return [*(root / name for name in OUTSIDE), *sorted((root / "docs").rglob("*.md"))]


def place_of(source: Path, root: Path = ROOT) -> str:
    """Where a file of the repository is on the site. A page shows what is no page itself."""
    name = source.relative_to(root).as_posix()
    if name == "README.md":
        return "index.md"
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return name if source.suffix in _AS_THEY_ARE else f"{name}.md"


def navigation(root: Path = ROOT) -> list[Entry]:
    """Every page in its place."""
    return [{tab: _tab([root / name for name in names], root)} for tab, names in TABS.items()]


def _tab(sources: list[Path], root: Path) -> Entry:
    if len(sources) > 1:
        return [_part(source, root) for source in sources]
    (source,) = sources
    return _folder(source, root) if _is_index(source, root) else place_of(source, root)


def _part(source: Path, root: Path) -> Entry:
    # An index would become that of the whole tab, and not be listed, if it had no part of its own.
    return (
        {_title(source): _folder(source, root)}
        if _is_index(source, root)
        else place_of(source, root)
    )


def _is_index(source: Path, root: Path) -> bool:
    return source.name == "README.md" and source.parent != root


def _folder(index: Path, root: Path) -> list[Entry]:
    """An index and the pages it leads to, in the groups that its bold lines name."""
    text, seen = index.read_text("utf-8"), {index}
    heads = list(_GROUP.finditer(text))
    own: list[Entry] = [place_of(index, root)]
    if not heads:
        return own + _linked(text, index, seen=seen, root=root)
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=True):
        own.append({head[1]: _linked(text[head.start() : end], index, seen=seen, root=root)})
    return own


def _linked(text: str, index: Path, *, seen: set[Path], root: Path) -> list[Entry]:
    """The places of the pages of the same folder that a text leads to, without those seen."""
    found: list[Entry] = []
    for link in _LINK.findall(text):
        target = (index.parent / link).resolve()
        if target.is_file() and target.is_relative_to(index.parent) and target not in seen:
            seen.add(target)
            if place_of(target, root).endswith(".md"):
                found.append(place_of(target, root))
    return found


def places_in(entry: Entry) -> Iterator[str]:
    """Every place that a navigation leads to, in order."""
    match entry:
        case str():
            yield entry
        case dict():
            for each in entry.values():
                yield from places_in(each)
        case list():
            for each in entry:
                yield from places_in(each)


def write_llms(root: Path = ROOT) -> str:
    """The text of llms.txt: what the site is about, and every page with its first sentence."""
    home = (root / "README.md").read_text("utf-8")
    lines = [f"# {home.partition(chr(10))[0][2:]}", "", f"> {first_sentence(home)}", ""]
    lines.append("The text of all pages on how to use it is in [llms-full.txt](llms-full.txt).")
    for tab, source in _sources(root):
        if f"## {tab}" not in lines:
            lines += ["", f"## {tab}", ""]
        sentence = first_sentence(source.read_text("utf-8"))
        link = f"- [{_title(source)}]({_address(source, root)})"
        lines.append(f"{link}: {sentence}" if sentence else link)
    return "\n".join(lines) + "\n"


def write_llms_full(root: Path = ROOT) -> str:
    """The text of every page that says how to use tampu."""
    found = [source for tab, source in _sources(root) if tab in IN_FULL]
    return "\n\n".join(source.read_text("utf-8").strip() for source in found) + "\n"


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    """The pages that have a text, in order, with their tab."""
    by_place = {place_of(source, root): source for source in pages(root)}
    for entry in navigation(root):
        assert isinstance(entry, dict)  # noqa: S101 - a tab
        for tab, inside in entry.items():
            yield from ((tab, by_place[place]) for place in places_in(inside) if place in by_place)


def _address(source: Path, root: Path) -> str:
    """The address of a page on the site, from its root."""
    place = place_of(source, root).removesuffix(".md")
    folder, _, name = place.rpartition("/")
    return f"{folder or '.'}/" if name in {"README", "index"} else f"{place}/"


def first_sentence(text: str) -> str:
    """The first sentence of a page, or what it says before its first code; without links."""
    found = _FIRST.search(text)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found[1]) if found else ""
    return " ".join(plain.split()).removesuffix(":")


def _title(source: Path) -> str:
    return source.read_text("utf-8").partition("\n")[0].removeprefix("# ")
