"""Stores that need no server."""

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
    """The suite, on each of them."""


@pytest.mark.parametrize("kind", [RedisStore, RedisGuard, CoordinatedStore])
def test_a_url_that_leads_to_no_server_is_refused_when_it_is_made(
    kind: Callable[[str], object],
) -> None:
    with pytest.raises(OptionError, match=r"^Invalid url "):
        kind("http://house")
