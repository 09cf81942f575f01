"""Stores that need no server."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tampu.scheduler.memory_store import MemoryStore
from tampu.scheduler.resilient_store import ResilientStore
from tampu.scheduler.sqlite_store import SqliteStore
from tampu.scheduler.store import Store
from tests.stores import StoreSuite


@pytest.fixture(params=["memory", "sqlite", "resilient"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    kinds: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(tmp_path / "states.db"),
        "resilient": lambda: ResilientStore(MemoryStore()),
    }
    made = kinds[request.param]()
    await made.open()
    yield made
    await made.close()


class TestEveryStore(StoreSuite):
    """The suite, on each of them."""
