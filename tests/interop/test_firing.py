"""Schedules that one world stores are fired by the other: as often, and at the instants meant."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tampu import Backoff, Cron, Every, Missed
from tampu.util.clock import instant, now_ms
from tampu.wire.envelope import RetryOverride
from tests.contract.workers import Calls
from tests.interop.road import Road

pytestmark = pytest.mark.chasquimq

HOUR_MS = 3_600_000
HALF_MS = HOUR_MS // 2
EVERY_HOUR = {"kind": "every", "interval_ms": HOUR_MS}
TENTH = {"kind": "every", "interval_ms": 100}
ALL = {"kind": "fire-all", "max_catchup": 1000}
RULES = [
    ({"kind": "every", "interval_ms": 200}, Every(0.2)),
    ({"kind": "cron", "expression": "* * * * * *"}, Cron("* * * * * *")),
]
WORLDS = ["here", "there"]


def armed_ms(road: Road, key: str) -> int:
    """What a schedule is armed for; 0 if it is not there."""
    return int(road.admin.zscore(road.keys.repeat, key) or 0)


def fires(road: Road) -> int:
    """How many jobs are in the stream; nobody runs them here."""
    return int(road.admin.xlen(road.keys.stream))


async def until_fired(road: Road, count: int) -> None:
    await road.until(lambda: fires(road) >= count, f"{count} fires")


async def until_gone(road: Road, key: str) -> None:
    def is_gone() -> bool:
        return not armed_ms(road, key) and not road.admin.exists(road.keys.spec(key))

    await road.until(is_gone, "nothing is left of the schedule")


@pytest.mark.parametrize(("pattern", "rule"), RULES, ids=["every", "cron"])
async def test_what_the_peer_stores_is_fired_by_us_and_run_by_the_peer(
    road: Road, pattern: dict[str, Any], rule: Every | Cron
) -> None:
    key = await road.repeat_there("tick ñ", {"x": 1}, pattern=pattern)
    first_ms = armed_ms(road, key)
    worker = await road.hire_there(run_scheduler=False)
    await road.fire_here()
    calls = await road.at_least(worker, 2)
    told = {(call["name"], call["attempt"], call["data"]["x"]) for call in calls}
    assert told == {("tick ñ", 0, 1)}
    second_ms = rule.with_anchor(first_ms).next_ms(first_ms)
    assert second_ms is not None
    for call, at_ms in zip(calls, (first_ms, second_ms), strict=False):
        assert call["at_ms"] >= at_ms


@pytest.mark.parametrize("rule", [each[1] for each in RULES], ids=["every", "cron"])
async def test_what_we_store_is_fired_by_the_peer_and_run_by_us(
    road: Road, rule: Every | Cron
) -> None:
    calls = Calls()
    await road.hire(calls, schedule=False)
    await road.schedule_there()
    stored = await road.queue.schedule("tick ñ", rule, {"x": 1}, attempts=3)
    await calls.until(2)
    (job, *_) = calls.jobs
    assert (job.name, job.data, job.attempt) == ("tick ñ", {"x": 1}, 1)
    # Jobs that the peer fires do not know what for.
    assert (job.scheduled_at, job.schedule_key) == (None, None)
    assert stored.next_at is not None
    assert job.created_at >= stored.next_at
    (found,) = await road.queue.schedules()
    assert found.counts.fired >= 2
    assert found.settings.attempts == 3


async def test_settings_that_only_we_know_are_there_again_when_we_fire_again(road: Road) -> None:
    """The peer fires without them; the grid stays the same, and nothing of it fires twice."""
    stored = await road.queue.schedule(
        "tick", Every(0.1), attempts=3, backoff=Backoff.fixed(9), missed=Missed.all()
    )
    stop = await road.fire_in("there")
    await until_fired(road, 2)
    await stop()
    count = fires(road)
    stop = await road.fire_in("here")
    await until_fired(road, count + 2)
    await stop()
    await road.queue.unschedule(stored.key)
    retries = [envelope.retry for envelope, _ in road.waiting()]
    ours = RetryOverride(3, Backoff.fixed(9).to_wire())
    assert retries == [None] * count + [ours] * (len(retries) - count)
    calls = Calls()
    await road.hire(calls)
    await calls.until(len(retries))
    instants = [job.scheduled_at for job in calls.jobs if job.scheduled_at is not None]
    assert stored.next_at is not None
    assert instants[0] == stored.next_at + timedelta(milliseconds=100 * count)
    assert {later - at for at, later in pairwise(instants)} == {timedelta(milliseconds=100)}


POLICIES = [
    ({"kind": "skip"}, Missed.SKIP, 0),
    ({"kind": "fire-once"}, Missed.ONCE, 1),
    ({"kind": "fire-all", "max_catchup": 3}, Missed.all(max=3), 3),
    ({"kind": "fire-all", "max_catchup": 100}, Missed.all(max=100), 11),
]


@pytest.mark.parametrize("fired_in", WORLDS)
@pytest.mark.parametrize("stored_in", WORLDS)
@pytest.mark.parametrize(
    ("given", "missed", "count"), POLICIES, ids=["skip", "once", "all of 3", "all"]
)
async def test_missed_instants_fire_as_often_whoever_stored_and_whoever_fires(
    road: Road, given: dict[str, Any], missed: Missed, count: int, stored_in: str, fired_in: str
) -> None:
    """Eleven passed while nobody was there, the last of them half an hour ago."""
    next_ms = now_ms() + HALF_MS
    if stored_in == "there":
        key = await road.repeat_there("tick", pattern=EVERY_HOUR, missed_fires=given)
    else:
        rule = Every("1h", anchor=instant(next_ms))
        key = (await road.queue.schedule("tick", rule, missed=missed)).key
    road.admin.zadd(road.keys.repeat, {key: next_ms - 11 * HOUR_MS}, xx=True)
    await road.fire_in(fired_in)
    await road.until(lambda: armed_ms(road, key) == next_ms, "it is armed for what comes next")
    assert fires(road) == count


@pytest.mark.parametrize(("world", "count"), [("here", 3), ("there", 0)])
async def test_an_instant_less_than_a_minute_late_is_on_time_for_us_and_missed_for_the_peer(
    road: Road, world: str, count: int
) -> None:
    """For the peer an instant is missed as soon as the next one has passed too."""
    key = await road.repeat_there("tick", pattern={"kind": "every", "interval_ms": 10_000})
    at_ms = now_ms()
    road.admin.zadd(road.keys.repeat, {key: at_ms - 25_000}, xx=True)
    await road.fire_in(world)
    await road.until(lambda: armed_ms(road, key) > at_ms, "it is armed anew")
    assert fires(road) == count


@pytest.mark.parametrize(("first", "second"), [("here", "there"), ("there", "here")])
@pytest.mark.parametrize("stored_in", WORLDS)
async def test_a_limit_counts_the_fires_of_both(
    road: Road, stored_in: str, first: str, second: str
) -> None:
    if stored_in == "there":
        key = await road.repeat_there("tick", pattern=TENTH, missed_fires=ALL, limit=10)
    else:
        key = (await road.queue.schedule("tick", Every(0.1), missed=Missed.all(), limit=10)).key
    stop = await road.fire_in(first)
    await until_fired(road, 2)
    await stop()
    assert fires(road) < 10
    await road.fire_in(second)
    await until_gone(road, key)
    assert fires(road) == 10


@pytest.mark.parametrize("fired_in", WORLDS)
@pytest.mark.parametrize("stored_in", WORLDS)
async def test_start_and_end_are_kept_to_whoever_fires(
    road: Road, stored_in: str, fired_in: str
) -> None:
    """For us an interval fires at its start, for the peer one interval later; both by the spec."""
    start_ms = now_ms() + 800  # time enough to store it before
    end_ms = start_ms + 350
    if stored_in == "there":
        bounds = {"start_after_ms": start_ms, "end_before_ms": end_ms}
        key = await road.repeat_there("tick", pattern=TENTH, missed_fires=ALL, **bounds)
        first_ms, count = start_ms + 100, 3
    else:
        stored = await road.queue.schedule(
            "tick",
            Every(0.1),
            missed=Missed.all(),
            start=instant(start_ms),
            end=instant(end_ms),
        )
        key, first_ms, count = stored.key, start_ms, 4
    assert armed_ms(road, key) == first_ms
    await road.fire_in(fired_in)
    await until_fired(road, 1)
    assert now_ms() >= first_ms
    await until_gone(road, key)
    assert fires(road) == count


async def test_a_cron_rule_of_the_peers_falls_into_step_when_we_fire_it(road: Road) -> None:
    """It carries milliseconds along; for us instants are whole seconds, and none comes twice."""
    key = await road.repeat_there("tick", pattern={"kind": "cron", "expression": "* * * * * *"})
    second_ms = now_ms() // 1000 * 1000
    road.admin.zadd(road.keys.repeat, {key: second_ms + 1_400}, xx=True)
    await road.fire_in("here")
    await until_fired(road, 2)
    calls = Calls()
    await road.hire(calls, schedule=False)
    await calls.until(2)
    instants = [job.extras.scheduled_at_ms for job in calls.jobs[:2]]
    assert instants == [second_ms + 1_400, second_ms + 2_000]
