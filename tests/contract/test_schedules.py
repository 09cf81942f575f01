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
from tampu.timing import Rule
from tampu.util.clock import instant
from tampu.wire.schedule_reader import decode_spec
from tests.contract.schedules import arm, fields, now_ms, score, store_raw, the
from tests.contract.workers import KEYS, QUEUE, Harness
from tests.golden.chasquimq import golden
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server

HOUR_MS = 3_600_000
NINE = Cron("0 9 * * 1-5", tz="Europe/Berlin")


class TestStoring:
    async def test_a_stored_schedule_is_listed_with_its_options(self, harness: Harness) -> None:
        window = TimeWindow(tz="Europe/Berlin", days="mon-fri")
        end = datetime.now(UTC) + timedelta(days=99)
        told = await harness.queue.schedules.add(
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
        assert told.next_at == (await harness.queue.schedules.preview(NINE, 1))[0]
        assert (told.settings.limit, told.settings.window) == (100, window)
        assert told.settings.missed == Missed.all(max=5).within(grace=9)
        assert await harness.queue.schedules.list() == [told]

    async def test_a_peer_can_read_its_part(self, harness: Harness) -> None:
        told = await harness.queue.schedules.add(
            "tick", Every("1m"), {"x": 1}, limit=2, missed=Missed.ONCE, overlap=Overlap.SKIP
        )
        assert told.key == "tick::every:60000"
        stored = fields(harness, told.key)
        assert set(stored) == {b"spec", b"tampu"}
        spec = decode_spec(stored[b"spec"])
        assert stored[b"spec"][0] == 0x99, "an array of nine"
        assert spec.slot == bytes.fromhex("c40481a17801")
        assert (spec.limit, spec.fired) == (2, 0)
        assert told.next_at == instant(score(harness, told.key) or 0)

    async def test_the_server_s_clock_decides(self, harness: Harness) -> None:
        before = harness.admin.time()
        told = await harness.queue.schedules.add("tick", Every("1h"))
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
    async def test_invalid_options_store_nothing(
        self, harness: Harness, option: str, rule: Rule, given: dict[str, Any]
    ) -> None:
        with pytest.raises(OptionError) as refusal:
            await harness.queue.schedules.add("tick", rule, **given)
        assert refusal.value.option == option
        assert harness.admin.keys("*repeat*") == []

    async def test_an_invalid_name_or_data_is_refused(self, harness: Harness) -> None:
        with pytest.raises(OptionError, match="name"):
            await harness.queue.schedules.add("n" * 257, Every(1))
        with pytest.raises(EncodeError):
            await harness.queue.schedules.add("tick", Every(1), object())


class TestStoringAgain:
    async def test_the_same_rule_keeps_its_place_and_its_counts(self, harness: Harness) -> None:
        first = await harness.queue.schedules.add("tick", Every("1h"), 1, key="k")
        harness.admin.hset(KEYS.spec("k"), "fired", 7)
        again = await harness.queue.schedules.add("tock", Every("1h"), 2, key="k", limit=9)
        assert again.next_at == first.next_at
        assert (again.name, again.data, again.counts.fired) == ("tock", 2, 7)
        assert again == await the(harness, "k")

    async def test_a_changed_rule_starts_again_from_now(self, harness: Harness) -> None:
        await harness.queue.schedules.add("tick", Every("1h"), key="k")
        harness.admin.hset(KEYS.spec("k"), mapping={"fired": 7, "missed": 3, "last": "1-1"})
        again = await harness.queue.schedules.add("tick", Every("2h"), key="k")
        assert again.counts.fired == again.counts.missed == 0
        assert set(fields(harness, "k")) == {b"spec", b"tampu"}
        assert len(await harness.queue.schedules.list()) == 1

    async def test_a_schedule_of_a_peer_keeps_its_next_instant(self, harness: Harness) -> None:
        spec = bytes.fromhex(golden("specs")[0].values[0]["spec_hex"])
        read = decode_spec(spec)
        store_raw(harness, read.key, spec, at_ms := now_ms() + 12_345)
        rule = (await the(harness, read.key)).rule
        assert rule is not None
        again = await harness.queue.schedules.add(read.job_name, rule, key=read.key)
        assert again.next_at == instant(at_ms)

    async def test_a_new_spec_of_a_peer_ends_our_settings(self, harness: Harness) -> None:
        await harness.queue.schedules.add("tick", Every(10), key="k", jitter=5, attempts=2)
        other = await harness.queue.schedules.add("tick", Every(20), key="other")
        spec = fields(harness, "other")[b"spec"]
        store_raw(harness, "k", spec, now_ms())
        told = await the(harness, "k")
        assert (told.settings.jitter, told.settings.attempts) == (None, None)
        assert told.name == other.name

    async def test_an_undecodable_schedule_can_be_replaced(self, harness: Harness) -> None:
        store_raw(harness, "k", b"nonsense", 1)
        told = await harness.queue.schedules.add("tick", Every("1h"), key="k")
        assert told.problem is None
        assert await harness.queue.schedules.list() == [told]

    async def test_a_peers_leftover_key_is_no_schedule(self, harness: Harness) -> None:
        first = await harness.queue.schedules.add("tick", Every("1h"), key="k")
        harness.admin.zrem(KEYS.repeat, "k")
        harness.admin.hset(KEYS.spec("k"), "fired", 7)
        again = await harness.queue.schedules.add("tick", Every("1h"), key="k")
        assert again.counts.fired == 0
        assert again.next_at is not None
        assert first.next_at is not None
        assert again.next_at >= first.next_at

    async def test_many_that_store_one_schedule_at_once_agree(self, harness: Harness) -> None:
        stored = [harness.queue.schedules.add("tick", Every("1h"), n, key="k") for n in range(20)]
        told = await asyncio.gather(*stored)
        assert len({each.next_at for each in told}) == 1
        assert (await the(harness, "k")).next_at == told[0].next_at


class TestPausing:
    async def test_a_paused_one_is_out_of_reach_of_every_scheduler(self, harness: Harness) -> None:
        await harness.queue.schedules.add("tick", Every("1h"), key="k")
        assert await harness.queue.schedules.pause("k") is True
        assert score(harness, "k") is None
        told = await the(harness, "k")
        assert told.paused
        assert (await harness.queue.counts()).schedules == 1
        assert await harness.queue.schedules.pause("k") is False

    async def test_fires_missed_in_a_pause_are_counted(self, harness: Harness) -> None:
        told = await harness.queue.schedules.add("tick", Every("1h"), key="k", missed=Missed.all())
        assert told.next_at is not None
        next_ms = round(told.next_at.timestamp() * 1000)
        arm(harness, "k", next_ms - 5 * HOUR_MS)
        await harness.queue.schedules.pause("k")
        assert await harness.queue.schedules.resume("k") is True
        assert score(harness, "k") == next_ms
        told = await the(harness, "k")
        assert (told.counts.paused, told.paused) == (5, False)

    async def test_one_that_was_resumed_in_time_keeps_its_instant(self, harness: Harness) -> None:
        told = await harness.queue.schedules.add("tick", Every("1h"), key="k")
        await harness.queue.schedules.pause("k")
        await harness.queue.schedules.resume("k")
        assert await the(harness, "k") == told

    async def test_storing_it_again_leaves_it_paused(self, harness: Harness) -> None:
        await harness.queue.schedules.add("tick", Every("1h"), key="k")
        await harness.queue.schedules.pause("k")
        for rule in (Every("1h"), Every("2h")):
            assert (await harness.queue.schedules.add("tick", rule, key="k")).paused
            assert score(harness, "k") is None

    async def test_one_whose_end_has_passed_is_removed(self, harness: Harness) -> None:
        end = datetime.now(UTC) + timedelta(hours=1, seconds=5)
        told = await harness.queue.schedules.add("tick", Every("1h"), key="k", end=end)
        assert told.next_at is not None
        await harness.queue.schedules.pause("k")
        passed_ms = round(told.next_at.timestamp() * 1000) - HOUR_MS
        harness.admin.zadd(KEYS.paused, {"k": passed_ms})
        spec = fields(harness, "k")[b"spec"]
        early = spec.replace(b"\xcf" + round(end.timestamp() * 1000).to_bytes(8, "big"), b"\x01")
        assert early != spec
        harness.admin.hset(KEYS.spec("k"), "spec", early)
        assert await harness.queue.schedules.resume("k") is True
        assert await harness.queue.schedules.list() == []

    async def test_there_must_be_one(self, harness: Harness) -> None:
        assert await harness.queue.schedules.pause("k") is False
        assert await harness.queue.schedules.resume("k") is False
        await harness.queue.schedules.add("tick", Every("1h"), key="k")
        assert await harness.queue.schedules.resume("k") is False

    async def test_an_unreadable_one_can_be_paused_and_resumed(self, harness: Harness) -> None:
        store_raw(harness, "k", b"nonsense", 123)
        assert await harness.queue.schedules.pause("k") is True
        assert await harness.queue.schedules.resume("k") is True
        assert score(harness, "k") == 123

    async def test_one_that_a_peer_has_removed_is_gone(self, harness: Harness) -> None:
        await harness.queue.schedules.add("tick", Every("1h"), key="k")
        await harness.queue.schedules.pause("k")
        harness.admin.delete(KEYS.spec("k"))
        assert await harness.queue.schedules.resume("k") is False
        with pytest.raises(OptionError, match="no such schedule"):
            await harness.queue.schedules.preview("k")
        assert not (await harness.queue.schedules.add("tick", Every("1h"), key="k")).paused
        assert score(harness, "k") is not None


class TestRemoving:
    @pytest.mark.parametrize("state", ["armed", "paused"])
    async def test_nothing_is_left_of_it(self, harness: Harness, state: str) -> None:
        await harness.queue.schedules.add("tick", Every("1h"), key="k")
        if state == "paused":
            await harness.queue.schedules.pause("k")
        assert await harness.queue.schedules.remove("k") is True
        assert harness.admin.keys("*repeat*") == harness.admin.keys("*paused*") == []
        assert await harness.queue.schedules.remove("k") is False

    async def test_one_whose_key_is_no_text_can_be_removed(self, harness: Harness) -> None:
        harness.admin.zadd(KEYS.repeat, {b"\xff": 1})
        (told,) = await harness.queue.schedules.list()
        assert told.problem is not None
        assert await harness.queue.schedules.remove(told.raw_key) is True
        assert await harness.queue.schedules.list() == []


class TestListing:
    async def test_they_are_sorted_by_next_instant_and_limited(self, harness: Harness) -> None:
        for hours in (3, 1, 2):
            await harness.queue.schedules.add("tick", Every(f"{hours}h"), key=f"{hours}")
        await harness.queue.schedules.pause("2")
        assert [told.key for told in await harness.queue.schedules.list()] == ["1", "2", "3"]
        assert [told.key for told in await harness.queue.schedules.list(2)] == ["1", "2"]
        with pytest.raises(OptionError, match="limit"):
            await harness.queue.schedules.list(0)

    async def test_an_undecodable_schedule_is_listed_too(self, harness: Harness) -> None:
        await harness.queue.schedules.add("tick", Every("1h"), key="good")
        store_raw(harness, "bad", b"nonsense", 5)
        harness.admin.set(KEYS.spec("odd"), "text")
        harness.admin.zadd(KEYS.repeat, {"odd": 6, "empty": 7})
        told = {each.key: each.problem for each in await harness.queue.schedules.list()}
        assert told["good"] is None
        assert all(told[key] for key in ("bad", "odd", "empty"))

    @pytest.mark.parametrize("record", golden("specs"))
    async def test_schedules_of_peers_are_read(
        self, harness: Harness, record: dict[str, Any]
    ) -> None:
        store_raw(harness, record["key"], bytes.fromhex(record["spec_hex"]), now_ms() + 1000)
        told = await the(harness, record["key"])
        assert (told.problem, told.name) == (None, record["job_name"])
        assert told.settings.limit == record["limit"]


def test_plain_code_has_the_same_methods(running: RunningServer) -> None:
    start = datetime(2026, 1, 5, tzinfo=UTC)
    with SyncQueue(QUEUE, running.url) as queue:
        told = queue.schedules.add("tick", Every("1h"), 1, key="k")
        assert queue.schedules.list() == [told]
        assert queue.schedules.preview("k", 1) == [told.next_at]
        assert queue.schedules.pause("k")
        assert queue.schedules.resume("k")
        assert queue.schedules.trigger("k").name == "tick"
        assert len(queue.schedules.backfill("k", start, start + timedelta(hours=2))) == 2
        assert queue.schedules.remove("k")


async def test_a_queue_s_schedules_are_its_own(running: RunningServer) -> None:
    async with Queue("one", running.url) as one, Queue("two", running.url) as two:
        await one.schedules.add("tick", Every("1h"), key="k")
        assert await two.schedules.list() == []
