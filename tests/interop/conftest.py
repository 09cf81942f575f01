"""A queue on which both worlds meet."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.interop.chasqui import Chasqui
from tests.interop.shared_queue import SharedQueue, open_shared_queue
from tests.servers import RunningServer


@pytest.fixture(scope="module")
def peer(_shared_server: RunningServer) -> Iterator[Chasqui]:
    """One process of the peer's for all tests of a module."""
    with Chasqui(_shared_server.url) as started:
        yield started


@pytest.fixture
async def shared(running: RunningServer, peer: Chasqui) -> AsyncIterator[SharedQueue]:
    async with open_shared_queue(running, peer) as queue:
        yield queue
