"""Lanes to a master under Sentinel: it is found, and followed when it changes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tampu.errors import AccessDenied, ConnectionLost, ServerUnreachable
from tampu.server.connect import connect
from tampu.server.lane import Lane, LaneOptions
from tampu.server.protocol import pack
from tests.topology import Watched, watched
from tests.waiting import wait_until

QUICK = LaneOptions(limit_s=20.0, patience_s=10.0, first_pause_s=0.01, longest_pause_s=0.2)
KEY = b"{chasqui:watched}:n"


@pytest.fixture(scope="module")
def group(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(binary, tmp_path_factory.mktemp("sentinels"), fails_fast=True) as made:
        yield made


@pytest.mark.every_version
async def test_the_master_is_found_and_followed(group: Watched) -> None:
    async with (
        await connect(group.url) as server,
        await Lane.open(server, KEY, options=QUICK) as lane,
    ):
        before = await port_of(lane)
        assert await lane.call("SET", KEY, b"kept") == b"OK"
        assert await lane.call("WAIT", 1, 5000, block_s=5) == 1
        await asyncio.to_thread(group.switch)

        async def has_switched() -> bool:
            # A write finds out at once that its server is a replica now; a read does not.
            await lane.send(pack("SET", KEY, b"kept"), repeatable=True)
            return await port_of(lane) not in {0, before}

        await wait_until(has_switched, within=60, sentence="the lane leads to the new master")
        assert await lane.call("GET", KEY) == b"kept"


@pytest.mark.every_version
async def test_a_killed_master_is_replaced(binary: Path, tmp_path: Path) -> None:
    with watched(binary, tmp_path, fails_fast=True) as group:
        await check_replacement(group)


async def test_a_lane_keeps_working_while_no_sentinel_answers(binary: Path, tmp_path: Path) -> None:
    with watched(binary, tmp_path, fails_fast=True) as group:
        async with await connect(group.url) as server, await Lane.open(server, KEY) as lane:
            mine = await lane.call("CLIENT", "ID")
            for sentinel in group.sentinels.values():
                sentinel.kill()
            await asyncio.sleep(2.2)  # they are asked twice in that time
            assert await lane.call("CLIENT", "ID") == mine


async def check_replacement(group: Watched) -> None:
    async with (
        await connect(group.url) as server,
        await Lane.open(server, KEY, options=QUICK) as lane,
    ):
        await lane.call("SET", KEY, b"kept")
        assert await lane.call("WAIT", 1, 5000, block_s=5) == 1
        group.master.kill()
        assert await lane.send(pack("GET", KEY), repeatable=True) == b"kept"
        assert await port_of(lane) == group.replica.port


async def test_an_idle_lane_goes_to_the_new_master_before_it_writes(
    binary: Path, tmp_path: Path
) -> None:
    with watched(binary, tmp_path, fails_fast=True) as group:
        async with await connect(group.url) as server, await Lane.open(server, KEY) as lane:
            mine = await lane.call("CLIENT", "ID")
            await asyncio.to_thread(group.switch)
            with group.master.admin() as admin:
                await wait_until(
                    lambda: all(int(c["id"]) != mine for c in admin.client_list(_type="normal")),
                    within=8,  # the old master itself learns of it after ten seconds
                    sentence="the lane has left the old master",
                )
            assert await port_of(lane) == group.replica.port


async def test_a_sentinel_that_is_down_is_skipped(group: Watched) -> None:
    url = group.url.replace("redis+sentinel://", "redis+sentinel://127.0.0.1:1,")
    async with await connect(url) as server, await Lane.open(server, KEY) as lane:
        assert await lane.call("PING") == b"PONG"


async def test_an_unknown_service_is_named_in_the_error(group: Watched) -> None:
    with pytest.raises(ServerUnreachable, match="'barn'"):
        await connect(group.url.replace("/house", "/barn"))


@pytest.mark.every_version
async def test_sentinels_that_require_a_password_are_an_access_error(group: Watched) -> None:
    for port in group.sentinel_ports:
        with redis.Redis(port=port) as sentinel:
            sentinel.execute_command("ACL", "SETUSER", "default", "resetpass", ">guard")
    try:
        with pytest.raises(AccessDenied, match="sentinel_password"):
            await connect(group.url)
        async with await connect(f"{group.url}?sentinel_password=guard") as server:
            async with await Lane.open(server, KEY) as lane:
                assert await lane.call("PING") == b"PONG"
    finally:
        for port in group.sentinel_ports:
            with redis.Redis(port=port, password="guard") as sentinel:  # noqa: S106
                sentinel.execute_command("ACL", "SETUSER", "default", "nopass")


async def port_of(lane: Lane) -> int:
    """The port of the server that the lane leads to; 0 while it reconnects."""
    try:
        reply = await lane.call("CONFIG", "GET", "port", limit_s=10)
    except (ConnectionLost, ServerUnreachable):
        return 0
    assert isinstance(reply, list)
    return int(str(reply[1], "ascii"))  # type: ignore[arg-type]
