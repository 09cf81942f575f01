"""Between client and server replies are lost and connections cut: nothing twice, nothing lost."""

import asyncio
from typing import Literal

import pytest
import redis

from tests.faults.ledger import Ledger
from tests.faults.load import Load, load_on
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

TIMES = 4
STREAM = "{chasqui:load}:stream"
ADDED = b"$0\r\n\r\n"  # what the add script says when all jobs were added
DELIVERED_TWICE = b":2\r\n"  # how a takeover's reply ends, of entries that a peer had before
Loss = Literal["replies", "connections"]


async def lose_replies(proxy: Proxy) -> None:
    """What was asked for is carried out, and nobody is told."""
    before = proxy.swallowed
    proxy.hold_replies = True
    await wait_until(lambda: proxy.swallowed > before, within=60, sentence="a reply is lost")
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


@pytest.mark.every_server
async def test_an_add_whose_reply_alone_is_lost_adds_once(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async with Proxy(running.port) as proxy:
        async with load_on(proxy.url, ledger, caplog, worker_url=running.url) as load:
            for _ in range(TIMES):
                before = proxy.swallowed
                proxy.deafening = ADDED
                await wait_until(
                    lambda before=before: proxy.swallowed > before,  # type: ignore[misc]
                    within=60,
                    sentence="the reply to an add is lost",
                )
                proxy.deafening = None
                proxy.cut()
                await load.more_done(30)
            report = await load.rest()
    report.assert_sound()


@pytest.mark.every_server
async def test_a_takeover_whose_reply_is_lost_runs_each_entry_once(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer takes entries and never runs them; reading goes on while they are taken over."""
    async with Proxy(running.port) as proxy:
        async with load_on(running.url, ledger, caplog, worker_url=proxy.url, lease=0.5) as load:
            with running.admin() as admin:
                for _ in range(TIMES):
                    taken = await asyncio.to_thread(read_as_peer, admin)
                    assert taken
                    before = proxy.swallowed
                    proxy.deafening = DELIVERED_TWICE
                    await wait_until(
                        lambda before=before: proxy.swallowed > before,  # type: ignore[misc]
                        within=60,
                        sentence="the reply to a takeover is lost",
                    )
                    proxy.deafening = None
                    cut_all_but_readers(admin)
                    await load.more_done(30)
            report = await load.rest()
    report.assert_sound()


def read_as_peer(admin: redis.Redis) -> object:
    """Have a peer's consumer hold an entry."""
    return admin.xreadgroup("default", "c-peer", {STREAM: ">"}, count=20, block=5000)


def cut_all_but_readers(admin: redis.Redis) -> None:
    """Cut every connection that does not wait for entries."""
    for client in admin.client_list(_type="normal"):
        if client["cmd"] not in {"xreadgroup", "client", "client|list"}:
            admin.client_kill_filter(_id=client["id"])
