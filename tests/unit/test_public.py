"""The public names."""

import ast
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import tampu
from tampu import errors, metrics, testing, web
from tampu.admin.flow_info import NodeState
from tampu.admin.workers import WorkerState
from tampu.job import JobState
from tampu.metrics.facts import OutcomeKind
from tampu.scheduler.events import RunStatus


def test_public_names_are_the_listed_ones() -> None:
    for name in tampu.__all__:
        getattr(tampu, name)
    visible = {name for name in vars(tampu) if not name.startswith("_")}
    modules = {name for name in visible if isinstance(getattr(tampu, name), ModuleType)}
    tools = {"Final", "TYPE_CHECKING", "import_module"}
    assert visible - modules - tools == set(tampu.__all__) - {"__version__"}
    assert dir(tampu) == sorted(tampu.__all__)


def test_the_public_names_of_metrics_are_the_listed_ones() -> None:
    visible = {name for name in vars(metrics) if not name.startswith("_")}
    modules = {name for name in visible if isinstance(getattr(metrics, name), ModuleType)}
    assert visible - modules == set(metrics.__all__)


def test_the_public_names_of_the_test_kit_are_the_listed_ones() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    assert dir(testing) == sorted(testing.__all__)
    names = " ".join(testing._HOMES.values()).split()
    assert sorted(names) == sorted(testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Kti'"):
        _ = testing.Kti  # type: ignore[attr-defined]


def test_the_public_names_of_the_web_parts_are_the_listed_ones() -> None:
    visible = {name for name in vars(web) if not name.startswith("_")}
    modules = {name for name in visible if isinstance(getattr(web, name), ModuleType)}
    assert visible - modules == set(web.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tampu' has no attribute 'Qeue'"):
        _ = tampu.Qeue  # type: ignore[attr-defined]


def test_type_checkers_see_the_names_that_are_imported() -> None:
    tree = ast.parse(Path(str(tampu.__file__)).read_text("utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If) and len(node.body) > 1)
    seen = {
        str(node.module): " ".join(alias.name for alias in node.names)
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == tampu._HOMES


def test_every_public_class_and_function_is_described() -> None:
    described = [getattr(tampu, name) for name in tampu.__all__]
    for each in described:
        if isinstance(each, type | FunctionType):
            first = (each.__doc__ or "").partition("\n")[0]
            assert first.endswith((".", ":")), each


@pytest.mark.parametrize("module", ["tampu", "tampu.cli.main"])
def test_importing_it_imports_neither_client_nor_codec(module: str) -> None:
    look = (
        f"import sys, {module}; print(sorted({{'redis', 'msgspec', 'asyncio'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_error_is_public_and_in_the_one_tree() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    raised = [kind for kind in kinds if issubclass(kind, Exception)]
    assert all(issubclass(kind, errors.TampuError) for kind in raised)
    assert {kind.__name__ for kind in raised} <= set(tampu.__all__)


def test_the_tree_in_the_docstring_is_complete() -> None:
    drawn = str(errors.__doc__)
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert f" {kind.__name__} " in drawn.replace("\n", " \n"), kind.__name__


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (tampu.EventKind.ADDED, "added"),
        (tampu.Overlap.QUEUE_ONE, "queue_one"),
        (tampu.BuryReason.RETRIES_EXHAUSTED, "retries_exhausted"),
        (JobState.WAITING, "waiting"),
        (OutcomeKind.DONE, "done"),
        (RunStatus.SUCCESS, "success"),
        (WorkerState.GONE, "gone"),
        (tampu.RunState.HALTED, "halted"),
        (NodeState.WAITING, "waiting"),
        (tampu.Verdict.GIVE_UP, "give_up"),
    ],
)
def test_members_of_enums_print_as_words(member: Enum, text: str) -> None:
    assert f"{member}" == text
