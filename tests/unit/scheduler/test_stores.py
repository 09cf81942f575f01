"""Stores that need no server."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tampu.errors import OptionError
from tampu.scheduler import CoordinatedStore, RedisGuard, RedisStore
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


@pytest.mark.parametrize("kind", [RedisStore, RedisGuard, CoordinatedStore])
def test_a_url_that_leads_to_no_server_is_refused_when_it_is_made(
    kind: Callable[[str], object],
) -> None:
    with pytest.raises(OptionError, match=r"^url="):
        kind("http://house")
