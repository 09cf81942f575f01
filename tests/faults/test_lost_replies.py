"""Between client and server replies are lost and connections cut: nothing twice, nothing lost."""

import asyncio
from typing import Literal

import pytest

from tests.faults.ledger import Ledger
from tests.faults.load import Load, load_on
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

TIMES = 8
ADDED = b"$0\r\n\r\n"  # what the add script says when all jobs were added
Loss = Literal["replies", "connections"]


async def lose_replies(proxy: Proxy) -> None:
    """What was asked for is carried out, and nobody is told."""
    before = proxy.swallowed
    proxy.hold_replies = True
    await wait_until(lambda: proxy.swallowed > before, within=5, sentence="a reply is lost")
    await asyncio.sleep(0.02)  # a few more
    proxy.cut()
    proxy.hold_replies = False


async def disturb(proxy: Proxy, load: Load, loss: Loss) -> None:
    for _ in range(TIMES):
        if loss == "replies":
            await lose_replies(proxy)
        else:
            proxy.cut()
        await load.more_done(30)


@pytest.mark.parametrize("loss", ["replies", "connections"])
async def test_on_the_producers_way(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture, loss: Loss
) -> None:
    async with Proxy(running.port) as proxy:
        async with load_on(proxy.url, ledger, caplog, worker_url=running.url) as load:
            await disturb(proxy, load, loss)
            report = await load.rest()
    report.assert_sound()
    assert proxy.accepted > TIMES


@pytest.mark.parametrize("loss", ["replies", "connections"])
async def test_on_the_workers_way(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture, loss: Loss
) -> None:
    async with Proxy(running.port) as proxy:
        async with load_on(running.url, ledger, caplog, worker_url=proxy.url) as load:
            await disturb(proxy, load, loss)
            report = await load.rest()
    report.assert_sound()
    assert proxy.accepted > TIMES


async def test_an_add_whose_reply_alone_is_lost_adds_once(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async with Proxy(running.port) as proxy:
        async with load_on(proxy.url, ledger, caplog, worker_url=running.url) as load:
            for _ in range(TIMES):
                before = proxy.swallowed
                proxy.lost_reply = ADDED
                await wait_until(
                    lambda before=before: proxy.swallowed > before,  # type: ignore[misc]
                    within=5,
                    sentence="the reply to an add is lost",
                )
                proxy.lost_reply = None
                proxy.cut()
                await load.more_done(30)
            report = await load.rest()
    report.assert_sound()
