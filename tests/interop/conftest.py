"""A queue on which both worlds meet."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.chasqui import Chasqui
from tests.interop.road import Road, road_on
from tests.peers import PACKAGE, can_run_on, is_made
from tests.servers import IN_CI, RunningServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The peer runs on few servers: there is nothing to be said of the others."""
    items[:] = [each for each in items if not _is_spare(each)]


def _is_spare(item: pytest.Item) -> bool:
    callspec: Any = getattr(item, "callspec", None)
    if Path(__file__).parent not in item.path.parents or callspec is None:
        return False
    backend = callspec.params.get("backend")
    return backend is not None and not can_run_on(backend)


@pytest.fixture(scope="module")
def peer(_shared: RunningServer) -> Iterator[Chasqui]:
    """One process of the peer's for all tests of a module."""
    if not is_made():
        missing = pytest.fail if IN_CI else pytest.skip
        missing(f"{PACKAGE} is not on this machine: make peers")
    with Chasqui(_shared.url) as started:
        yield started


@pytest.fixture
async def road(running: RunningServer, peer: Chasqui) -> AsyncIterator[Road]:
    async with road_on(running, peer) as opened:
        yield opened
