"""Schedules out of turn: triggered, filled in for a time that has passed, and previewed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tampu import Cron, Every, OptionError, TimeWindow
from tampu.errors import DecodeError
from tests.contract.queues import waiting
from tests.contract.schedules import arm, now_ms, score, store_raw, the
from tests.contract.workers import KEYS, Harness

HOUR_MS = 3_600_000
NINE = Cron("0 9 * * 1-5", tz="Europe/Berlin")


class TestOutOfTurn:
    @pytest.mark.every_server
    async def test_a_trigger_adds_one_job_now(self, harness: Harness) -> None:
        await harness.queue.schedules.add(
            "tick", Every("1h"), {"x": 1}, key="k", limit=1, attempts=2
        )
        before = score(harness, "k")
        job = await harness.queue.schedules.trigger("k")
        (there,) = waiting_here(harness)
        assert (there.envelope.id, there.name, there.data) == (job.id, "tick", {"x": 1})
        assert (job.schedule_key, job.data) == ("k", {"x": 1})
        assert there.envelope.retry.max_attempts == 2
        assert abs((there.extras.scheduled_at_ms or 0) - now_ms()) < 5000
        assert score(harness, "k") == before
        assert (await the(harness, "k")).counts.fired == 0

    @pytest.mark.every_server
    async def test_a_backfill_adds_a_job_for_each_instant(self, harness: Harness) -> None:
        start = datetime(2026, 1, 5, 9, tzinfo=UTC)
        await harness.queue.schedules.add("tick", Cron("0 9 * * *"), key="k")
        jobs = await harness.queue.schedules.backfill("k", start, start + timedelta(days=3))
        told = [job.scheduled_at for job in jobs]
        assert told == [start + timedelta(days=n) for n in range(3)], "the end is left out"
        assert [there.envelope.id for there in waiting_here(harness)] == [job.id for job in jobs]

    async def test_a_backfill_keeps_to_the_window(self, harness: Harness) -> None:
        monday = datetime(2026, 1, 5, tzinfo=UTC)
        window = TimeWindow(days="mon,wed")
        await harness.queue.schedules.add("tick", Cron("0 9 * * *"), key="k", window=window)
        jobs = await harness.queue.schedules.backfill("k", monday, monday + timedelta(days=7))
        assert [job.scheduled_at.weekday() for job in jobs if job.scheduled_at] == [0, 2]

    @pytest.mark.every_server
    async def test_too_large_a_backfill_adds_nothing(self, harness: Harness) -> None:
        start = datetime(2026, 1, 5, tzinfo=UTC)
        await harness.queue.schedules.add("tick", Every("1m"), key="k")
        with pytest.raises(OptionError, match="1440") as refusal:
            await harness.queue.schedules.backfill("k", start, start + timedelta(days=1))
        assert refusal.value.option == "max"
        with pytest.raises(OptionError, match="after start"):
            await harness.queue.schedules.backfill("k", start, start)
        assert waiting_here(harness) == []

    async def test_a_backfill_may_have_no_instants(self, harness: Harness) -> None:
        start = datetime(2026, 1, 5, 10, tzinfo=UTC)
        await harness.queue.schedules.add("tick", Cron("0 9 * * *"), key="k")
        assert await harness.queue.schedules.backfill("k", start, start + timedelta(hours=1)) == []

    @pytest.mark.every_server
    async def test_a_preview_begins_with_the_next_instant(self, harness: Harness) -> None:
        told = await harness.queue.schedules.add("tick", Every("1h"), key="k", limit=3)
        told_at = told.next_at
        assert told_at is not None
        expected = [told_at + timedelta(hours=n) for n in range(3)]
        assert await harness.queue.schedules.preview("k", 2) == expected[:2]
        assert await harness.queue.schedules.preview("k") == expected, "no more than the limit"

    async def test_a_preview_begins_with_the_instant_of_a_peer(self, harness: Harness) -> None:
        told = (await harness.queue.schedules.add("tick", NINE, key="k")).next_at
        assert told is not None
        beside = told + timedelta(milliseconds=123)
        arm(harness, "k", round(beside.timestamp() * 1000))
        assert (await harness.queue.schedules.preview("k", 2)) == [
            beside,
            NINE.next_n(1, beside)[0],
        ]

    async def test_a_preview_knows_window_and_end(self, harness: Harness) -> None:
        rule = Cron("0 9 * * *")
        window = TimeWindow(days="sat,sun")
        end = datetime.now(UTC) + timedelta(days=15)
        await harness.queue.schedules.add("tick", rule, key="k", window=window, end=end)
        told = await harness.queue.schedules.preview("k", 99)
        assert 4 <= len(told) <= 5
        assert all(at.weekday() >= 5 and at < end for at in told)
        never = TimeWindow(segments=[("10:00", "11:00")])
        await harness.queue.schedules.add("tick", rule, key="never", window=never)
        assert await harness.queue.schedules.preview("never") == []

    async def test_a_rule_can_be_looked_at_before_it_is_stored(self, harness: Harness) -> None:
        first, second = await harness.queue.schedules.preview(Every("1h"), 2)
        assert second - first == timedelta(hours=1)
        assert harness.admin.keys("*repeat*") == []

    async def test_a_missing_schedule_is_an_error(self, harness: Harness) -> None:
        start = datetime(2026, 1, 5, tzinfo=UTC)
        for call in (
            lambda: harness.queue.schedules.trigger("k"),
            lambda: harness.queue.schedules.preview("k"),
            lambda: harness.queue.schedules.backfill("k", start, start + timedelta(1)),
        ):
            with pytest.raises(OptionError, match="no such schedule"):
                await call()
        store_raw(harness, "k", b"nonsense", 1)
        with pytest.raises(DecodeError):
            await harness.queue.schedules.trigger("k")


def waiting_here(harness: Harness) -> list[Any]:
    """The jobs in the stream."""
    return list(waiting(harness.admin, KEYS.stream))
