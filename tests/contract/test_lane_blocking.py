"""Blocking reads on a lane: how long they may take, and how they are unblocked."""

import asyncio
from contextlib import suppress

import pytest

from tampu.errors import ServerError
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.server.protocol import pack
from tests.contract.lanes import IMPATIENT, KEY, OpenThroughProxy, wait_until_blocked
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("redis_py")


@pytest.mark.every_version
async def test_blocking_reads_can_be_unblocked(lane: Lane, running: RunningServer) -> None:
    call = lane.send(pack("BLPOP", b"{chasqui:lane}:none", 30), block_s=30)
    with running.admin() as admin:
        await wait_until(
            lambda: bool(admin.info("clients")["blocked_clients"]), within=60, sentence="blocked"
        )
        await lane.unblock()
        assert await asyncio.wait_for(call, 10) is None
        assert await lane.call("PING") == b"PONG"
        assert admin.info("clients")["blocked_clients"] == 0


@pytest.mark.every_version
async def test_unblock_also_ends_a_read_that_is_just_being_sent(lane: Lane) -> None:
    for n in range(100):
        call = lane.send(pack("BLPOP", b"{chasqui:lane}:none", 30), block_s=30)
        for _ in range(n % 5):
            await asyncio.sleep(0)
        await lane.unblock()
        assert await asyncio.wait_for(call, 10) is None


@pytest.mark.every_version
async def test_unblock_does_not_lose_the_item_of_a_read(lane: Lane, running: RunningServer) -> None:
    with running.admin() as admin:
        for n in range(50):
            call = lane.send(pack("BLPOP", b"{chasqui:lane}:list", 30), block_s=30)
            await asyncio.sleep(0)
            admin.rpush("{chasqui:lane}:list", n)
            await lane.unblock()
            reply = await asyncio.wait_for(call, 10)
            left = admin.lpop("{chasqui:lane}:list")
            assert (reply is None) != (left is None), "an item was lost or came twice"


async def test_unblock_without_a_blocked_read_does_nothing(lane: Lane) -> None:
    await lane.unblock()
    assert await lane.call("PING") == b"PONG"


@pytest.mark.every_version
async def test_a_blocking_read_may_last_longer_than_the_patience(server: Server) -> None:
    async with await Lane.open(server, KEY, options=IMPATIENT) as lane:
        reading = lane.send(pack("BLPOP", b"{chasqui:lane}:none", 1), block_s=1)
        assert await reading is None


@pytest.mark.every_version
async def test_an_unblocked_read_that_is_lost_is_not_sent_again(
    open_through_proxy: OpenThroughProxy, running: RunningServer
) -> None:
    lane, proxy = await open_through_proxy()
    reading = lane.send(pack("BLPOP", b"none", 30), repeatable=True, block_s=30)
    await wait_until_blocked(running)
    unblocking = asyncio.create_task(lane.unblock())
    proxy.cut()
    with suppress(ServerError):
        await unblocking
    assert await asyncio.wait_for(reading, 10) is None


@pytest.mark.every_version
async def test_without_permission_for_client_id_a_read_ends_by_itself(
    running: RunningServer,
) -> None:
    with running.admin() as admin:
        admin.execute_command("ACL", "SETUSER", "few", "on", ">pw", "~*", "+blpop", "+ping")
        try:
            url = f"redis://few:pw@127.0.0.1:{running.port}/0"
            async with await connect(url) as server, await Lane.open(server, KEY) as lane:
                reading = lane.send(pack("BLPOP", b"none", 2), block_s=2)
                await wait_until_blocked(running)
                await lane.unblock()
                assert not reading.done()
                assert await reading is None
        finally:
            admin.acl_deluser("few")
