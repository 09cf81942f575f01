"""Lanes for the tests."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tampu.server.connect import Server, connect
from tampu.server.lane import Lane, LaneOptions
from tests.contract.lanes import KEY, QUICK, Through
from tests.proxy import Proxy
from tests.servers import RunningServer


@pytest.fixture
async def lane(server: Server) -> AsyncIterator[Lane]:
    async with await Lane.open(server, KEY, options=QUICK) as opened:
        yield opened


@pytest.fixture
async def through(running: RunningServer) -> AsyncIterator[Through]:
    async with AsyncExitStack() as stack:

        async def opened(options: LaneOptions = QUICK) -> tuple[Lane, Proxy]:
            proxy = await stack.enter_async_context(Proxy(running.port))
            server = await stack.enter_async_context(await connect(proxy.url))
            lane = await Lane.open(server, KEY, options=options)
            return await stack.enter_async_context(lane), proxy

        yield opened
