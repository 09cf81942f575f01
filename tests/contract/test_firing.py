"""Schedules on a queue with workers: what fires, when, how often, and what is counted."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tampu import Backoff, Cron, Every, Missed, Overlap, TimeWindow
from tampu.metrics import Firings, MemorySink
from tests.contract.schedules import (
    SOON,
    Lateness,
    arm,
    fields,
    instants,
    now_ms,
    score,
    store_raw,
    the,
    until_counted,
    until_gone,
)
from tests.contract.workers import KEYS, Boom, Calls, Gate, Harness
from tests.golden.chasquimq import golden
from tests.waiting import wait_until

LATE = Missed.SKIP.within(grace="1s")


@pytest.mark.every_server
class TestFiring:
    async def test_an_interval_fires_on_its_grid_and_nearly_in_time(self, harness: Harness) -> None:
        calls = Lateness()
        await harness.start_worker(calls)
        told = await harness.queue.schedules.add("tick", Every(0.1), {"x": 1})
        await calls.until(10)
        assert told.next_at is not None
        first_ms = round(told.next_at.timestamp() * 1000)
        assert instants(calls)[:10] == [first_ms + 100 * n for n in range(10)]
        assert min(calls.late_ms) >= 0, "never early"
        # Mostly 2 ms; half a second if it only looked once a second.
        assert sorted(calls.late_ms)[5] < 200, "a bell has been heard, a timer has been set"
        assert {(job.name, job.data["x"], job.schedule_key) for job in calls.jobs} == {
            ("tick", 1, "tick::every:100")
        }

    async def test_a_cron_rule_fires_on_whole_seconds(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Cron("* * * * * *"))
        await calls.until(2)
        first, second = instants(calls)[:2]
        assert first % 1000 == 0
        assert second == first + 1000

    async def test_an_interval_below_every_tick_loses_nothing(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every("5ms"))
        await calls.until(200)
        found = instants(calls)
        assert found == [found[0] + 5 * n for n in range(len(found))]

    async def test_storing_it_again_and_again_holds_up_nothing(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        while len(calls) < 5:
            await harness.queue.schedules.add("tick", Every(0.1), key="k")
            await asyncio.sleep(0.02)
        found = instants(calls)
        assert found == [found[0] + 100 * n for n in range(len(found))]

    async def test_a_schedule_stored_while_running_is_noticed_at_once(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.services.leader._LOOK_S", 60.0)
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("far", Every("1h"))
        await harness.queue.schedules.add("near", Every("30ms"), limit=1)
        await calls.until(1)  # not only when it looks again

    async def test_a_peers_schedule_is_noticed_without_a_wakeup(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every("1h"), 7, key="k")
        store_raw(harness, "k", fields(harness, "k")[b"spec"], at_ms := now_ms())
        await calls.until(1)
        assert instants(calls) == [at_ms]

    async def test_jobs_carry_the_options_of_their_schedule(self, harness: Harness) -> None:
        boom = Boom()
        await harness.start_worker(boom)
        await harness.queue.schedules.add(
            "tick", Every(0.05), limit=1, attempts=2, backoff=Backoff.fixed(0), timeout=9
        )
        (letter,) = await harness.dead_letters()
        assert (letter.attempt, boom.attempts) == (2, [1, 2])
        assert boom.jobs[1].extras.timeout_ms == 9000
        assert boom.jobs[1].scheduled_at == boom.jobs[0].scheduled_at

    async def test_a_worker_may_leave_it_to_others(self, harness: Harness) -> None:
        calls, others = Calls(), Calls()
        await harness.start_worker(calls, schedule=False)
        await harness.queue.schedules.add("tick", Every(0.05), limit=2)
        assert not harness.admin.exists(KEYS.scheduler_lock)
        await harness.start_worker(others)
        await wait_until(
            lambda: len(calls) + len(others) == 2, within=SOON, sentence="another worker fires"
        )

    @pytest.mark.parametrize("record", golden("specs"))
    async def test_a_peers_schedule_fires(self, harness: Harness, record: dict[str, Any]) -> None:
        spec = bytes.fromhex(record["spec_hex"])
        store_raw(harness, record["key"], spec, at_ms := now_ms() - 10)
        calls = Calls()
        await harness.start_worker(calls)
        await calls.until(1)
        assert instants(calls)[0] == at_ms
        assert (calls.jobs[0].name, calls.jobs[0].schedule_key) == (
            record["job_name"],
            record["key"],
        )


@pytest.mark.every_server
class TestEnds:
    async def test_a_limit_is_kept_and_then_nothing_is_left(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.05), key="k", limit=2)
        await until_gone(harness, "k")
        await harness.until_settled()
        assert len(calls) == 2

    async def test_two_workers_keep_one_limit(self, harness: Harness) -> None:
        calls = Calls()
        for _ in range(2):
            await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.05), key="k", limit=3)
        await until_gone(harness, "k")
        await harness.until_settled()
        assert len(calls) == 3

    async def test_the_last_instant_before_the_end_is_the_last(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        end = datetime.now(UTC) + timedelta(milliseconds=850)
        told = await harness.queue.schedules.add("tick", Every(0.3), key="k", end=end)
        await until_gone(harness, "k")
        await harness.until_settled()
        assert told.next_at is not None
        first_ms = round(told.next_at.timestamp() * 1000)
        assert instants(calls) == [first_ms, first_ms + 300]

    async def test_a_removed_schedule_does_not_fire(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.05), key="k")
        await calls.until(2)
        await harness.queue.schedules.remove("k")
        await harness.queue.schedules.add("tock", Every(0.05), key="other", limit=4)
        await until_gone(harness, "other")
        await harness.until_settled()
        names = [job.name for job in calls.jobs]
        assert names[-3:] == ["tock"] * 3
        assert not harness.admin.exists(KEYS.spec("k"))

    async def test_a_paused_schedule_does_not_fire_until_resumed(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.05), key="k")
        await calls.until(1)
        await harness.queue.schedules.pause("k")
        await harness.queue.schedules.add("tock", Every(0.05), key="other", limit=4)
        await until_gone(harness, "other")
        before = sum(job.name == "tick" for job in calls.jobs)
        await harness.queue.schedules.resume("k")
        await wait_until(
            lambda: sum(job.name == "tick" for job in calls.jobs) > before,
            within=SOON,
            sentence="it fires again",
        )
        counts = (await the(harness, "k")).counts
        assert counts.paused >= 3
        found = [job.extras.scheduled_at_ms for job in calls.jobs if job.name == "tick"]
        gap = (found[before] - found[before - 1]) // 50  # type: ignore[operator]
        assert gap == counts.paused + 1, "each instant is accounted for"


class TestMissed:
    """Behaviours 119 to 125 of the peer's suite, by our rules."""

    async def missed(self, harness: Harness, policy: Missed, behind: int) -> Calls:
        """An interval of a minute that is so many instants behind when a worker comes."""
        half = datetime.now(UTC) - timedelta(seconds=30)
        rule = Every("1m", anchor=half)
        told = await harness.queue.schedules.add("tick", rule, key="k", missed=policy)
        assert told.next_at is not None
        arm(harness, "k", round(told.next_at.timestamp() * 1000) - behind * 60_000)
        calls = Calls()
        await harness.start_worker(calls)
        await wait_until(
            lambda: (score(harness, "k") or 0) > now_ms(), within=SOON, sentence="it is armed anew"
        )
        await harness.until_settled()
        return calls

    async def test_skip_fires_none_of_300_and_counts_them(self, harness: Harness) -> None:
        assert len(await self.missed(harness, LATE, 300)) == 0
        assert (await the(harness, "k")).counts.missed == 300

    async def test_once_fires_one(self, harness: Harness) -> None:
        calls = await self.missed(harness, Missed.ONCE.within(grace=1), 300)
        assert len(calls) == 1
        assert (await the(harness, "k")).counts.missed == 299

    async def test_all_fires_as_many_as_it_may(self, harness: Harness) -> None:
        calls = await self.missed(harness, Missed.all(max=3).within(grace=1), 300)
        assert len(calls) == 3
        assert (await the(harness, "k")).counts.missed == 297

    async def test_all_fires_all_of_five(self, harness: Harness) -> None:
        assert len(await self.missed(harness, Missed.all(max=100), 5)) == 5

    async def test_one_on_time_fires_once_even_so(self, harness: Harness) -> None:
        assert len(await self.missed(harness, Missed.all(max=100), 1)) == 1

    async def test_more_than_a_thousand_are_all_fired(self, harness: Harness) -> None:
        calls = await self.missed(harness, Missed.all(max=5000).within(catch_up="9d"), 2500)
        found = instants(calls)
        assert len(found) == len(set(found)) == 2500
        assert (await the(harness, "k")).counts.fired == 2500

    async def test_catching_up_stops_at_the_limit(self, harness: Harness) -> None:
        sink = MemorySink()
        half = datetime.now(UTC) - timedelta(seconds=30)
        rule = Every("1m", anchor=half)
        told = await harness.queue.schedules.add(
            "tick", rule, key="k", missed=Missed.all(), limit=2
        )
        assert told.next_at is not None
        arm(harness, "k", round(told.next_at.timestamp() * 1000) - 10 * 60_000)
        calls = Calls()
        await harness.start_worker(calls, metrics=sink)
        await until_gone(harness, "k")
        await harness.until_settled()
        assert len(calls) == 2

        def limited() -> list[tuple[int, int]]:
            return [(fact.fired, fact.limited) for fact in sink.of(Firings) if fact.limited]

        await wait_until(lambda: bool(limited()), within=SOON, sentence="it is told")
        assert limited() == [(2, 8)]

    async def test_a_cron_rule_with_a_zone_catches_up_and_goes_on(self, harness: Harness) -> None:
        rule = Cron("* * * * *", tz="Asia/Kolkata")
        told = await harness.queue.schedules.add("tick", rule, key="k", missed=Missed.all())
        assert told.next_at is not None
        arm(harness, "k", round(told.next_at.timestamp() * 1000) - 5 * 60_000)
        calls = Calls()
        await harness.start_worker(calls)
        await calls.until(5)
        assert (score(harness, "k") or 0) > now_ms() - 1000


class TestWindowAndJitter:
    async def test_instants_outside_the_window_are_counted(self, harness: Harness) -> None:
        later = datetime.now(UTC) + timedelta(hours=2)
        hours = (f"{later:%H:%M}", f"{later + timedelta(hours=1):%H:%M}")
        calls = Calls()
        await harness.start_worker(calls)
        window = TimeWindow(segments=[hours])
        await harness.queue.schedules.add("tick", Every(0.05), key="k", window=window)
        told = await until_counted(harness, "k", outside=3)
        assert (told.counts.fired, len(calls)) == (0, 0)

    async def test_jitter_depends_on_key_and_instant_only(self, harness: Harness) -> None:
        calls = Lateness()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.2), key="k", jitter=0.2, limit=5)
        await calls.until(5)
        found = instants(calls)
        assert found == [found[0] + 200 * n for n in range(5)]
        assert max(calls.late_ms) > 20, "some are late on purpose"


@pytest.mark.every_server
class TestOverlap:
    async def test_skip_counts_fires_during_a_running_job(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        await harness.queue.schedules.add("tick", Every(0.05), key="k", overlap=Overlap.SKIP)
        await until_counted(harness, "k", overlapped=3)
        assert len(gate) == 1
        gate.open.set()
        await gate.until(2)
        assert gate.most == 1
        first, second = instants(gate)[:2]
        counted = (await the(harness, "k")).counts.overlapped
        assert (second - first) // 50 <= counted + 1

    async def test_queue_one_fires_the_oldest_that_met_it_when_it_is_done(
        self, harness: Harness
    ) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        told = await harness.queue.schedules.add(
            "tick", Every(0.2), key="k", overlap=Overlap.QUEUE_ONE
        )
        assert told.next_at is not None
        first_ms = round(told.next_at.timestamp() * 1000)
        await wait_until(
            lambda: fields(harness, "k").get(b"held") == b"%d" % (first_ms + 200),
            within=SOON,
            sentence="the second instant waits",
        )
        await wait_until(
            lambda: now_ms() > first_ms + 900, within=SOON, sentence="more instants pass"
        )
        assert len(gate) == 1
        gate.open.set()
        await gate.until(3)
        found = instants(gate)
        assert found[:2] == [first_ms, first_ms + 200]
        assert found[2] > first_ms + 800
        counted = (await the(harness, "k")).counts.overlapped
        assert (found[2] - found[1]) // 200 == counted + 1, "each instant is accounted for"
        assert b"held" not in fields(harness, "k")

    async def test_allow_fires_beside_it(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        await harness.queue.schedules.add("tick", Every(0.05))
        await gate.until(3)
        assert gate.most >= 3
        gate.open.set()
