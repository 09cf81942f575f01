"""A queue on which both worlds meet."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.interop.chasqui import Chasqui
from tests.interop.road import Road, road_on
from tests.servers import RunningServer


@pytest.fixture(scope="module")
def peer(_shared: RunningServer) -> Iterator[Chasqui]:
    """One process of the peer's for all tests of a module."""
    with Chasqui(_shared.url) as started:
        yield started


@pytest.fixture
async def road(running: RunningServer, peer: Chasqui) -> AsyncIterator[Road]:
    async with road_on(running, peer) as opened:
        yield opened
