"""A lane on real servers: order, cancellation, lost connections, unblocking."""

import asyncio
from contextlib import suppress
from functools import partial
from random import Random

import pytest
from redis.asyncio import Connection, ConnectionPool, Redis

from tampu.errors import (
    AccessDenied,
    Closed,
    CommandRefused,
    ConnectionLost,
    OptionError,
    QueueFull,
    ServerBusy,
    ServerUnreachable,
)
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane, LaneOptions
from tampu.server.protocol import LaneProtocol, PublicProtocol, Reply, pack
from tests.conftest import Start
from tests.contract.lanes import IMPATIENT, KEY, PATIENT, QUICK, OpenThroughProxy, until_lost
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("redis_py")


@pytest.mark.every_version
async def test_a_call_gets_its_reply(lane: Lane) -> None:
    assert await lane.call("PING") == b"PONG"
    assert await lane.call("GET", b"missing") is None
    assert await lane.call("INCR", b"{chasqui:lane}:n") == 1


async def test_a_lane_uses_the_fastest_protocol_that_redis_py_allows(
    lane: Lane, redis_py: str
) -> None:
    await lane.call("PING")
    assert lane._connection is not None
    fastest = LaneProtocol if redis_py == "fast" else PublicProtocol
    assert type(lane._connection.node.protocol) is fastest


@pytest.mark.every_version
async def test_many_calls_in_flight_are_answered_in_order(lane: Lane) -> None:
    futures = [lane.send(pack("ECHO", n)) for n in range(5000)]
    assert await asyncio.gather(*futures) == [str(n).encode() for n in range(5000)]


async def test_a_large_command_and_a_large_reply_pass(lane: Lane) -> None:
    large = bytes(8_000_000)
    assert await lane.call("ECHO", large) == large


async def test_ten_thousand_cancelled_calls_do_not_mix_up_replies(
    open_through_proxy: OpenThroughProxy,
) -> None:
    lane, proxy = await open_through_proxy(PATIENT)
    proxy.latency_s = 0.005
    rng = Random(7)  # noqa: S311 - which calls to cancel
    cancelled = answered = 0

    async def one(n: int) -> None:
        nonlocal cancelled, answered
        try:
            async with asyncio.timeout(rng.choice((0, 0.001, 0.004, 0.02, 10))):
                assert await lane.call("ECHO", n) == str(n).encode()
        except TimeoutError:
            cancelled += 1
        else:
            answered += 1

    for first in range(0, 24_000, 200):
        await asyncio.gather(*(one(n) for n in range(first, first + 200)))
    assert cancelled >= 10_000
    assert answered >= 2_000
    assert await lane.call("ECHO", "the last") == b"the last"
    assert proxy.accepted == 2, "a cancelled call cost the connection"


async def test_a_call_that_is_cancelled_before_it_is_sent_is_never_sent(
    open_through_proxy: OpenThroughProxy, running: RunningServer
) -> None:
    lane, _ = await open_through_proxy()
    before = lane.send(pack("PING"))
    lane.send(pack("INCR", b"{chasqui:lane}:n")).cancel()
    assert await before == b"PONG"
    assert await lane.call("PING") == b"PONG"
    with running.admin() as admin:
        assert admin.exists("{chasqui:lane}:n") == 0


async def test_a_call_in_flight_when_the_connection_breaks_is_lost(
    open_through_proxy: OpenThroughProxy,
) -> None:
    lane, proxy = await open_through_proxy()
    proxy.hold_replies = True
    call = lane.send(pack("INCR", b"{chasqui:lane}:n"))
    await wait_until(lambda: proxy.swallowed > 0, within=60, sentence="the reply was lost")
    proxy.cut()
    with pytest.raises(ConnectionLost, match="outcome is unknown"):
        await call
    proxy.hold_replies = False
    assert await lane.call("PING") == b"PONG"


async def test_a_repeatable_call_is_sent_again_after_a_lost_connection(
    open_through_proxy: OpenThroughProxy, running: RunningServer
) -> None:
    lane, proxy = await open_through_proxy()
    proxy.hold_replies = True
    call = lane.send(pack("INCR", b"{chasqui:lane}:n"), repeatable=True)
    with running.admin() as admin:
        await wait_until(
            lambda: admin.get("{chasqui:lane}:n") == b"1",
            within=60,
            sentence="the server carried it out once",
        )
    proxy.hold_replies = False
    proxy.cut()
    assert await call == 2


async def test_repeated_calls_keep_their_order(
    open_through_proxy: OpenThroughProxy, running: RunningServer
) -> None:
    lane, proxy = await open_through_proxy()
    proxy.hold_requests = True
    calls = [
        lane.send(pack("RPUSH", b"{chasqui:lane}:list", n), repeatable=True) for n in range(50)
    ]
    await wait_until(lambda: proxy.swallowed > 0, within=60, sentence="the calls were lost")
    proxy.hold_requests = False
    proxy.cut()
    assert await asyncio.gather(*calls) == list(range(1, 51))
    with running.admin() as admin:
        assert admin.lrange("{chasqui:lane}:list", 0, -1) == [str(n).encode() for n in range(50)]


@pytest.mark.every_version
async def test_calls_wait_while_the_server_is_down(start: Start) -> None:
    running = start("--appendonly", "yes", "--appendfsync", "always")
    async with (
        await connect(running.url) as server,
        await Lane.open(server, KEY, options=QUICK) as lane,
    ):
        await lane.call("SET", b"a", b"1")
        running.kill()
        await until_lost(lane)
        waiting = lane.send(pack("GET", b"a"))
        running.restart()
        assert await waiting == b"1"


async def test_a_call_without_a_server_fails_at_its_limit_with_the_reason(start: Start) -> None:
    running = start()
    async with (
        await connect(running.url) as server,
        await Lane.open(server, KEY, options=QUICK) as lane,
    ):
        running.kill()
        await until_lost(lane)
        with pytest.raises(ServerUnreachable, match="Connection refused"):
            await lane.call("PING", limit_s=1.5)


async def test_a_silent_connection_is_replaced(open_through_proxy: OpenThroughProxy) -> None:
    lane, proxy = await open_through_proxy(IMPATIENT)
    proxy.hold_replies = True
    with pytest.raises(ConnectionLost, match=r"no reply for 0\.5 s"):
        await lane.call("PING")
    proxy.hold_replies = False
    assert await lane.call("PING", repeatable=True) == b"PONG"


async def test_repeatable_calls_wait_for_a_paused_server(start: Start) -> None:
    running = start()
    async with (
        await connect(running.url) as server,
        await Lane.open(server, KEY, options=IMPATIENT) as lane,
    ):
        running.pause()
        call = lane.send(pack("PING"), repeatable=True)
        await asyncio.wait([call], timeout=0.8)
        assert not call.done()
        running.resume()
        assert await call == b"PONG"


@pytest.mark.every_version
async def test_repeatable_calls_survive_client_kill(lane: Lane, running: RunningServer) -> None:
    with running.admin() as admin:
        for n in range(30):
            calls = [lane.send(pack("ECHO", i), repeatable=True) for i in range(20)]
            admin.client_kill_filter(_type="normal", skipme=True)
            assert await asyncio.gather(*calls) == [str(i).encode() for i in range(20)], n


@pytest.mark.every_version
async def test_a_refusal_does_not_shift_later_replies(lane: Lane) -> None:
    await lane.call("SET", b"{chasqui:lane}:s", b"x")
    wrong = lane.send(pack("XLEN", b"{chasqui:lane}:s"))
    right = lane.send(pack("GET", b"{chasqui:lane}:s"))
    with pytest.raises(CommandRefused) as caught:
        await wrong
    assert caught.value.code == "WRONGTYPE"
    assert await right == b"x"


@pytest.mark.every_version
async def test_the_arguments_of_an_unknown_command_are_not_in_the_error(lane: Lane) -> None:
    with pytest.raises(CommandRefused) as caught:
        await lane.call("NOSUCH", b"a-secret-payload")
    assert "a-secret-payload" not in str(caught.value)


@pytest.mark.every_version
async def test_out_of_memory_is_queue_full(start: Start) -> None:
    running = start("--maxmemory", "1")
    async with await connect(running.url) as server, await Lane.open(server, KEY) as lane:
        with pytest.raises(QueueFull) as caught:
            await lane.call("SET", b"a", b"b")
        assert caught.value.code == "OOM"


async def is_refused_as_read_only(lane: Lane) -> bool:
    """Whether a write ends with the refusal, and not because its limit passes during a call."""
    try:
        await lane.call("SET", b"a", b"b", limit_s=1.5)
    except ServerBusy as error:
        assert error.code == "READONLY"
        return True
    except ConnectionLost:
        return False
    raise AssertionError("a read-only server has taken a write")


@pytest.mark.every_version
async def test_a_write_to_a_read_only_server_is_tried_until_its_limit(start: Start) -> None:
    master, replica = start(), start()
    with replica.admin() as admin:
        admin.replicaof("127.0.0.1", master.port)
        async with (
            await connect(replica.url) as server,
            await Lane.open(server, KEY, options=QUICK) as lane,
        ):
            await wait_until(
                partial(is_refused_as_read_only, lane), within=60, sentence="the refusal is raised"
            )
            waiting = lane.send(pack("SET", b"a", b"b"))
            await asyncio.wait([waiting], timeout=0.1)
            admin.replicaof("NO", "ONE")
            assert await waiting == b"OK"


@pytest.mark.every_version
async def test_a_missing_permission_is_access_denied(running: RunningServer) -> None:
    with running.admin() as admin:
        admin.execute_command("ACL", "SETUSER", "few", "on", ">pw", "~*", "+ping", "+client")
        try:
            url = f"redis://few:pw@127.0.0.1:{running.port}/0"
            async with await connect(url) as server, await Lane.open(server, KEY) as lane:
                assert await lane.call("PING") == b"PONG"
                with pytest.raises(AccessDenied, match="ACL") as caught:
                    await lane.call("GET", b"a")
                assert "pw" not in str(caught.value).split("few")[0]
        finally:
            admin.acl_deluser("few")


async def test_an_outage_is_logged_once_for_all_lanes_of_a_server(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    running = start()
    async with (
        await connect(running.url) as server,
        await Lane.open(server, KEY, options=QUICK) as first,
        await Lane.open(server, KEY, options=QUICK) as second,
    ):
        running.kill()
        for lane in (first, second):
            await until_lost(lane)
        running.restart()
        for lane in (first, second):
            assert await lane.call("PING", repeatable=True) == b"PONG"
        await wait_until(
            lambda: "is available again" in caplog.text, within=60, sentence="the end is logged"
        )
    lines = [record for record in caplog.records if record.name.startswith("tampu.server")]
    begin, end = [record.getMessage() for record in lines]
    assert begin.startswith(f"{server.name} is unavailable, retrying: ")
    assert end.startswith(f"{server.name} is available again after ")
    assert {vars(record)["server"] for record in lines} == {server.name}


class BrokenConnection(Connection):
    """A user's connection class that raises an unexpected error."""

    broken = False

    async def connect(self) -> None:
        if BrokenConnection.broken:
            raise RuntimeError("unexpected")
        await super().connect()  # type: ignore[no-untyped-call]


async def test_after_an_unexpected_error_no_call_is_left_waiting(
    running: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = ConnectionPool(connection_class=BrokenConnection, host="127.0.0.1", port=running.port)
    async with await connect(Redis(connection_pool=pool)) as server:
        async with await Lane.open(server, KEY, options=QUICK) as lane:
            monkeypatch.setattr(BrokenConnection, "broken", True)
            with running.admin() as admin:
                admin.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(Closed):
                while True:
                    with suppress(ConnectionLost):
                        await lane.send(pack("PING"), repeatable=True)
    assert f"the lane to {server.name} failed: RuntimeError('unexpected')" in caplog.text


async def test_closing_fails_open_calls_and_leaves_no_task_and_no_socket(
    server: Server, running: RunningServer
) -> None:
    before = asyncio.all_tasks()
    lane = await Lane.open(server, KEY, options=QUICK)
    call = lane.send(pack("BLPOP", b"{chasqui:lane}:none", 30), block_s=30)
    with running.admin() as admin:
        await wait_until(
            lambda: bool(admin.info("clients")["blocked_clients"]), within=60, sentence="blocked"
        )
        await lane.close()
        await lane.close()
        with pytest.raises(ConnectionLost):
            await call
        with pytest.raises(Closed):
            lane.send(pack("PING"))
        assert asyncio.all_tasks() == before
        await wait_until(
            lambda: len(admin.client_list(_type="normal")) == 1,
            within=60,
            sentence="no socket left",
        )


async def test_cancelled_calls_in_a_full_write_buffer_do_not_cost_the_connection(
    open_through_proxy: OpenThroughProxy,
) -> None:
    lane, proxy = await open_through_proxy(PATIENT)
    large = bytes(4_000_000)
    calls = [asyncio.create_task(lane.call("ECHO", large)) for _ in range(8)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    done: list[Reply | BaseException] = await asyncio.gather(*calls, return_exceptions=True)
    assert all(reply == large for reply in done[1::2])
    assert proxy.accepted == 2


@pytest.mark.parametrize("name", ["limit_s", "patience_s", "first_pause_s", "longest_pause_s"])
def test_a_time_that_is_not_above_zero_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        LaneOptions(**{name: 0.0})
