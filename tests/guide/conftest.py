"""The pages run on one server: they are about us, not about servers."""

import pytest

from tests.servers import BACKENDS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other servers have no turn here."""
    others = tuple(f"[{backend.name}" for backend in BACKENDS[1:])
    items[:] = [
        item
        for item in items
        if item.path.parent.name != "guide" or not any(other in item.name for other in others)
    ]
