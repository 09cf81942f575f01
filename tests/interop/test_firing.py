"""Schedules that one world stores are fired by the other: as often, and at the instants meant."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tampu import Backoff, Cron, Every, Missed
from tampu.util.clock import instant, now_ms
from tampu.wire.envelope import RetryOverride
from tests.contract.workers import Calls
from tests.interop.shared_queue import SharedQueue

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


def armed_ms(shared: SharedQueue, key: str) -> int:
    """What a schedule is armed for; 0 if it is not there."""
    return int(shared.admin.zscore(shared.keys.repeat, key) or 0)


def fires(shared: SharedQueue) -> int:
    """How many jobs are in the stream; nobody runs them here."""
    return int(shared.admin.xlen(shared.keys.stream))


async def until_fired(shared: SharedQueue, count: int) -> None:
    await shared.until(lambda: fires(shared) >= count, f"{count} fires")


async def until_gone(shared: SharedQueue, key: str) -> None:
    def is_gone() -> bool:
        return not armed_ms(shared, key) and not shared.admin.exists(shared.keys.spec(key))

    await shared.until(is_gone, "nothing is left of the schedule")


@pytest.mark.parametrize(("pattern", "rule"), RULES, ids=["every", "cron"])
async def test_the_peers_schedule_is_fired_by_us_and_run_by_the_peer(
    shared: SharedQueue, pattern: dict[str, Any], rule: Every | Cron
) -> None:
    key = await shared.peer_repeat("tick ñ", {"x": 1}, pattern=pattern)
    first_ms = armed_ms(shared, key)
    worker = await shared.start_peer_worker(run_scheduler=False)
    await shared.start_firer()
    calls = await shared.at_least(worker, 2)
    told = {(call["name"], call["attempt"], call["data"]["x"]) for call in calls}
    assert told == {("tick ñ", 0, 1)}
    second_ms = rule.with_anchor(first_ms).next_ms(first_ms)
    assert second_ms is not None
    for call, at_ms in zip(calls, (first_ms, second_ms), strict=False):
        assert call["at_ms"] >= at_ms


@pytest.mark.parametrize("rule", [each[1] for each in RULES], ids=["every", "cron"])
async def test_our_schedule_is_fired_by_the_peer_and_run_by_us(
    shared: SharedQueue, rule: Every | Cron
) -> None:
    calls = Calls()
    await shared.start_worker(calls, schedule=False)
    await shared.start_peer_scheduler()
    stored = await shared.queue.schedules.add("tick ñ", rule, {"x": 1}, attempts=3)
    await calls.until(2)
    (job, *_) = calls.jobs
    assert (job.name, job.data, job.attempt) == ("tick ñ", {"x": 1}, 1)
    # Jobs that the peer fires do not know what for.
    assert (job.scheduled_at, job.schedule_key) == (None, None)
    assert stored.next_at is not None
    assert job.created_at >= stored.next_at
    (found,) = await shared.queue.schedules.list()
    assert found.counts.fired >= 2
    assert found.settings.attempts == 3


async def test_settings_that_only_we_know_are_there_again_when_we_fire_again(
    shared: SharedQueue,
) -> None:
    """The peer fires without them; the grid stays the same, and nothing of it fires twice."""
    stored = await shared.queue.schedules.add(
        "tick", Every(0.1), attempts=3, backoff=Backoff.fixed(9), missed=Missed.all()
    )
    stop = await shared.fire_in("there")
    await until_fired(shared, 2)
    await stop()
    count = fires(shared)
    stop = await shared.fire_in("here")
    await until_fired(shared, count + 2)
    await stop()
    await shared.queue.schedules.remove(stored.key)
    retries = [envelope.retry for envelope, _ in shared.waiting()]
    ours = RetryOverride(3, Backoff.fixed(9).to_wire())
    assert retries == [None] * count + [ours] * (len(retries) - count)
    calls = Calls()
    await shared.start_worker(calls)
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
    shared: SharedQueue,
    given: dict[str, Any],
    missed: Missed,
    count: int,
    stored_in: str,
    fired_in: str,
) -> None:
    """Eleven passed while nobody was there, the last of them half an hour ago."""
    next_ms = now_ms() + HALF_MS
    if stored_in == "there":
        key = await shared.peer_repeat("tick", pattern=EVERY_HOUR, missed_fires=given)
    else:
        rule = Every("1h", anchor=instant(next_ms))
        key = (await shared.queue.schedules.add("tick", rule, missed=missed)).key
    shared.admin.zadd(shared.keys.repeat, {key: next_ms - 11 * HOUR_MS}, xx=True)
    await shared.fire_in(fired_in)
    await shared.until(lambda: armed_ms(shared, key) == next_ms, "it is armed for what comes next")
    assert fires(shared) == count


@pytest.mark.parametrize(("world", "count"), [("here", 3), ("there", 0)])
async def test_an_instant_less_than_a_minute_late_is_on_time_for_us_and_missed_for_the_peer(
    shared: SharedQueue, world: str, count: int
) -> None:
    """For the peer an instant is missed as soon as the next one has passed too."""
    key = await shared.peer_repeat("tick", pattern={"kind": "every", "interval_ms": 10_000})
    at_ms = now_ms()
    shared.admin.zadd(shared.keys.repeat, {key: at_ms - 25_000}, xx=True)
    await shared.fire_in(world)
    await shared.until(lambda: armed_ms(shared, key) > at_ms, "it is armed anew")
    assert fires(shared) == count


@pytest.mark.parametrize(("first", "second"), [("here", "there"), ("there", "here")])
@pytest.mark.parametrize("stored_in", WORLDS)
async def test_a_limit_counts_the_fires_of_both(
    shared: SharedQueue, stored_in: str, first: str, second: str
) -> None:
    if stored_in == "there":
        key = await shared.peer_repeat("tick", pattern=TENTH, missed_fires=ALL, limit=10)
    else:
        key = (
            await shared.queue.schedules.add("tick", Every(0.1), missed=Missed.all(), limit=10)
        ).key
    stop = await shared.fire_in(first)
    await until_fired(shared, 2)
    await stop()
    assert fires(shared) < 10
    await shared.fire_in(second)
    await until_gone(shared, key)
    assert fires(shared) == 10


@pytest.mark.parametrize("fired_in", WORLDS)
@pytest.mark.parametrize("stored_in", WORLDS)
async def test_start_and_end_are_kept_to_whoever_fires(
    shared: SharedQueue, stored_in: str, fired_in: str
) -> None:
    """For us an interval fires at its start, for the peer one interval later; both by the spec."""
    start_ms = now_ms() + 800  # time enough to store it before
    end_ms = start_ms + 350
    if stored_in == "there":
        bounds = {"start_after_ms": start_ms, "end_before_ms": end_ms}
        key = await shared.peer_repeat("tick", pattern=TENTH, missed_fires=ALL, **bounds)
        first_ms, count = start_ms + 100, 3
    else:
        stored = await shared.queue.schedules.add(
            "tick",
            Every(0.1),
            missed=Missed.all(),
            start=instant(start_ms),
            end=instant(end_ms),
        )
        key, first_ms, count = stored.key, start_ms, 4
    assert armed_ms(shared, key) == first_ms
    await shared.fire_in(fired_in)
    await until_fired(shared, 1)
    assert now_ms() >= first_ms
    await until_gone(shared, key)
    if fired_in == "here":
        assert fires(shared) == count
    else:  # a peer that is late also fires instants after the end
        assert fires(shared) >= count


async def test_a_cron_rule_of_the_peers_falls_into_step_when_we_fire_it(
    shared: SharedQueue,
) -> None:
    """It carries milliseconds along; for us instants are whole seconds, and none comes twice."""
    key = await shared.peer_repeat("tick", pattern={"kind": "cron", "expression": "* * * * * *"})
    second_ms = now_ms() // 1000 * 1000
    shared.admin.zadd(shared.keys.repeat, {key: second_ms + 1_400}, xx=True)
    await shared.fire_in("here")
    await until_fired(shared, 2)
    calls = Calls()
    await shared.start_worker(calls, schedule=False)
    await calls.until(2)
    instants = [job.extras.scheduled_at_ms for job in calls.jobs[:2]]
    assert instants == [second_ms + 1_400, second_ms + 2_000]
