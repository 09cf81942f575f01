"""Results on real servers: cancelled waits, closing, lost connections and restarts."""

import asyncio
import logging
from contextlib import suppress

import pytest

from tampu.errors import Closed, CommandRefused, ConnectionLost, ServerUnreachable
from tampu.results import ResultReader
from tampu.server import listening
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.server.listening import SharedParts
from tampu.wire.result import encode_result
from tests.conftest import Start
from tests.contract.results import KEYS, SOON, ManualWorker, calls, readers, store, waiting
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


class TestLeaving:
    async def test_cancelled_waits_leave_nothing_behind(
        self,
        reader: ResultReader,
        manual: ManualWorker,
        running: RunningServer,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        tasks = await waiting(reader, running, [f"job-{n % 50}" for n in range(200)])
        stays = asyncio.create_task(reader.wait("job-7", SOON))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert reader._waiters.all_ids() == ["job-7"]
        await manual.finish({f"job-{n}": n for n in range(50)})
        assert await stays == 7
        assert len(reader._waiters) == 0
        assert not [record for record in caplog.records if record.name == "asyncio"]

    async def test_waits_cancelled_at_any_moment_leave_nothing_behind(
        self, server: Server, manual: ManualWorker
    ) -> None:
        for steps in range(40):
            reader = ResultReader(SharedParts(server), KEYS)
            task = asyncio.create_task(reader.wait("a", SOON))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert len(reader._waiters) == 0
            await reader.close()
        assert readers() == 0
        assert sum(task.get_name() == "tampu-lane" for task in asyncio.all_tasks()) == 1
        await manual.finish({"a": 1})

    async def test_waits_that_time_out_leave_nothing_behind(self, reader: ResultReader) -> None:
        waits = [reader.wait("a", 0.05) for _ in range(20)]
        await asyncio.gather(*waits, return_exceptions=True)
        assert len(reader._waiters) == 0

    async def test_closing_raises_closed_in_every_wait(
        self, reader: ResultReader, running: RunningServer
    ) -> None:
        tasks = await waiting(reader, running, ["a", "b"])
        await reader.close()
        for task in tasks:
            with pytest.raises(Closed):
                await task
        with pytest.raises(Closed):
            await reader.wait("a", 1)
        with pytest.raises(Closed):
            await reader.get_many(["a"])
        await reader.close()
        with running.admin() as admin:
            assert int(admin.info("clients")["blocked_clients"]) == 0

    async def test_closing_during_the_first_read_leaves_nothing_behind(
        self, server: Server
    ) -> None:
        for steps in range(30):
            reader = ResultReader(SharedParts(server), KEYS)
            task = asyncio.create_task(reader.wait("a", 2))
            for _ in range(steps):
                await asyncio.sleep(0)
            await reader.close()
            with pytest.raises((Closed, ConnectionLost)):
                await task
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("tampu")]


class TestTrouble:
    async def test_waits_survive_killed_connections(
        self,
        reader: ResultReader,
        running: RunningServer,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.WARNING, "tampu.server.outage")
        tasks = await waiting(reader, running, [f"job-{n}" for n in range(10)])
        for n in range(10):
            with running.admin() as admin:
                admin.client_kill_filter(_type="normal", skipme=True)
            store(running, f"job-{n}", n)
        assert await asyncio.gather(*tasks) == list(range(10))
        assert "is unavailable, retrying: " in caplog.text

    async def test_a_result_from_an_outage_is_found_without_its_notice(
        self, running: RunningServer, manual: ManualWorker, lane: Lane
    ) -> None:
        async with Proxy(running.port) as proxy, await connect(proxy.url) as server:
            reader = ResultReader(SharedParts(server), KEYS)
            (task,) = await waiting(reader, running, ["a"])
            proxy.hold_requests = True
            proxy.cut()
            await manual.finish({"a": 3})
            await lane.call("DEL", KEYS.notices)
            proxy.hold_requests = False
            proxy.cut()
            assert await asyncio.wait_for(task, 10) == 3
            await reader.close()

    async def test_waits_survive_a_restart_of_the_server(self, start: Start) -> None:
        running = start("--appendonly", "yes", "--appendfsync", "always")
        async with await connect(running.url) as server:
            reader = ResultReader(SharedParts(server), KEYS)
            store(running, "before", 1)
            (task,) = await waiting(reader, running, ["after"])
            running.kill()
            running.restart()
            store(running, "after", 2)
            assert await task == 2
            assert await reader.wait("before", SOON) == 1
            await reader.close()

    async def test_the_reader_survives_refusals_and_logs_the_outage(
        self,
        reader: ResultReader,
        lane: Lane,
        running: RunningServer,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(listening, "_TRY_AGAIN_S", 0.05)
        (task,) = await waiting(reader, running, ["a"])
        with running.admin() as admin:
            admin.set(KEYS.notices, "no stream")
            admin.client_kill_filter(_type="normal", skipme=True)
        await wait_until(
            lambda: calls(running, "xrevrange") >= 4, within=SOON, sentence="it tries again"
        )
        assert caplog.text.count(f"nothing arrives on {KEYS.notices.decode()}") == 1
        await lane.call("DEL", KEYS.notices)
        await lane.call("SET", KEYS.result("a"), encode_result(7, max_bytes=9))
        assert await asyncio.wait_for(task, 30) == 7

    async def test_a_failed_first_read_raises_in_its_caller(
        self, reader: ResultReader, lane: Lane
    ) -> None:
        await lane.call("SET", KEYS.notices, "no stream")
        with pytest.raises(CommandRefused, match="WRONGTYPE"):
            await reader.wait("a", 1)
        assert len(reader._waiters) == 0

    async def test_an_unreachable_server_raises_within_the_timeout(self, start: Start) -> None:
        running = start()
        async with await connect(running.url) as server:
            reader = ResultReader(SharedParts(server), KEYS)
            running.kill()
            with pytest.raises(ServerUnreachable):
                await asyncio.wait_for(reader.wait("a", 1), 10)
            await reader.close()

    async def test_waits_for_a_silent_server_time_out_together(self, start: Start) -> None:
        running = start()
        async with await connect(running.url) as server:
            reader = ResultReader(SharedParts(server), KEYS)
            running.pause()
            waits = [reader.wait(f"job-{n}", 1) for n in range(30)]
            outcomes = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 20)
            assert all(isinstance(outcome, ServerUnreachable) for outcome in outcomes)
            running.resume()
            await reader.close()
