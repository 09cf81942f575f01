"""Events on real servers: written in batches, and never in anybody's way."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tampu.events import EVENTS_A_CALL, LINGER_S, MAX_BUFFERED, EventWriter
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.event import EventFields, encode_active
from tampu.wire.keys import QueueKeys
from tests.conftest import Start
from tests.contract.lanes import PATIENT, QUICK, Through
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

KEY = QueueKeys("events").events
SOON = 10.0


def told(number: int) -> EventFields:
    """The event of a job with this number as its id."""
    return encode_active(str(number), "1794725043642", "job", 1)


async def numbers_in(lane: Lane) -> list[int]:
    """The numbers of the jobs in the stream, oldest first."""
    reply = await lane.call("XRANGE", KEY, "-", "+", repeatable=True)
    assert isinstance(reply, list)
    return [int(entry[1][3]) for entry in reply]  # type: ignore[index, arg-type]


def script_calls(running: RunningServer) -> int:
    with running.admin() as admin:
        stats = admin.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "tampu.events"]


def own_tasks() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith("tampu-events")]


@pytest.fixture
async def writer(lane: Lane) -> AsyncIterator[EventWriter]:
    opened = EventWriter(lane, KEY)
    yield opened
    await opened.close()
    assert own_tasks() == []


@pytest.fixture
async def warm(writer: EventWriter, lane: Lane, running: RunningServer) -> EventWriter:
    """A writer whose script the server knows, and no calls counted yet."""
    writer.tell(told(0))
    await writer.flush()
    await lane.call("DEL", KEY)
    with running.admin() as admin:
        admin.config_resetstat()
    return writer


class TestWriting:
    async def test_a_single_event_is_written_without_being_flushed(
        self, writer: EventWriter, lane: Lane
    ) -> None:
        for number in range(3):
            writer.tell(told(number))

            async def written(count: int = number + 1) -> bool:
                return await lane.call("XLEN", KEY) == count

            await wait_until(written, within=10, sentence="the event is there")

    async def test_events_stay_in_order_through_many_batches(
        self, writer: EventWriter, lane: Lane
    ) -> None:
        for number in range(4000):
            writer.tell(told(number))
            if number % 700 == 0:
                await asyncio.sleep(0)
        await writer.flush()
        assert await numbers_in(lane) == list(range(4000))
        assert writer.dropped == 0

    async def test_the_fields_arrive_as_they_were_told(
        self, writer: EventWriter, lane: Lane
    ) -> None:
        writer.tell(["e", "drained", "id", "", "ts", "7"])
        await writer.flush()
        reply = await lane.call("XRANGE", KEY, "-", "+")
        assert reply[0][1] == [b"e", b"drained", b"id", b"", b"ts", b"7"]  # type: ignore[index]

    async def test_events_told_together_travel_together(
        self, warm: EventWriter, running: RunningServer
    ) -> None:
        for number in range(3 * EVENTS_A_CALL):
            warm.tell(told(number))
        await warm.flush()
        assert script_calls(running) == 3

    async def test_events_told_shortly_after_one_another_are_joined(
        self, warm: EventWriter, running: RunningServer, lane: Lane
    ) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(100):
            warm.tell(told(number))
            await asyncio.sleep(0.0003)  # long enough for a call, so that each could have its own
        await warm.flush()
        took_s = loop.time() - began
        assert await numbers_in(lane) == list(range(100))
        assert script_calls(running) <= took_s / LINGER_S + 2

    async def test_an_event_that_waits_for_more_does_not_wait_long(
        self, warm: EventWriter, lane: Lane
    ) -> None:
        for number in range(20):
            warm.tell(told(number))
            for _ in range(3):  # turns enough for the writer to send, or to wait for more
                await asyncio.sleep(0)

        async def written() -> bool:
            return await lane.call("XLEN", KEY) == 20

        await wait_until(written, within=10, sentence="the last event is there")

    async def test_at_most_two_calls_are_in_flight(self, through: Through) -> None:
        lane, proxy = await through(PATIENT)
        proxy.latency_s = 0.02
        writer = EventWriter(lane, KEY)
        most = 0
        for number in range(6 * EVENTS_A_CALL):
            writer.tell(told(number))
        flushing = asyncio.create_task(writer.flush())
        while not flushing.done():
            most = max(most, len(writer._calls))
            await asyncio.sleep(0)
        assert most == 2
        assert await numbers_in(lane) == list(range(6 * EVENTS_A_CALL))
        await writer.close()

    async def test_the_stream_does_not_grow_past_its_cap(self, lane: Lane) -> None:
        writer = EventWriter(lane, KEY, max_len=64)
        for number in range(3000):
            writer.tell(told(number))
        await writer.close()
        kept = await numbers_in(lane)
        assert 64 <= len(kept) < 256
        assert kept[-1] == 2999

    async def test_flushing_nothing_asks_nobody(
        self, warm: EventWriter, running: RunningServer
    ) -> None:
        await warm.flush()
        assert script_calls(running) == 0


class TestDropping:
    async def test_when_too_many_wait_the_oldest_are_dropped_and_counted(
        self, writer: EventWriter, lane: Lane, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(MAX_BUFFERED + 700):
            writer.tell(told(number))
        assert writer.dropped == 1000
        await writer.flush()
        assert await numbers_in(lane) == list(range(1000, MAX_BUFFERED + 700))
        assert said(caplog) == ["more events than can be written: the oldest are dropped"]

    async def test_each_episode_of_too_many_is_logged_once(
        self, writer: EventWriter, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(2):
            for number in range(3 * MAX_BUFFERED):
                writer.tell(told(number))
            await writer.flush()
            writer.tell(told(0))
            await wait_until(
                lambda: writer._alarm == 0, within=SOON, sentence="the writer has nothing to do"
            )
        assert len(said(caplog)) == 2

    async def test_a_server_without_memory_costs_events_and_nothing_else(
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
                        writer.tell(told(number))
                    await writer.flush()
                    assert writer.dropped - before == 1200
                    assert said(caplog) == ["events cannot be written"]
                    await lane.call("CONFIG", "SET", "maxmemory", "0")
                    writer.tell(told(7))
                    await writer.flush()
                await writer.close()
                assert await numbers_in(lane) == [7, 7]

    async def test_a_lost_connection_costs_what_was_in_flight_and_the_rest_goes_on(
        self, through: Through
    ) -> None:
        lane, proxy = await through()
        writer = EventWriter(lane, KEY)
        proxy.hold_requests = True
        for number in range(600):
            writer.tell(told(number))
        await wait_until(lambda: proxy.swallowed > 0, within=SOON, sentence="it was sent")
        proxy.hold_requests = False
        proxy.cut()
        await writer.flush()
        writer.tell(told(1000))
        await writer.flush()
        kept = await numbers_in(lane)
        assert kept[-1] == 1000
        assert len(kept) + writer.dropped == 601
        assert writer.dropped >= 100
        await writer.close()

    async def test_nothing_told_ever_raises_on_a_lane_that_is_closed(self, lane: Lane) -> None:
        writer = EventWriter(lane, KEY)
        await lane.close()
        writer.tell(told(1))
        await writer.flush()
        await writer.close()
        assert writer.dropped == 1


class TestClosing:
    async def test_closing_writes_what_was_told(self, lane: Lane) -> None:
        writer = EventWriter(lane, KEY)
        for number in range(1700):
            writer.tell(told(number))
        await writer.close()
        await writer.close()
        assert await numbers_in(lane) == list(range(1700))
        assert own_tasks() == []

    async def test_what_is_told_after_closing_is_dropped(
        self, writer: EventWriter, lane: Lane
    ) -> None:
        await writer.close()
        writer.tell(told(1))
        writer.tell(told(2))
        await writer.flush()
        assert writer.dropped == 2
        assert await lane.call("EXISTS", KEY) == 0
        assert own_tasks() == []

    async def test_closing_does_not_wait_for_a_server_that_does_not_answer(
        self, through: Through
    ) -> None:
        lane, proxy = await through(PATIENT)
        writer = EventWriter(lane, KEY)
        proxy.hold_requests = True
        for number in range(2000):
            writer.tell(told(number))
        await asyncio.wait_for(writer.close(), 8)
        assert writer.dropped == 2000
        assert own_tasks() == []
