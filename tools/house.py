"""Figures about the package: files, lines, import levels, and class names that are used twice.

`python -m tools.house` prints them. With `--check` it fails if one is above its limit.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

FOLDER: Final = Path("src")
PACKAGE: Final = "tampu"
EXEMPT: Final = f"{PACKAGE}.compat"
"""Uses the class names of another package, which may be the same as ours."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure, its limit if it has one, and a detail for the message."""

    name: str
    value: int
    limit: int | None = None
    detail: str = ""

    @property
    def is_exceeded(self) -> bool:
        """Whether the figure is above its limit."""
        return self.limit is not None and self.value > self.limit


def read_modules(folder: Path = FOLDER) -> dict[str, str]:
    """The source text of every module of the package, by dotted name."""
    found = {}
    for path in sorted((folder / PACKAGE).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path.read_text("utf-8")
    return found


def figures(sources: dict[str, str]) -> list[Figure]:
    """Every figure of the package."""
    trees = {name: ast.parse(text) for name, text in sources.items()}
    lines = [text.count("\n") for text in sources.values()]
    folders = {name.rpartition(".")[0] for name in sources}
    root = [n for n in sources if n.count(".") <= 1 and (n == PACKAGE or n not in folders)]
    chain = longest_chain(imports_of(trees))
    repeated = repeated_classes(trees)
    return [
        # 190 files and 14 levels before the capabilities that came after 0029.
        Figure("files", len(sources), 320),
        Figure("modules in the root", len(root), 16),
        Figure("import levels", len(chain), 16, " > ".join(chain)),
        Figure("class names defined twice", len(repeated), 0, ", ".join(repeated)),
        Figure("lines", sum(lines)),
        Figure("lines of the median file", int(median(lines))),
        Figure("files below 50 lines", sum(count < 50 for count in lines)),
    ]


def imports_of(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """For each module, the modules of the package that it imports when it is loaded."""
    return {
        name: {to for node in _runtime_imports(tree) for to in _targets(node, trees)} - {name}
        for name, tree in trees.items()
    }


def longest_chain(imports: dict[str, set[str]]) -> list[str]:
    """The longest chain of modules in which each imports the next. Cycles are cut."""
    open_names: set[str] = set()
    nothing: tuple[str, ...] = ()

    @cache
    def below(name: str) -> tuple[str, ...]:
        open_names.add(name)
        chains = [below(each) for each in sorted(imports[name] - open_names)]
        open_names.discard(name)
        rest = max(chains, key=len, default=nothing)
        return (name, *rest)

    longest = max(map(below, sorted(imports)), key=len, default=nothing)
    return list(longest)


def repeated_classes(trees: dict[str, ast.Module]) -> list[str]:
    """Class names that the package defines more than once, including private ones."""
    counts = Counter(
        node.name
        for name, tree in trees.items()
        if not f"{name}.".startswith(f"{EXEMPT}.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in counts.items() if count > 1)


def _runtime_imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue  # runs on call, not when the module is loaded
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from _runtime_imports(ast.Module(child.orelse, []))
        else:
            yield from _runtime_imports(child)


def _targets(node: ast.Import | ast.ImportFrom, modules: dict[str, ast.Module]) -> Iterator[str]:
    for each in node.names:
        if isinstance(node, ast.Import):
            candidates = [each.name]
        else:
            candidates = [f"{node.module}.{each.name}", f"{node.module}"]
        yield from [name for name in candidates if name in modules][:1]


def main() -> int:
    """Print the figures. With --check, fail if one is above its limit."""
    found = figures(read_modules())
    for each in found:
        limit = "" if each.limit is None else f"at most {each.limit}"
        print(f"  {each.name:26} {each.value:6}  {limit:12}{' !' if each.is_exceeded else ''}")
    if "--check" not in sys.argv[1:]:
        return 0
    exceeded = [each for each in found if each.is_exceeded]
    for each in exceeded:
        print(f"{each.name}: {each.value}, at most {each.limit}. {each.detail}".rstrip())
    return int(bool(exceeded))


if __name__ == "__main__":
    sys.exit(main())
