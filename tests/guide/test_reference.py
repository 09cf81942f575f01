"""Every public name is in the reference."""

import ast
import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from tests.guide.pages import DOCS
from tests.servers import ROOT

REFERENCE = DOCS / "reference"
PACKAGE = ROOT / "src" / "tampu"
PARTS_OF_THE_ROOT = {"tampu.limits", "tampu.timing"}
"""Here a name that `tampu` has too is the same thing."""


def documented() -> list[str]:
    """What the pages show, as they name it."""
    return [
        name
        for page in sorted(REFERENCE.glob("*.md"))
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.MULTILINE)
    ]


def public_names(file: Path) -> list[str]:
    """The `__all__` of a module, which is not imported: Django's wants settings."""
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def public_modules() -> dict[str, list[str]]:
    """The root, and what lies below it or in compat and has an `__all__`."""
    files = [PACKAGE / "__init__.py"]
    for folder in (PACKAGE, PACKAGE / "compat"):
        files += [*folder.glob("[!_]*.py"), *folder.glob("*/__init__.py")]
    found = {}
    for file in files:
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = public_names(file)
    return {module: names for module, names in sorted(found.items()) if names}


@pytest.mark.parametrize("module", list(public_modules()))
def test_every_public_name_of_a_module_is_shown(module: str) -> None:
    homes = [module, "tampu"] if module in PARTS_OF_THE_ROOT else [module]
    shown = set(documented())
    names = public_modules()[module]
    missing = [name for name in names if not shown & {f"{home}.{name}" for home in homes}]
    assert missing == [], f"add them to a page of docs/reference: ::: {module}.<name>"


def test_the_modules_for_users_are_looked_at() -> None:
    users = {"tampu", "tampu.compat.chasquimq", "tampu.dashboard", "tampu.metrics"}
    users |= {"tampu.scheduler", "tampu.testing", "tampu.timing"}
    assert users <= set(public_modules())


def test_nothing_is_shown_twice() -> None:
    assert [name for name, times in Counter(documented()).items() if times > 1] == []


def chosen_members() -> list[tuple[str, str]]:
    """The members that a page chooses of a class, where it does not show all."""
    chosen = re.compile(r"^::: ([\w.]+)\n(?: +.*\n)*? +members:\n((?: +- \w+\n)+)", re.MULTILINE)
    return [
        (name, member)
        for page in sorted(REFERENCE.glob("*.md"))
        for name, listed in chosen.findall(page.read_text("utf-8"))
        for member in re.findall(r"- (\w+)", listed)
    ]


def test_every_member_that_is_chosen_exists() -> None:
    missing = []
    for name, member in chosen_members():
        module, _, class_name = name.rpartition(".")
        kind = getattr(import_module(module), class_name)
        if not hasattr(kind, member) and f"self.{member}" not in inspect.getsource(kind):
            missing.append(f"{name}.{member}")
    assert chosen_members() != []
    assert missing == []
