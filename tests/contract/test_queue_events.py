"""QueueEvents on real servers: no event is missed or repeated."""

import asyncio
from datetime import UTC, datetime

import pytest

from tampu.errors import OptionError, ServerError, ServerUnreachable, WrongContext
from tampu.events import EventWriter, QueueEvents, job_event
from tampu.job import JobEvent
from tampu.server.lane import Lane
from tampu.server.scripts.settling import emit
from tampu.wire.event import EventKind, encode_event, pack_events
from tests.conftest import Start
from tests.contract.events import KEY, SOON, active_event, log_lines
from tests.servers import RunningServer
from tests.waiting import wait_until


def own_tasks() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith("tampu-")]


async def collect(events: QueueEvents, count: int) -> list[JobEvent]:
    async with asyncio.timeout(SOON):
        return [await anext(events) for _ in range(count)]


@pytest.mark.every_server
class TestReading:
    async def test_an_event_has_all_its_fields(self, running: RunningServer, lane: Lane) -> None:
        failed = encode_event(
            EventKind.FAILED,
            job_id="a",
            ts_ms=1_794_725_043_642,
            name="welcome",
            attempt=2,
            reason="404",
            duration_us=17,
        )
        async with QueueEvents("events", running.url) as events:
            await emit(lane, KEY, pack_events([failed]), max_len=1000)
            (event,) = await collect(events, 1)
        assert (event.kind, event.job_id, event.name) == (EventKind.FAILED, "a", "welcome")
        assert event.at == datetime(2026, 11, 15, 6, 44, 3, 642_000, tzinfo=UTC)
        assert event.attempt == 2
        assert event.fields == {"attempt": 2, "reason": "404", "duration_us": 17}
        reply = await lane.call("XRANGE", KEY, "-", "+")
        assert event.id.encode() == reply[0][0]  # type: ignore[index]

    async def test_missing_fields_are_empty_and_unknown_kinds_stay_text(
        self, running: RunningServer, lane: Lane
    ) -> None:
        async with QueueEvents("events", running.url) as events:
            await lane.call("XADD", KEY, "*", "e", "waiting", "id", "a", "ts", "5")
            await lane.call("XADD", KEY, "*", "e", "stalled", "id", "a", "ts", "soon", "prev", "x")
            await lane.call("XADD", KEY, "*", "junk", b"\xff\xfe")
            waiting, stalled, junk = await collect(events, 3)
        assert (waiting.kind, waiting.name, waiting.attempt) == (EventKind.WAITING, "", None)
        assert waiting.fields == {}
        assert (stalled.kind, stalled.fields) == ("stalled", {"prev": "x"})
        assert (datetime.now(UTC) - stalled.at).total_seconds() < 60, "the server's clock serves"
        assert (junk.kind, junk.job_id) == ("", "")

    async def test_no_event_is_missed_after_entering(
        self, running: RunningServer, lane: Lane
    ) -> None:
        for number in range(50):
            async with QueueEvents("events", running.url) as events:
                await emit(lane, KEY, pack_events([active_event(number)]), max_len=1000)
                (event,) = await collect(events, 1)
                assert event.job_id == str(number), "neither earlier ones nor none"

    async def test_an_event_arrives_as_soon_as_it_is_written(
        self, running: RunningServer, lane: Lane
    ) -> None:
        async with QueueEvents("events", running.url) as events:
            task = asyncio.create_task(anext(events))
            await _until_blocked(running)
            await emit(lane, KEY, pack_events([active_event(1)]), max_len=1000)
            assert (await asyncio.wait_for(task, 10)).job_id == "1"

    async def test_reading_starts_after_the_given_event(
        self, running: RunningServer, lane: Lane
    ) -> None:
        await emit(
            lane,
            KEY,
            pack_events([active_event(1), active_event(2), active_event(3)]),
            max_len=1000,
        )
        async with QueueEvents("events", running.url, after="0") as events:
            first, second, third = await collect(events, 3)
        assert [first.job_id, second.job_id, third.job_id] == ["1", "2", "3"]
        async with QueueEvents("events", running.url, after=first.id) as events:
            assert await collect(events, 2) == [second, third]

    @pytest.mark.parametrize("after", ["", "$", "soon", "1-", "-1", "1-2-3", "٣"])
    def test_an_invalid_event_id_is_refused(self, after: str) -> None:
        with pytest.raises(OptionError, match="after"):
            QueueEvents("events", after=after)

    async def test_all_events_are_read_in_order(self, running: RunningServer, lane: Lane) -> None:
        async with QueueEvents("events", running.url) as events:
            writer = EventWriter(lane, KEY)
            for number in range(5000):
                writer.tell(active_event(number))
            got = await collect(events, 5000)
            await writer.close()
        assert [int(event.job_id) for event in got] == list(range(5000))


async def _until_blocked(running: RunningServer) -> None:
    def blocked() -> bool:
        with running.admin() as admin:
            return int(admin.info("clients")["blocked_clients"]) == 1

    await wait_until(blocked, within=SOON, sentence="the read waits at the server")


def write_by_hand(running: RunningServer, number: int) -> None:
    with running.admin() as admin:
        admin.execute_command("XADD", KEY, "*", *active_event(number))


class TestEnding:
    async def test_closing_ends_the_iteration(self, running: RunningServer) -> None:
        async with QueueEvents("events", running.url) as events:

            async def consume() -> list[JobEvent]:
                return [event async for event in events]

            task = asyncio.create_task(consume())
            await _until_blocked(running)
            write_by_hand(running, 1)
            await _until_blocked(running)
            await events.close()
            assert [event.job_id for event in await asyncio.wait_for(task, 10)] == ["1"]
            with pytest.raises(StopAsyncIteration):
                await anext(events)
        assert own_tasks() == []

    async def test_a_cancelled_consumer_leaves_nothing_open(self, running: RunningServer) -> None:
        async def consume() -> None:
            async with QueueEvents("events", running.url) as events:
                async for _ in events:
                    pass

        task = asyncio.create_task(consume())
        await _until_blocked(running)
        task.cancel()
        await asyncio.wait([task], timeout=10)
        assert task.cancelled()
        assert own_tasks() == []

    async def test_a_consumer_that_stops_waiting_misses_nothing(
        self, running: RunningServer
    ) -> None:
        async with QueueEvents("events", running.url) as events:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(events), 0.02)
            for number in range(3):
                write_by_hand(running, number)
                assert (await asyncio.wait_for(anext(events), 10)).job_id == str(number)

    async def test_reading_outside_of_async_with_is_an_error(self) -> None:
        with pytest.raises(WrongContext, match="async with QueueEvents"):
            await anext(QueueEvents("events"))

    async def test_entering_raises_if_the_server_cannot_be_reached(self, start: Start) -> None:
        running = start()
        running.kill()
        with pytest.raises(ServerUnreachable):
            async with QueueEvents("events", running.url):
                pass

    async def test_entering_that_fails_halfway_leaves_nothing_open(
        self, running: RunningServer
    ) -> None:
        with running.admin() as admin:
            admin.set(KEY, "no stream")
        with pytest.raises(ServerError, match="WRONGTYPE"):
            async with QueueEvents("events", running.url):
                pass
        assert own_tasks() == []


@pytest.mark.every_server
class TestTrouble:
    async def test_killed_connections_lose_and_repeat_no_event(
        self, running: RunningServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with QueueEvents("events", running.url) as events:
            task = asyncio.create_task(collect(events, 200))
            for number in range(200):
                if number % 20 == 0:
                    await _until_blocked(running)
                    with running.admin() as admin:
                        admin.client_kill_filter(_type="normal", skipme=True)
                write_by_hand(running, number)
            assert [int(event.job_id) for event in await task] == list(range(200))
        lines = log_lines(caplog, "tampu.server.outage")
        assert any("is unavailable, retrying: " in line for line in lines)

    async def test_a_restart_of_the_server_loses_no_event(self, start: Start) -> None:
        running = start("--appendonly", "yes", "--appendfsync", "always")
        async with QueueEvents("events", running.url) as events:
            write_by_hand(running, 0)
            task = asyncio.create_task(collect(events, 3))
            await _until_blocked(running)
            write_by_hand(running, 1)
            running.kill()
            running.restart()
            write_by_hand(running, 2)
            assert [event.job_id for event in await task] == ["0", "1", "2"]

    async def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
        self, running: RunningServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with QueueEvents("events", running.url) as events:
            with running.admin() as admin:
                admin.set(KEY, "no stream")
                admin.config_resetstat()

                def refused() -> bool:
                    stats = admin.info("commandstats")
                    return int(stats.get("cmdstat_xread", {"calls": 0})["calls"]) >= 3

                task = asyncio.create_task(collect(events, 1))
                await wait_until(refused, within=SOON, sentence="it tries again")
                admin.delete(KEY)
            write_by_hand(running, 5)
            assert (await task)[0].job_id == "5"
        began, ended = log_lines(caplog, "tampu.server.outage")
        assert began.startswith(f"reading events from {KEY.decode()} failed, retrying: ")
        assert ended == f"reading events from {KEY.decode()} works again"


class TestJobEvent:
    @pytest.mark.parametrize("flat", [[b"odd"], [], None, [b"e", b"active", b"id"]])
    def test_an_unreadable_entry_is_an_event_without_a_kind(self, flat: list[bytes] | None) -> None:
        event = job_event(b"1794725043642-0", flat)
        assert (event.kind, event.job_id, event.fields) == ("", "", {})
        assert event.at.year == 2026

    @pytest.mark.parametrize("ts", [b"9" * 20, b"-5", b"soon", b"", b"253402300800000"])
    def test_an_invalid_time_is_replaced_by_the_server_s(self, ts: bytes) -> None:
        event = job_event(b"1794725043642-0", [b"e", b"active", b"ts", ts])
        assert event.at == datetime(2026, 11, 15, 6, 44, 3, 642_000, tzinfo=UTC)
        assert job_event(b"18446744073709551615-0", [b"ts", ts]).at.year == 1970

    def test_numeric_fields_are_numbers_and_others_stay_text(self) -> None:
        event = job_event(b"1-0", [b"e", b"delayed", b"id", b"a", b"ts", b"1", b"delay_ms", b"60"])
        assert event.fields == {"delay_ms": 60}
        odd = job_event(b"1-0", [b"e", b"active", b"attempt", b"one"])
        assert (odd.attempt, odd.fields) == (None, {"attempt": "one"})
