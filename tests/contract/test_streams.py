"""Acknowledging entries on real servers."""

import asyncio

import pytest

from tampu.errors import CommandRefused, OptionError, QueueFull
from tampu.server.lane import Lane
from tampu.server.protocol import pack
from tampu.server.streams import ack_plainly
from tests.contract.lanes import OpenThroughProxy
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_version

STREAM = b"{chasqui:streams}:stream"
GROUP = b"default"


async def read_entries(lane: Lane, count: int) -> list[bytes]:
    """Add entries and read them; returns their ids."""
    await asyncio.gather(*(lane.send(pack("XADD", STREAM, "*", "d", b"e")) for _ in range(count)))
    await lane.call("XGROUP", "CREATE", STREAM, GROUP, "0")
    reply = await lane.call(
        "XREADGROUP", "GROUP", GROUP, "c", "COUNT", count, "STREAMS", STREAM, ">"
    )
    return [entry[0] for entry in reply[0][1]]  # type: ignore[index, misc, union-attr]


async def test_acked_entries_are_deleted(lane: Lane) -> None:
    ids = await read_entries(lane, 512)
    assert await ack_plainly(lane, ids, stream=STREAM, group=GROUP) == 512
    assert await lane.call("XLEN", STREAM) == 0
    assert (await lane.call("XPENDING", STREAM, GROUP))[0] == 0  # type: ignore[index]


async def test_a_second_ack_counts_nothing(lane: Lane) -> None:
    ids = await read_entries(lane, 3)
    await ack_plainly(lane, ids, stream=STREAM, group=GROUP)
    assert await ack_plainly(lane, ids, stream=STREAM, group=GROUP) == 0


async def test_an_ack_is_sent_again_after_a_lost_reply(
    open_through_proxy: OpenThroughProxy,
) -> None:
    lane, proxy = await open_through_proxy()
    ids = await read_entries(lane, 3)
    proxy.hold_replies = True
    call = asyncio.create_task(ack_plainly(lane, ids, stream=STREAM, group=GROUP))
    await wait_until(lambda: proxy.swallowed > 0, within=60, sentence="the reply was lost")
    proxy.hold_replies = False
    proxy.cut()
    assert await call == 0
    assert await lane.call("XLEN", STREAM) == 0


@pytest.mark.parametrize("count", [0, 1001])
async def test_no_ids_and_too_many_are_refused(lane: Lane, count: int) -> None:
    with pytest.raises(OptionError, match="expected 1 to 1000 ids"):
        await ack_plainly(lane, [b"1-1"] * count, stream=STREAM, group=GROUP)


async def test_a_thousand_ids_fit_in_one_call(lane: Lane) -> None:
    ids = await read_entries(lane, 1000)
    assert await ack_plainly(lane, ids, stream=STREAM, group=GROUP) == 1000


async def test_an_ack_works_at_the_memory_limit(lane: Lane, running: RunningServer) -> None:
    ids = await read_entries(lane, 10)
    with running.admin() as admin:
        admin.config_set("maxmemory", 1)
        try:
            with pytest.raises(QueueFull):
                await lane.call("XADD", STREAM, "*", "d", b"e")
            assert await ack_plainly(lane, ids, stream=STREAM, group=GROUP) == 10
        finally:
            admin.config_set("maxmemory", 0)
    assert await lane.call("XLEN", STREAM) == 0


async def test_an_ack_on_a_key_of_a_wrong_type_changes_nothing(lane: Lane) -> None:
    await lane.call("SET", STREAM, b"text")
    with pytest.raises(CommandRefused):
        await ack_plainly(lane, [b"1-1"], stream=STREAM, group=GROUP)
    assert await lane.call("GET", STREAM) == b"text"
