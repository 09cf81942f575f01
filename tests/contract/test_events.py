"""EventWriter on real servers: events are written in batches and never delay a job."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tampu.events import EVENTS_A_CALL, LINGER_S, MAX_BUFFERED, EventWriter
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tests.conftest import Start
from tests.contract.events import KEY, SOON, active_event, log_lines
from tests.contract.lanes import PATIENT, QUICK, OpenThroughProxy
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


async def numbers_in(lane: Lane) -> list[int]:
    """The numbers of the jobs in the stream, oldest first."""
    reply = await lane.call("XRANGE", KEY, "-", "+", repeatable=True)
    assert isinstance(reply, list)
    return [int(entry[1][3]) for entry in reply]  # type: ignore[index, arg-type]


def script_calls(running: RunningServer) -> int:
    with running.admin() as admin:
        stats = admin.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def own_tasks() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith("tampu-events")]


@pytest.fixture
async def writer(lane: Lane) -> AsyncIterator[EventWriter]:
    writer = EventWriter(lane, KEY)
    yield writer
    await writer.close()
    assert own_tasks() == []


@pytest.fixture
async def warm(writer: EventWriter, lane: Lane, running: RunningServer) -> EventWriter:
    """A writer whose script the server knows; calls are counted from here."""
    writer.tell(active_event(0))
    await writer.flush()
    await lane.call("DEL", KEY)
    with running.admin() as admin:
        admin.config_resetstat()
    return writer


class TestWriting:
    async def test_a_single_event_is_written_without_a_flush(
        self, writer: EventWriter, lane: Lane
    ) -> None:
        for number in range(3):
            writer.tell(active_event(number))

            async def written(count: int = number + 1) -> bool:
                return await lane.call("XLEN", KEY) == count

            await wait_until(written, within=60, sentence="the event is there")

    async def test_events_stay_in_order_through_many_batches(
        self, writer: EventWriter, lane: Lane
    ) -> None:
        for number in range(4000):
            writer.tell(active_event(number))
            if number % 700 == 0:
                await asyncio.sleep(0)
        await writer.flush()
        assert await numbers_in(lane) == list(range(4000))
        assert writer.dropped == 0

    async def test_fields_are_written_unchanged(self, writer: EventWriter, lane: Lane) -> None:
        writer.tell(["e", "drained", "id", "", "ts", "7"])
        await writer.flush()
        reply = await lane.call("XRANGE", KEY, "-", "+")
        assert reply[0][1] == [b"e", b"drained", b"id", b"", b"ts", b"7"]  # type: ignore[index]

    async def test_many_events_take_few_calls(
        self, warm: EventWriter, running: RunningServer
    ) -> None:
        for number in range(3 * EVENTS_A_CALL):
            warm.tell(active_event(number))
        await warm.flush()
        assert script_calls(running) == 3

    async def test_events_in_short_succession_are_joined(
        self, warm: EventWriter, running: RunningServer, lane: Lane
    ) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(100):
            warm.tell(active_event(number))
            await asyncio.sleep(0.0003)  # long enough for a call, so that each could have its own
        await warm.flush()
        took_s = loop.time() - began
        assert await numbers_in(lane) == list(range(100))
        assert script_calls(running) <= took_s / LINGER_S + 2

    async def test_an_event_does_not_wait_long_for_others(
        self, warm: EventWriter, lane: Lane
    ) -> None:
        for number in range(20):
            warm.tell(active_event(number))
            for _ in range(3):  # turns enough for the writer to send, or to wait for more
                await asyncio.sleep(0)

        async def written() -> bool:
            return await lane.call("XLEN", KEY) == 20

        await wait_until(written, within=60, sentence="the last event is there")

    async def test_at_most_two_calls_are_in_flight(
        self, open_through_proxy: OpenThroughProxy
    ) -> None:
        lane, proxy = await open_through_proxy(PATIENT)
        proxy.latency_s = 0.02
        writer = EventWriter(lane, KEY)
        most = 0
        for number in range(6 * EVENTS_A_CALL):
            writer.tell(active_event(number))
        flushing = asyncio.create_task(writer.flush())
        while not flushing.done():
            most = max(most, len(writer._calls))
            await asyncio.sleep(0)
        assert most == 2
        assert await numbers_in(lane) == list(range(6 * EVENTS_A_CALL))
        await writer.close()

    async def test_the_stream_is_trimmed_at_its_maximum_length(self, lane: Lane) -> None:
        writer = EventWriter(lane, KEY, max_len=64)
        for number in range(3000):
            writer.tell(active_event(number))
        await writer.close()
        kept = await numbers_in(lane)
        assert 64 <= len(kept) < 256
        assert kept[-1] == 2999

    async def test_flushing_nothing_makes_no_call(
        self, warm: EventWriter, running: RunningServer
    ) -> None:
        await warm.flush()
        assert script_calls(running) == 0


class TestDropping:
    async def test_if_too_many_wait_the_oldest_are_dropped_and_counted(
        self, writer: EventWriter, lane: Lane, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(MAX_BUFFERED + 700):
            writer.tell(active_event(number))
        assert writer.dropped == 1000
        await writer.flush()
        assert await numbers_in(lane) == list(range(1000, MAX_BUFFERED + 700))
        begin = f"more than 10000 events wait for {KEY.decode()}: dropping the oldest"
        assert log_lines(caplog)[0] == begin

    async def test_each_overflow_is_logged_when_it_begins_and_when_it_ends(
        self, writer: EventWriter, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(2):
            for number in range(3 * MAX_BUFFERED):
                writer.tell(active_event(number))
            await writer.flush()
            writer.tell(active_event(0))
            await wait_until(
                lambda: writer._threshold == 0, within=SOON, sentence="the writer has nothing to do"
            )
        lines = log_lines(caplog)
        assert [line.partition(" events ")[0] for line in lines[::2]] == ["more than 10000"] * 2
        assert all(line.startswith("dropped ") for line in lines[1::2])
        assert len(lines) == 4

    async def test_a_server_without_memory_loses_only_events(
        self, start: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        running = start()
        async with await connect(running.url) as server:
            async with await Lane.open(server, KEY, options=QUICK) as lane:
                writer = EventWriter(lane, KEY)
                for _ in range(2):
                    caplog.clear()
                    await lane.call("CONFIG", "SET", "maxmemory", "1")
                    before = writer.dropped
                    for number in range(1200):
                        writer.tell(active_event(number))
                    await writer.flush()
                    assert writer.dropped - before == 1200
                    (line,) = log_lines(caplog, "tampu.server.outage")
                    assert "is unavailable, retrying: " in line
                    await lane.call("CONFIG", "SET", "maxmemory", "0")
                    writer.tell(active_event(7))
                    await writer.flush()
                    dropped = f"dropped 1200 events for {KEY.decode()}; events are written again"
                    assert log_lines(caplog) == [dropped]
                    assert "is available again" in log_lines(caplog, "tampu.server.outage")[1]
                await writer.close()
                assert await numbers_in(lane) == [7, 7]

    async def test_a_lost_connection_loses_only_events_in_flight(
        self, open_through_proxy: OpenThroughProxy
    ) -> None:
        lane, proxy = await open_through_proxy()
        writer = EventWriter(lane, KEY)
        proxy.hold_requests = True
        for number in range(600):
            writer.tell(active_event(number))
        await wait_until(lambda: proxy.swallowed > 0, within=SOON, sentence="it was sent")
        proxy.hold_requests = False
        proxy.cut()
        await writer.flush()
        writer.tell(active_event(1000))
        await writer.flush()
        kept = await numbers_in(lane)
        assert kept[-1] == 1000
        assert len(kept) + writer.dropped == 601
        assert writer.dropped >= 100
        await writer.close()

    async def test_a_closed_lane_never_raises(self, lane: Lane) -> None:
        writer = EventWriter(lane, KEY)
        await lane.close()
        writer.tell(active_event(1))
        await writer.flush()
        await writer.close()
        assert writer.dropped == 1


class TestClosing:
    async def test_closing_writes_waiting_events(self, lane: Lane) -> None:
        writer = EventWriter(lane, KEY)
        for number in range(1700):
            writer.tell(active_event(number))
        await writer.close()
        await writer.close()
        assert await numbers_in(lane) == list(range(1700))
        assert own_tasks() == []

    async def test_events_after_closing_are_dropped(self, writer: EventWriter, lane: Lane) -> None:
        await writer.close()
        writer.tell(active_event(1))
        writer.tell(active_event(2))
        await writer.flush()
        assert writer.dropped == 2
        assert await lane.call("EXISTS", KEY) == 0
        assert own_tasks() == []

    async def test_closing_does_not_wait_for_a_server_that_does_not_answer(
        self, open_through_proxy: OpenThroughProxy
    ) -> None:
        lane, proxy = await open_through_proxy(PATIENT)
        writer = EventWriter(lane, KEY)
        proxy.hold_requests = True
        for number in range(2000):
            writer.tell(active_event(number))
        await asyncio.wait_for(writer.close(), 20)
        assert writer.dropped == 2000
        assert own_tasks() == []
