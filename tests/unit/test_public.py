"""The public surface: small, listed once."""

from types import ModuleType

import tampu
from tampu import errors


def test_public_names_are_the_listed_ones() -> None:
    visible = {name for name in vars(tampu) if not name.startswith("_")}
    modules = {name for name in visible if isinstance(getattr(tampu, name), ModuleType)}
    assert visible - modules == set(tampu.__all__) - {"__version__"}


def test_every_error_is_public_and_of_the_one_tree() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    raised = [kind for kind in kinds if issubclass(kind, Exception)]
    assert all(issubclass(kind, errors.TampuError) for kind in raised)
    assert {kind.__name__ for kind in raised} <= set(tampu.__all__)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = str(errors.__doc__)
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert f" {kind.__name__} " in drawn.replace("\n", " \n"), kind.__name__
