"""The suite of all stores, on those that need no server."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tampu.errors import OptionError
from tampu.scheduler import CoordinatedStore, RedisGuard, RedisStore
from tampu.scheduler.stores.resilient import ResilientStore
from tampu.scheduler.stores.sqlite import SqliteStore
from tampu.scheduler.stores.store import MemoryStore, Store
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
    """The suite, on each store."""


@pytest.mark.parametrize("kind", [RedisStore, RedisGuard, CoordinatedStore])
def test_an_invalid_url_is_refused_by_name(
    kind: Callable[[str], object],
) -> None:
    with pytest.raises(OptionError, match=r"^Invalid url "):
        kind("http://host")
