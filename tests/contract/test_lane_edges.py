"""A lane in edge cases: while it closes, at its limits, between two connections."""

import asyncio
import gc
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from tampu.errors import AccessDenied, Closed, ConnectionLost, ServerError
from tampu.server.connect import Server, connect
from tampu.server.errors import as_refusal
from tampu.server.lane import Lane, LaneOptions
from tampu.server.protocol import pack
from tampu.server.send_queue import PendingCall
from tests.conftest import Start
from tests.contract.lanes import (
    COUNTER,
    IMPATIENT,
    KEY,
    PATIENT,
    QUICK,
    OpenThroughProxy,
    until_lost,
    wait_until_blocked,
)
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("redis_py")


@contextmanager
def replica_of_another(start: Start) -> Iterator[RunningServer]:
    """A server that refuses writes until it is made a master."""
    master, replica = start(), start()
    with replica.admin() as admin:
        admin.replicaof("127.0.0.1", master.port)
        yield replica


@asynccontextmanager
async def lane_to(running: RunningServer, options: LaneOptions = QUICK) -> AsyncIterator[Lane]:
    async with await connect(running.url) as server:
        async with await Lane.open(server, KEY, options=options) as lane:
            yield lane


async def wait_until_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    await wait_until(
        lambda: "is unavailable" in caplog.text, within=60, sentence="the connection has ended"
    )


def calls_in_memory() -> int:
    """How many calls there are in this process, those that other tests left included."""
    gc.collect()
    return sum(type(each) is PendingCall for each in gc.get_objects())


class TestClosing:
    async def test_close_returns_while_the_connection_breaks(
        self, server: Server, running: RunningServer
    ) -> None:
        with running.admin() as admin:
            for steps in range(12):
                lane = await Lane.open(server, KEY, options=QUICK)
                await lane.call("PING")
                admin.client_kill_filter(_type="normal", skipme=True)
                for _ in range(steps):
                    await asyncio.sleep(0)
                async with asyncio.timeout(10):
                    await lane.close()

    async def test_a_lane_that_is_closed_right_away_leaves_no_socket(
        self, server: Server, running: RunningServer
    ) -> None:
        kept = []  # so that the garbage collector does not close them
        for _ in range(5):
            kept.append(await Lane.open(server, KEY))
            await kept[-1].close()
        with running.admin() as admin:
            await wait_until(
                lambda: len(admin.client_list(_type="normal")) == 1,
                within=60,
                sentence="only the admin is connected",
            )

    @pytest.mark.every_server
    async def test_a_refused_call_that_waits_for_a_blocking_read_fails_at_close(
        self, start: Start
    ) -> None:
        with replica_of_another(start) as replica:
            async with lane_to(replica) as lane:
                refused = lane.send(pack("SET", b"a", b"b"))
                reading = lane.send(pack("XREAD", "BLOCK", 5000, "STREAMS", b"s", "$"), block_s=5)
                await wait_until_blocked(replica)
                connection = lane._connection
                await wait_until(
                    lambda: connection is not None and connection.leaving is not None,
                    within=60,
                    sentence="the lane knows that the call was refused",
                )
                await lane.close()
                await asyncio.wait([refused, reading], timeout=10)
                assert isinstance(refused.exception(), Closed)
                assert isinstance(reading.exception(), ConnectionLost)

    async def test_a_cancelled_close_still_fails_the_calls(self, lane: Lane) -> None:
        call = lane.send(pack("BLPOP", b"none", 30), block_s=30)
        closing = asyncio.create_task(lane.close())
        await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        with pytest.raises(ServerError):
            await asyncio.wait_for(call, 10)

    async def test_a_call_that_waits_for_a_server_fails_at_close(self, start: Start) -> None:
        running = start()
        async with lane_to(running) as lane:
            running.kill()
            await until_lost(lane)
            waiting = lane.send(pack("PING"))
            await lane.close()
            with pytest.raises(Closed):
                await asyncio.wait_for(waiting, 10)

    async def test_an_answered_call_is_not_kept_in_memory(self, lane: Lane) -> None:
        before = calls_in_memory()
        await asyncio.gather(*(lane.send(pack("PING")) for _ in range(500)))
        await asyncio.sleep(0)
        assert calls_in_memory() < before + 5


class TestOutcomes:
    @pytest.mark.every_server
    async def test_a_call_that_was_refused_once_and_then_lost_is_unknown(
        self, start: Start, open_through_proxy: OpenThroughProxy, running: RunningServer
    ) -> None:
        master = start()
        lane, proxy = await open_through_proxy(
            LaneOptions(limit_s=3.0, patience_s=9.0, longest_pause_s=0.1)
        )
        await lane.call("PING")
        proxy.lost_reply = b":1\r\n"
        with running.admin() as admin:
            try:
                admin.replicaof("127.0.0.1", master.port)
                call = lane.send(pack("INCR", COUNTER))
                seen = proxy.accepted
                await wait_until(lambda: proxy.accepted > seen, within=60, sentence="refused")
            finally:
                admin.replicaof("NO", "ONE")
            with pytest.raises(ConnectionLost, match="no reply within"):
                await call
            assert admin.get(COUNTER) == b"1"

    async def test_a_lost_call_stays_unknown_when_the_lane_closes(
        self,
        open_through_proxy: OpenThroughProxy,
        running: RunningServer,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        lane, proxy = await open_through_proxy(LaneOptions(first_pause_s=1.0))
        await lane.call("PING")
        proxy.hold_replies = True
        call = lane.send(pack("INCR", COUNTER), repeatable=True)
        with running.admin() as admin:
            await wait_until(
                lambda: admin.get(COUNTER) == b"1", within=60, sentence="the server carried it out"
            )
        proxy.cut()
        await wait_until_disconnected(caplog)
        await lane.close()
        with pytest.raises(ConnectionLost):
            await call

    async def test_a_sent_call_without_a_reply_within_its_limit_is_unknown(
        self, open_through_proxy: OpenThroughProxy
    ) -> None:
        lane, proxy = await open_through_proxy(PATIENT)
        await lane.call("PING")
        proxy.hold_replies = True
        with pytest.raises(ConnectionLost, match=r"no reply within 0\.2 s"):
            await lane.call("PING", limit_s=0.2)

    async def test_calls_fail_in_the_order_of_their_limits(
        self, open_through_proxy: OpenThroughProxy
    ) -> None:
        lane, proxy = await open_through_proxy(PATIENT)
        await lane.call("PING")
        proxy.hold_replies = True
        failed: list[str] = []
        calls = [lane.send(pack("PING"), limit_s=limit_s) for limit_s in (0.5, 0.1, 0.3)]
        for call in calls:
            call.add_done_callback(lambda call: failed.append(str(call.exception())))
        await asyncio.wait(calls)
        limits = [re.findall(r"within (\S+) s", text) for text in failed]
        assert limits == [["0.1"], ["0.3"], ["0.5"]]

    async def test_each_call_gets_its_own_error_object(self, start: Start) -> None:
        running = start()
        async with lane_to(running) as lane:
            running.kill()
            await until_lost(lane)
            calls = [lane.send(pack("PING"), limit_s=0.1) for _ in range(5)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert len(set(map(id, errors))) == 5

    @pytest.mark.every_server
    async def test_a_denied_reconnect_fails_waiting_calls(self, start: Start) -> None:
        running = start("--requirepass", "old")
        url = f"redis://:old@127.0.0.1:{running.port}"
        async with await connect(url) as server:
            async with await Lane.open(server, KEY, options=PATIENT) as lane:
                with running.admin(password="old") as admin:  # noqa: S106
                    admin.config_set("requirepass", "new")
                    admin.client_kill_filter(_type="normal", skipme=True)
                async with asyncio.timeout(20):  # it waits for the limit otherwise
                    with pytest.raises(AccessDenied):
                        while True:
                            with suppress(ConnectionLost):
                                await lane.call("PING")

    async def test_a_redirection_after_the_end_starts_no_task(self, lane: Lane) -> None:
        await lane.call("PING")
        connection = lane._connection
        assert connection is not None
        await lane.close()
        before = asyncio.all_tasks()
        call = PendingCall(pack("PING"), future=asyncio.get_running_loop().create_future())
        connection.take(call, as_refusal("ASK 1 127.0.0.1:1"))
        assert asyncio.all_tasks() == before


class TestWaiting:
    async def test_a_blocked_loop_is_not_a_silent_server(self, server: Server) -> None:
        async with await Lane.open(server, KEY, options=IMPATIENT) as lane:
            for _ in range(4):
                call = lane.send(pack("ECHO", bytes(300_000)))
                for _ in range(3):
                    await asyncio.sleep(0)
                time.sleep(1.3 * IMPATIENT.patience_s)  # noqa: ASYNC251 - as a blocking handler does
                assert await call == bytes(300_000)

    async def test_the_silence_of_an_idle_lane_does_not_count(self, server: Server) -> None:
        options = LaneOptions(patience_s=2.0)
        async with await Lane.open(server, KEY, options=options) as lane:
            await lane.call("PING")
            await asyncio.sleep(2.1)  # time itself is the subject
            assert await lane.call("BLPOP", b"none", "0.2") is None  # slow, within the patience

    async def test_a_blocking_read_gives_earlier_calls_no_more_time(
        self, open_through_proxy: OpenThroughProxy
    ) -> None:
        lane, proxy = await open_through_proxy(IMPATIENT)
        await lane.call("PING", repeatable=True)
        proxy.hold_replies = True
        call = lane.send(pack("PING"))
        reading = lane.send(pack("BLPOP", b"none", 30), block_s=30)
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionLost, match="no reply for"):
                await call
        reading.cancel()

    async def test_the_blocking_time_of_a_read_is_added_to_its_limit(self, lane: Lane) -> None:
        assert await lane.call("BLPOP", b"none", 1, block_s=1, limit_s=0.5) is None

    async def test_calls_cancelled_while_the_server_is_down_are_not_kept_in_memory(
        self, start: Start
    ) -> None:
        running = start()
        async with lane_to(running) as lane:
            running.kill()
            await until_lost(lane)
            before = calls_in_memory()
            for _ in range(20):
                lane.send(pack("ECHO", bytes(1000))).cancel()
                await asyncio.sleep(0)
            assert calls_in_memory() < before + 5

    @pytest.mark.every_server
    async def test_calls_wait_for_a_server_that_loads_its_data(self, start: Start) -> None:
        # Reading its file, a server listens after every 1024 commands: here every 0.5 s, for 3 s.
        # Without fsync after every write, a busy disk delays writes, and the file would be short.
        running = start(
            *("--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", "500")
        )
        async with lane_to(running, PATIENT) as lane:
            calls = [lane.send(pack("SET", b"k%d" % n, b"v")) for n in range(6000)]
            await asyncio.gather(*calls)
            for _ in range(5):  # on a busy machine the file may be read before we ask
                running.kill()
                waiting = lane.send(pack("GET", b"k7"), repeatable=True)
                running.restart()
                running.pause()  # so that it cannot read on before our request is there
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(b"GET k7\r\n")
                running.resume()
                reply = await reader.readline()
                writer.close()
                assert await waiting == b"v"
                if reply.startswith(b"-LOADING"):
                    return
        pytest.fail("the server was never asked while it read its file")


class TestReconnecting:
    async def test_repeated_calls_go_before_later_ones(
        self, open_through_proxy: OpenThroughProxy, caplog: pytest.LogCaptureFixture
    ) -> None:
        lane, proxy = await open_through_proxy(LaneOptions(first_pause_s=1.0))
        await lane.call("PING")
        proxy.hold_requests = True
        first = [lane.send(pack("RPUSH", COUNTER, n), repeatable=True) for n in range(3)]
        await wait_until(lambda: proxy.swallowed > 0, within=60, sentence="the calls were lost")
        proxy.cut()
        await wait_until_disconnected(caplog)
        later = [lane.send(pack("RPUSH", COUNTER, n), repeatable=True) for n in range(3, 6)]
        proxy.hold_requests = False
        assert await asyncio.gather(*first, *later) == [1, 2, 3, 4, 5, 6]
        assert await lane.call("LRANGE", COUNTER, 0, -1) == [b"%d" % n for n in range(6)]

    @pytest.mark.every_server
    async def test_a_blocking_read_continues_after_a_failover(self, start: Start) -> None:
        master, running = start(), start()
        async with lane_to(running) as lane:
            reading = lane.send(pack("BLPOP", b"list", 10), block_s=10)
            await wait_until_blocked(running)
            with running.admin() as admin:
                admin.replicaof("127.0.0.1", master.port)
                await asyncio.wait([reading], timeout=0.2)
                assert not reading.done()
                admin.replicaof("NO", "ONE")
                admin.rpush("list", "x")
            assert await asyncio.wait_for(reading, 10) == [b"list", b"x"]

    async def test_a_server_that_refuses_calls_gets_few_connections(self, start: Start) -> None:
        with replica_of_another(start) as replica, replica.admin() as admin:
            async with lane_to(replica, LaneOptions()) as lane:
                before = admin.info("stats")["total_connections_received"]
                write = lane.send(pack("SET", b"a", b"b"))
                until = time.monotonic() + 1.5
                while time.monotonic() < until:
                    with suppress(ServerError):
                        await lane.call("GET", b"a", repeatable=True)
                assert admin.info("stats")["total_connections_received"] - before < 12
                write.cancel()

    async def test_a_connection_that_worked_is_replaced_without_a_long_pause(
        self, server: Server, running: RunningServer
    ) -> None:
        options = LaneOptions(first_pause_s=0.01, longest_pause_s=60.0)
        async with await Lane.open(server, KEY, options=options) as lane:
            with running.admin() as admin:
                async with asyncio.timeout(20):
                    for _ in range(15):
                        admin.client_kill_filter(_type="normal", skipme=True)
                        assert await lane.call("PING", repeatable=True) == b"PONG"

    async def test_a_server_that_hangs_up_on_calls_gets_few_connections(self) -> None:
        accepted = 0

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Answer the handshake, INFO and CLIENT ID, and close at the first real call."""
            nonlocal accepted
            accepted += 1
            while piece := await reader.read(4096):
                if b"PING" in piece:
                    break
                for _ in range(piece.count(b"SETINFO")):
                    writer.write(b"+OK\r\n")
                if b"INFO\r\n$6\r\nserver" in piece:
                    writer.write(b"-NOPERM not for you\r\n")
                if b"ID\r\n" in piece:
                    writer.write(b":1\r\n")
            writer.close()

        listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener, await connect(f"redis://127.0.0.1:{port}") as server:
            async with await Lane.open(server, KEY) as lane:
                call = lane.send(pack("PING"), repeatable=True)
                await asyncio.wait([call], timeout=1.5)
                call.cancel()
        assert 2 < accepted < 15

    async def test_a_reply_without_a_call_ends_the_connection(
        self, open_through_proxy: OpenThroughProxy
    ) -> None:
        lane, proxy = await open_through_proxy()
        await lane.call("PING")
        seen = proxy.accepted
        await proxy.inject(b"+what\r\n")
        await wait_until(lambda: proxy.accepted > seen, within=60, sentence="a new connection")
        assert await lane.call("ECHO", b"in step") == b"in step"
