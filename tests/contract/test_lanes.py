"""Lanes to many keys: one lane to a server, one for each slot of a cluster."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from tampu.errors import Closed, ServerUnreachable
from tampu.server import lanes as lanes_module
from tampu.server.lanes import Lanes
from tampu.server.protocol import pack
from tests.contract.lanes import QUICK
from tests.proxy import Proxy
from tests.servers import RunningServer, free_port
from tests.topology import Cluster, cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.every_version, pytest.mark.usefixtures("redis_py")]

KEYS = [b"{task-%d}:state" % n for n in range(12)]
CAP = 4


@pytest.fixture(scope="module")
def nodes(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


@pytest.fixture
def low_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "_MOST_OPEN", CAP)


@pytest.fixture
async def lanes(running: RunningServer) -> AsyncIterator[Lanes]:
    made = Lanes(running.url, options=QUICK)
    made.open()
    yield made
    await made.close()


@pytest.fixture
async def cluster_lanes(nodes: Cluster) -> AsyncIterator[Lanes]:
    made = Lanes(nodes.url, options=QUICK)
    made.open()
    yield made
    await made.close()
    await wait_until(lambda: open_lanes() == 0, within=60, sentence="all lanes are closed")


def open_lanes() -> int:
    return sum(task.get_name() == "tampu-lane" for task in asyncio.all_tasks())


class TestToOneServer:
    async def test_all_keys_share_a_lane(self, lanes: Lanes) -> None:
        assert len({id(await lanes.to(key)) for key in KEYS}) == 1
        assert await lanes.order_by_lane(KEYS) == list(range(12)), "one lane needs no order"

    async def test_concurrent_requests_share_a_lane(self, lanes: Lanes) -> None:
        one, other = await asyncio.gather(lanes.to(b"a"), lanes.to(b"b"))
        assert one is other

    async def test_the_last_user_closes_the_lanes(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        before = len(admin.client_list())
        lanes = Lanes(running.url)
        lanes.open()
        lanes.open()
        lane = await lanes.to(b"a")
        await lanes.close()
        assert await lane.call("SET", b"a", b"1") == b"OK"
        await lanes.close()
        with pytest.raises(Closed):
            await lane.call("GET", b"a")
        await wait_until(
            lambda: len(admin.client_list()) == before, within=60, sentence="no connection is left"
        )

    async def test_closed_lanes_can_be_opened_again(self, running: RunningServer) -> None:
        lanes = Lanes(running.url)
        for _ in range(2):
            lanes.open()
            assert await (await lanes.to(b"a")).call("PING") == b"PONG"
            await lanes.close()

    async def test_every_request_fails_while_the_server_is_unreachable(
        self, running: RunningServer
    ) -> None:
        lanes = Lanes(f"redis://127.0.0.1:{free_port()}/0")
        lanes.open()
        for _ in range(2):
            with pytest.raises(ServerUnreachable):
                await lanes.to(b"a")
        await lanes.close()

    async def test_a_silent_server_fails_the_request_at_the_time_limit(
        self, running: RunningServer
    ) -> None:
        async with Proxy(running.port) as proxy:
            proxy.hold_replies = True
            lanes = Lanes(proxy.url, connect_timeout_s=2.0)
            lanes.open()
            with pytest.raises(ServerUnreachable):
                await asyncio.wait_for(lanes.to(b"a"), 10)
            proxy.hold_replies = False
            assert await (await lanes.to(b"a")).call("PING") == b"PONG"
            await lanes.close()


class TestToACluster:
    async def test_each_key_is_reached_on_its_node(
        self, cluster_lanes: Lanes, nodes: Cluster
    ) -> None:
        for key in KEYS:
            assert await (await cluster_lanes.to(key)).call("SET", key, b"1") == b"OK"
        assert len({nodes.owner(key).port for key in KEYS}) == 3
        assert open_lanes() == len(KEYS)

    async def test_keys_of_one_slot_share_a_lane(self, cluster_lanes: Lanes) -> None:
        one, other = await cluster_lanes.to(b"{a}:state"), await cluster_lanes.to(b"{a}:lease")
        assert one is other

    async def test_keys_of_one_lane_are_ordered_next_to_each_other(
        self, cluster_lanes: Lanes
    ) -> None:
        keys = [b"{%b}:%d" % (tag, n) for n in range(3) for tag in (b"a", b"b", b"c")]
        order = [keys[index][:3] for index in await cluster_lanes.order_by_lane(keys)]
        assert sorted(await cluster_lanes.order_by_lane(keys)) == list(range(9))
        turns = [tag for tag, before in zip(order, [b"", *order], strict=False) if tag != before]
        assert len(turns) == 3

    @pytest.mark.usefixtures("low_cap")
    async def test_beyond_the_cap_the_least_recently_used_lanes_are_closed(
        self, cluster_lanes: Lanes
    ) -> None:
        held = {}
        for key in KEYS:
            held[key] = await cluster_lanes.to(key)
            await held[key].call("SET", key, b"1")
            assert open_lanes() <= CAP
        with pytest.raises(Closed):
            held[KEYS[0]].send(pack("GET", KEYS[0]))
        for key in KEYS[-CAP:]:
            assert await held[key].call("GET", key) == b"1"
        for key in KEYS:
            assert await (await cluster_lanes.to(key)).call("GET", key) == b"1"

    @pytest.mark.usefixtures("low_cap")
    async def test_a_lane_that_is_used_again_is_not_closed_first(
        self, cluster_lanes: Lanes
    ) -> None:
        first = await cluster_lanes.to(KEYS[0])
        for key in KEYS[1:CAP]:
            await cluster_lanes.to(key)
        assert await cluster_lanes.to(KEYS[0]) is first
        await cluster_lanes.to(KEYS[CAP])
        assert await cluster_lanes.to(KEYS[0]) is first
        assert open_lanes() == CAP

    @pytest.mark.usefixtures("low_cap")
    async def test_a_lane_with_a_call_in_flight_is_not_closed(
        self, cluster_lanes: Lanes, nodes: Cluster
    ) -> None:
        key = KEYS[0]
        elsewhere = [other for other in KEYS if nodes.owner(other) is not nodes.owner(key)]
        lane = await cluster_lanes.to(key)
        waiting = lane.send(pack("BLPOP", b"{task-0}:list", 30), block_s=30)
        for other in elsewhere:  # a lane to the same node would wait behind the blocking call
            await (await cluster_lanes.to(other)).call("PING")
        assert open_lanes() == CAP
        assert await cluster_lanes.to(key) is lane
        await lane.unblock()
        assert await asyncio.wait_for(waiting, 10) is None

    @pytest.mark.usefixtures("low_cap")
    async def test_more_lanes_than_the_cap_may_be_open_while_all_are_busy(
        self, cluster_lanes: Lanes
    ) -> None:
        calls = []
        for n, key in enumerate(KEYS):
            lane = await cluster_lanes.to(key)
            calls.append(lane.send(pack("BLPOP", b"{task-%d}:list" % n, 30), block_s=30))
        assert open_lanes() == len(KEYS)
        for key in KEYS:
            await (await cluster_lanes.to(key)).unblock()
        assert await asyncio.wait_for(asyncio.gather(*calls), 10) == [None] * len(KEYS)
        await (await cluster_lanes.to(b"{another}")).call("PING")
        assert open_lanes() <= CAP
