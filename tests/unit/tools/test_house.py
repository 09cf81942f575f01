"""The tool that measures the shape of the package."""

import ast
import re
from pathlib import Path

import pytest

from tools.house import Figure, figures, imports_of, longest_chain, read_modules, repeated_classes


def _trees(**sources: str) -> dict[str, ast.Module]:
    return {f"tampu.{name}": ast.parse(text) for name, text in sources.items()}


def test_a_figure_above_its_limit_is_exceeded() -> None:
    assert Figure("files", 3, 2).is_exceeded
    assert not Figure("files", 2, 2).is_exceeded
    assert not Figure("lines", 2).is_exceeded


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("import tampu.b", {"tampu.b"}),
        ("from tampu import b", {"tampu.b"}),
        ("from tampu.b import Name", {"tampu.b"}),
        ("import json", set()),
        ("try:\n    from tampu.b import Name\nexcept ImportError:\n    pass", {"tampu.b"}),
        ("if TYPE_CHECKING:\n    from tampu.b import Name", set()),
        ("if typing.TYPE_CHECKING:\n    import json\nelse:\n    import tampu.b", {"tampu.b"}),
        ("def call():\n    import tampu.b", set()),
    ],
)
def test_imports_are_those_that_run_when_the_module_is_loaded(
    text: str, imported: set[str]
) -> None:
    assert imports_of(_trees(a=text, b=""))["tampu.a"] == imported


def test_the_longest_chain_of_imports_is_found() -> None:
    imports = {"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set[str](), "e": {"d"}}
    assert longest_chain(imports) == ["a", "b", "c", "d"]


def test_a_cycle_of_imports_ends() -> None:
    assert longest_chain({"a": {"b"}, "b": {"a"}}) == ["a", "b"]


def test_class_names_that_repeat_are_found_private_and_nested_ones_too() -> None:
    trees = _trees(
        a="class _A:\n    class B: ...", b="class _A: ...", c="class B: ...\nclass C: ..."
    )
    assert repeated_classes(trees) == ["B", "_A"]


def test_names_of_the_other_package_may_repeat_ours() -> None:
    trees = {
        "tampu.queue": ast.parse("class Queue: ..."),
        "tampu.compat.chasquimq": ast.Module([], []),
    }
    trees["tampu.compat.chasquimq.queue"] = trees["tampu.queue"]
    assert repeated_classes(trees) == []


def test_root_modules_are_counted_without_folders() -> None:
    sources = dict.fromkeys(["tampu", "tampu.job", "tampu.wire", "tampu.wire.keys"], "")
    found = {each.name: each.value for each in figures(sources)}
    assert found["modules in the root"] == 2
    assert found["files"] == 4


def test_the_limits_are_those_of_the_decision() -> None:
    page = Path("docs/decisions/0029-one-house.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \|[^|]+\|[^|]+\| (\d+) \|$", page, re.MULTILINE)
    named = {name.partition(",")[0]: int(limit) for name, limit in rows}
    assert named == {
        "files under `src/tampu`": _limit("files"),
        "modules in the package root": _limit("modules in the root"),
        "levels of imports": _limit("import levels"),
        "class names defined twice": _limit("class names defined twice"),
    }


def _limit(name: str) -> int | None:
    found = figures({"tampu": ""})
    return next(each.limit for each in found if each.name == name)


def test_the_package_is_read_from_the_sources() -> None:
    assert {"tampu", "tampu.errors", "tampu.wire.keys"} <= set(read_modules())


def test_the_map_names_every_part_of_the_package() -> None:
    table = Path("CONTRIBUTING.md").read_text("utf-8").partition("| in `src/tampu/` |")[2]
    named = set(re.findall(r"`([\w/]+(?:\.py)?)/?`", table.partition("\n\n")[0]))
    package = Path("src/tampu")
    parts = {each.parent.name for each in package.glob("*/__init__.py")}
    modules = {each.name for each in package.glob("[!_]*.py")}
    assert (parts | modules) - {name.rstrip("/") for name in named} == set()
