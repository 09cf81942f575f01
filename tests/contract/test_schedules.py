"""Schedules as a queue stores them and tells of them; nobody fires here."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tampu import (
    At,
    Backoff,
    Cron,
    EncodeError,
    Every,
    Missed,
    OptionError,
    Overlap,
    Queue,
    SyncQueue,
    TimeWindow,
)
from tampu.errors import DecodeError
from tampu.timing import Rule
from tampu.util.clock import instant
from tampu.wire.schedule_reader import decode_spec
from tests.contract.queues import waiting
from tests.contract.schedules import arm, fields, now_ms, score, store_raw, the
from tests.contract.workers import KEYS, QUEUE, Crew
from tests.golden.chasquimq import golden
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server

HOUR_MS = 3_600_000
NINE = Cron("0 9 * * 1-5", tz="Europe/Berlin")


class TestStoring:
    async def test_a_schedule_is_told_as_it_was_given(self, crew: Crew) -> None:
        window = TimeWindow(tz="Europe/Berlin", days="mon-fri")
        end = datetime.now(UTC) + timedelta(days=99)
        told = await crew.queue.schedule(
            "digest",
            NINE,
            {"to": "ada"},
            key="daily",
            missed=Missed.all(max=5).within(grace=9),
            overlap=Overlap.SKIP,
            window=window,
            limit=100,
            end=end,
            attempts=3,
            backoff=Backoff.fixed(2),
            timeout="1m",
        )
        assert (told.key, told.name, told.rule, told.data) == (
            "daily",
            "digest",
            NINE,
            {"to": "ada"},
        )
        assert told.next_at == (await crew.queue.preview(NINE, 1))[0]
        assert (told.settings.limit, told.settings.window) == (100, window)
        assert told.settings.missed == Missed.all(max=5).within(grace=9)
        assert await crew.queue.schedules() == [told]

    async def test_a_peer_can_read_its_part(self, crew: Crew) -> None:
        told = await crew.queue.schedule(
            "tick", Every("1m"), {"x": 1}, limit=2, missed=Missed.ONCE, overlap=Overlap.SKIP
        )
        assert told.key == "tick::every:60000"
        stored = fields(crew, told.key)
        assert set(stored) == {b"spec", b"tampu"}
        spec = decode_spec(stored[b"spec"])
        assert stored[b"spec"][0] == 0x99, "an array of nine"
        assert spec.slot == bytes.fromhex("c40481a17801")
        assert (spec.limit, spec.fired) == (2, 0)
        assert told.next_at == instant(score(crew, told.key) or 0)

    async def test_the_server_s_clock_decides(self, crew: Crew) -> None:
        before = crew.admin.time()
        told = await crew.queue.schedule("tick", Every("1h"))
        assert told.next_at is not None
        late_s = told.next_at.timestamp() - 3600 - before[0] - before[1] / 1e6
        assert -0.01 < late_s < 60

    @pytest.mark.parametrize(
        ("option", "rule", "given"),
        [
            ("rule", At(datetime.now(UTC)), {}),
            ("overlap", Every(1), {"overlap": Overlap.CANCEL_RUNNING}),
            ("end", Every("1h"), {"end": datetime.now(UTC)}),
            ("end", Cron("0 0 1 1 *"), {"end": datetime.now(UTC)}),
            ("jitter", Every(1), {"jitter": 2}),
            ("every", Every(1), {"every": 2}),
            ("key", Every(1), {"key": ""}),
        ],
    )
    async def test_what_cannot_be_is_named_and_nothing_is_stored(
        self, crew: Crew, option: str, rule: Rule, given: dict[str, Any]
    ) -> None:
        with pytest.raises(OptionError) as refusal:
            await crew.queue.schedule("tick", rule, **given)
        assert refusal.value.option == option
        assert crew.admin.keys("*repeat*") == []

    async def test_a_name_or_data_that_cannot_be_is_refused(self, crew: Crew) -> None:
        with pytest.raises(OptionError, match="name"):
            await crew.queue.schedule("n" * 257, Every(1))
        with pytest.raises(EncodeError):
            await crew.queue.schedule("tick", Every(1), object())


class TestStoringAgain:
    async def test_the_same_rule_keeps_its_place_and_its_counts(self, crew: Crew) -> None:
        first = await crew.queue.schedule("tick", Every("1h"), 1, key="k")
        crew.admin.hset(KEYS.spec("k"), "fired", 7)
        again = await crew.queue.schedule("tock", Every("1h"), 2, key="k", limit=9)
        assert again.next_at == first.next_at
        assert (again.name, again.data, again.counts.fired) == ("tock", 2, 7)
        assert again == await the(crew, "k")

    async def test_another_rule_begins_anew(self, crew: Crew) -> None:
        await crew.queue.schedule("tick", Every("1h"), key="k")
        crew.admin.hset(KEYS.spec("k"), mapping={"fired": 7, "missed": 3, "last": "1-1"})
        again = await crew.queue.schedule("tick", Every("2h"), key="k")
        assert again.counts.fired == again.counts.missed == 0
        assert set(fields(crew, "k")) == {b"spec", b"tampu"}
        assert len(await crew.queue.schedules()) == 1

    async def test_a_peer_s_schedule_keeps_its_place_when_it_becomes_ours(self, crew: Crew) -> None:
        spec = bytes.fromhex(golden("specs")[0].values[0]["spec_hex"])
        read = decode_spec(spec)
        store_raw(crew, read.key, spec, at_ms := now_ms() + 12_345)
        rule = (await the(crew, read.key)).rule
        assert rule is not None
        again = await crew.queue.schedule(read.job_name, rule, key=read.key)
        assert again.next_at == instant(at_ms)

    async def test_settings_of_ours_end_when_a_peer_stores_another_spec(self, crew: Crew) -> None:
        await crew.queue.schedule("tick", Every(10), key="k", jitter=5, attempts=2)
        other = await crew.queue.schedule("tick", Every(20), key="other")
        spec = fields(crew, "other")[b"spec"]
        store_raw(crew, "k", spec, now_ms())
        told = await the(crew, "k")
        assert (told.settings.jitter, told.settings.attempts) == (None, None)
        assert told.name == other.name

    async def test_one_that_cannot_be_read_can_be_replaced(self, crew: Crew) -> None:
        store_raw(crew, "k", b"nonsense", 1)
        told = await crew.queue.schedule("tick", Every("1h"), key="k")
        assert told.problem is None
        assert await crew.queue.schedules() == [told]

    async def test_what_a_peer_left_behind_of_one_does_not_count(self, crew: Crew) -> None:
        first = await crew.queue.schedule("tick", Every("1h"), key="k")
        crew.admin.zrem(KEYS.repeat, "k")
        crew.admin.hset(KEYS.spec("k"), "fired", 7)
        again = await crew.queue.schedule("tick", Every("1h"), key="k")
        assert again.counts.fired == 0
        assert again.next_at is not None
        assert first.next_at is not None
        assert again.next_at >= first.next_at

    async def test_many_that_store_one_schedule_at_once_agree(self, crew: Crew) -> None:
        stored = [crew.queue.schedule("tick", Every("1h"), n, key="k") for n in range(20)]
        told = await asyncio.gather(*stored)
        assert len({each.next_at for each in told}) == 1
        assert (await the(crew, "k")).next_at == told[0].next_at


class TestPausing:
    async def test_a_paused_one_is_out_of_reach_of_every_scheduler(self, crew: Crew) -> None:
        await crew.queue.schedule("tick", Every("1h"), key="k")
        assert await crew.queue.pause("k") is True
        assert score(crew, "k") is None
        told = await the(crew, "k")
        assert told.paused
        assert (await crew.queue.counts()).schedules == 1
        assert await crew.queue.pause("k") is False

    async def test_what_passed_is_counted_and_not_made_up_for(self, crew: Crew) -> None:
        told = await crew.queue.schedule("tick", Every("1h"), key="k", missed=Missed.all())
        assert told.next_at is not None
        next_ms = round(told.next_at.timestamp() * 1000)
        arm(crew, "k", next_ms - 5 * HOUR_MS)
        await crew.queue.pause("k")
        assert await crew.queue.resume("k") is True
        assert score(crew, "k") == next_ms
        told = await the(crew, "k")
        assert (told.counts.paused, told.paused) == (5, False)

    async def test_one_that_was_resumed_in_time_keeps_its_instant(self, crew: Crew) -> None:
        told = await crew.queue.schedule("tick", Every("1h"), key="k")
        await crew.queue.pause("k")
        await crew.queue.resume("k")
        assert await the(crew, "k") == told

    async def test_storing_it_again_leaves_it_paused(self, crew: Crew) -> None:
        await crew.queue.schedule("tick", Every("1h"), key="k")
        await crew.queue.pause("k")
        for rule in (Every("1h"), Every("2h")):
            assert (await crew.queue.schedule("tick", rule, key="k")).paused
            assert score(crew, "k") is None

    async def test_one_whose_end_has_passed_is_removed(self, crew: Crew) -> None:
        end = datetime.now(UTC) + timedelta(hours=1, seconds=5)
        told = await crew.queue.schedule("tick", Every("1h"), key="k", end=end)
        assert told.next_at is not None
        await crew.queue.pause("k")
        passed_ms = round(told.next_at.timestamp() * 1000) - HOUR_MS
        crew.admin.zadd(KEYS.paused, {"k": passed_ms})
        spec = fields(crew, "k")[b"spec"]
        early = spec.replace(b"\xcf" + round(end.timestamp() * 1000).to_bytes(8, "big"), b"\x01")
        assert early != spec
        crew.admin.hset(KEYS.spec("k"), "spec", early)
        assert await crew.queue.resume("k") is True
        assert await crew.queue.schedules() == []

    async def test_there_must_be_one(self, crew: Crew) -> None:
        assert await crew.queue.pause("k") is False
        assert await crew.queue.resume("k") is False
        await crew.queue.schedule("tick", Every("1h"), key="k")
        assert await crew.queue.resume("k") is False

    async def test_one_that_cannot_be_read_can_be_paused_and_resumed(self, crew: Crew) -> None:
        store_raw(crew, "k", b"nonsense", 123)
        assert await crew.queue.pause("k") is True
        assert await crew.queue.resume("k") is True
        assert score(crew, "k") == 123

    async def test_one_that_a_peer_has_removed_is_gone(self, crew: Crew) -> None:
        await crew.queue.schedule("tick", Every("1h"), key="k")
        await crew.queue.pause("k")
        crew.admin.delete(KEYS.spec("k"))
        assert await crew.queue.resume("k") is False
        with pytest.raises(OptionError, match="no such schedule"):
            await crew.queue.preview("k")
        assert not (await crew.queue.schedule("tick", Every("1h"), key="k")).paused
        assert score(crew, "k") is not None


class TestRemoving:
    @pytest.mark.parametrize("state", ["armed", "paused"])
    async def test_nothing_is_left_of_it(self, crew: Crew, state: str) -> None:
        await crew.queue.schedule("tick", Every("1h"), key="k")
        if state == "paused":
            await crew.queue.pause("k")
        assert await crew.queue.unschedule("k") is True
        assert crew.admin.keys("*repeat*") == crew.admin.keys("*paused*") == []
        assert await crew.queue.unschedule("k") is False

    async def test_one_whose_key_is_no_text_can_be_removed(self, crew: Crew) -> None:
        crew.admin.zadd(KEYS.repeat, {b"\xff": 1})
        (told,) = await crew.queue.schedules()
        assert told.problem is not None
        assert await crew.queue.unschedule(told.raw_key) is True
        assert await crew.queue.schedules() == []


class TestListing:
    async def test_they_come_by_their_next_instants_and_no_more_than_asked(
        self, crew: Crew
    ) -> None:
        for hours in (3, 1, 2):
            await crew.queue.schedule("tick", Every(f"{hours}h"), key=f"{hours}")
        await crew.queue.pause("2")
        assert [told.key for told in await crew.queue.schedules()] == ["1", "2", "3"]
        assert [told.key for told in await crew.queue.schedules(2)] == ["1", "2"]
        with pytest.raises(OptionError, match="limit"):
            await crew.queue.schedules(0)

    async def test_what_cannot_be_read_says_so_and_hides_nothing(self, crew: Crew) -> None:
        await crew.queue.schedule("tick", Every("1h"), key="good")
        store_raw(crew, "bad", b"nonsense", 5)
        crew.admin.set(KEYS.spec("odd"), "text")
        crew.admin.zadd(KEYS.repeat, {"odd": 6, "empty": 7})
        told = {each.key: each.problem for each in await crew.queue.schedules()}
        assert told["good"] is None
        assert all(told[key] for key in ("bad", "odd", "empty"))

    @pytest.mark.parametrize("record", golden("specs"))
    async def test_what_a_peer_has_stored_is_told(self, crew: Crew, record: dict[str, Any]) -> None:
        store_raw(crew, record["key"], bytes.fromhex(record["spec_hex"]), now_ms() + 1000)
        told = await the(crew, record["key"])
        assert (told.problem, told.name) == (None, record["job_name"])
        assert told.settings.limit == record["limit"]


class TestOutOfTurn:
    async def test_a_trigger_adds_one_job_now(self, crew: Crew) -> None:
        await crew.queue.schedule("tick", Every("1h"), {"x": 1}, key="k", limit=1, attempts=2)
        before = score(crew, "k")
        job = await crew.queue.trigger("k")
        (there,) = waiting_here(crew)
        assert (there.envelope.id, there.name, there.data) == (job.id, "tick", {"x": 1})
        assert (job.schedule_key, job.data) == ("k", {"x": 1})
        assert there.envelope.retry.max_attempts == 2
        assert abs((there.extras.scheduled_at_ms or 0) - now_ms()) < 5000
        assert score(crew, "k") == before
        assert (await the(crew, "k")).counts.fired == 0

    async def test_a_backfill_adds_a_job_for_each_instant(self, crew: Crew) -> None:
        start = datetime(2026, 1, 5, 9, tzinfo=UTC)
        await crew.queue.schedule("tick", Cron("0 9 * * *"), key="k")
        jobs = await crew.queue.backfill("k", start, start + timedelta(days=3))
        told = [job.scheduled_at for job in jobs]
        assert told == [start + timedelta(days=n) for n in range(3)], "the end is left out"
        assert [there.envelope.id for there in waiting_here(crew)] == [job.id for job in jobs]

    async def test_a_backfill_keeps_to_the_window(self, crew: Crew) -> None:
        monday = datetime(2026, 1, 5, tzinfo=UTC)
        window = TimeWindow(days="mon,wed")
        await crew.queue.schedule("tick", Cron("0 9 * * *"), key="k", window=window)
        jobs = await crew.queue.backfill("k", monday, monday + timedelta(days=7))
        assert [job.scheduled_at.weekday() for job in jobs if job.scheduled_at] == [0, 2]

    async def test_too_large_a_backfill_adds_nothing(self, crew: Crew) -> None:
        start = datetime(2026, 1, 5, tzinfo=UTC)
        await crew.queue.schedule("tick", Every("1m"), key="k")
        with pytest.raises(OptionError, match="1440") as refusal:
            await crew.queue.backfill("k", start, start + timedelta(days=1))
        assert refusal.value.option == "max"
        with pytest.raises(OptionError, match="after start"):
            await crew.queue.backfill("k", start, start)
        assert waiting_here(crew) == []

    async def test_a_backfill_may_have_no_instants(self, crew: Crew) -> None:
        start = datetime(2026, 1, 5, 10, tzinfo=UTC)
        await crew.queue.schedule("tick", Cron("0 9 * * *"), key="k")
        assert await crew.queue.backfill("k", start, start + timedelta(hours=1)) == []

    async def test_a_preview_of_a_schedule_begins_with_its_next_instant(self, crew: Crew) -> None:
        told = await crew.queue.schedule("tick", Every("1h"), key="k", limit=3)
        told_at = told.next_at
        assert told_at is not None
        expected = [told_at + timedelta(hours=n) for n in range(3)]
        assert await crew.queue.preview("k", 2) == expected[:2]
        assert await crew.queue.preview("k") == expected, "no more than the limit"

    async def test_a_preview_begins_with_what_a_peer_has_armed_it_for(self, crew: Crew) -> None:
        told = (await crew.queue.schedule("tick", NINE, key="k")).next_at
        assert told is not None
        beside = told + timedelta(milliseconds=123)
        arm(crew, "k", round(beside.timestamp() * 1000))
        assert (await crew.queue.preview("k", 2)) == [beside, NINE.next_n(1, beside)[0]]

    async def test_a_preview_knows_window_and_end(self, crew: Crew) -> None:
        rule = Cron("0 9 * * *")
        window = TimeWindow(days="sat,sun")
        end = datetime.now(UTC) + timedelta(days=15)
        await crew.queue.schedule("tick", rule, key="k", window=window, end=end)
        told = await crew.queue.preview("k", 99)
        assert 4 <= len(told) <= 5
        assert all(at.weekday() >= 5 and at < end for at in told)
        never = TimeWindow(segments=[("10:00", "11:00")])
        await crew.queue.schedule("tick", rule, key="never", window=never)
        assert await crew.queue.preview("never") == []

    async def test_a_rule_can_be_looked_at_before_it_is_stored(self, crew: Crew) -> None:
        first, second = await crew.queue.preview(Every("1h"), 2)
        assert second - first == timedelta(hours=1)
        assert crew.admin.keys("*repeat*") == []

    async def test_what_is_not_there_or_not_to_be_read_is_said(self, crew: Crew) -> None:
        start = datetime(2026, 1, 5, tzinfo=UTC)
        for call in (
            lambda: crew.queue.trigger("k"),
            lambda: crew.queue.preview("k"),
            lambda: crew.queue.backfill("k", start, start + timedelta(1)),
        ):
            with pytest.raises(OptionError, match="no such schedule"):
                await call()
        store_raw(crew, "k", b"nonsense", 1)
        with pytest.raises(DecodeError):
            await crew.queue.trigger("k")


def waiting_here(crew: Crew) -> list[Any]:
    """The jobs in the stream."""
    return list(waiting(crew.admin, KEYS.stream))


def test_plain_code_has_the_same_methods(running: RunningServer) -> None:
    start = datetime(2026, 1, 5, tzinfo=UTC)
    with SyncQueue(QUEUE, running.url) as queue:
        told = queue.schedule("tick", Every("1h"), 1, key="k")
        assert queue.schedules() == [told]
        assert queue.preview("k", 1) == [told.next_at]
        assert queue.pause("k")
        assert queue.resume("k")
        assert queue.trigger("k").name == "tick"
        assert len(queue.backfill("k", start, start + timedelta(hours=2))) == 2
        assert queue.unschedule("k")


async def test_a_queue_s_schedules_are_its_own(running: RunningServer) -> None:
    async with Queue("one", running.url) as one, Queue("two", running.url) as two:
        await one.schedule("tick", Every("1h"), key="k")
        assert await two.schedules() == []
