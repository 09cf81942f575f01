"""Schedules: each side lists, replaces and removes what the other stored."""

from typing import Any

import pytest

from tampu import Cron, Every, Missed, Overlap, Schedule, TimeWindow
from tampu.timing import Rule
from tampu.util.clock import instant
from tampu.wire.schedule import OWN, SPEC, encode_spec
from tampu.wire.schedule_reader import decode_spec
from tests.interop.peer.values import packed
from tests.interop.shared_queue import SharedQueue

pytestmark = pytest.mark.chasquimq

LATER_MS = 4_000_000_000_000
EVERY = {"kind": "every", "interval_ms": 60_000}
RULES: dict[str, tuple[dict[str, Any], Rule, str]] = {
    "every": (EVERY, Every(60), "tick::every:60000"),
    "cron": (
        {"kind": "cron", "expression": "0 2 * * *"},
        Cron("0 2 * * *"),
        "tick::cron:0 2 * * *:UTC",
    ),
    "seconds": (
        {"kind": "cron", "expression": "30 0 2 * * MON-FRI", "tz": "Europe/Berlin"},
        Cron("30 0 2 * * MON-FRI", tz="Europe/Berlin"),
        "tick::cron:30 0 2 * * MON-FRI:Europe/Berlin",
    ),
    "nearest weekday": (
        {"kind": "cron", "expression": "0 9 15W * *"},
        Cron("0 9 15W * *"),
        "tick::cron:0 9 15W * *:UTC",
    ),
    "years": (
        {"kind": "cron", "expression": "0 0 9 1 1 * 2030-2034/2"},
        Cron("0 0 9 1 1 * 2030-2034/2"),
        "tick::cron:0 0 9 1 1 * 2030-2034/2:UTC",
    ),
    "offset": (
        {"kind": "cron", "expression": "@daily", "tz": "+05:30"},
        Cron("@daily", tz="+05:30"),
        "tick::cron:@daily:+05:30",
    ),
}
POLICIES: dict[str, tuple[dict[str, Any] | None, Missed]] = {
    "default": (None, Missed.SKIP),
    "skip": ({"kind": "skip"}, Missed.SKIP),
    "once": ({"kind": "fire-once"}, Missed.ONCE),
    "all": ({"kind": "fire-all", "max_catchup": 23}, Missed.all(max=23)),
}


async def the_one(shared: SharedQueue) -> Schedule:
    (found,) = await shared.queue.schedules.list()
    return found


async def the_one_there(shared: SharedQueue) -> dict[str, Any]:
    (found,) = await shared.ask("repeats")
    return dict(found)


@pytest.mark.parametrize("kind", RULES)
async def test_we_list_the_peers_rule_as_the_peer_does(shared: SharedQueue, kind: str) -> None:
    pattern, rule, key = RULES[kind]
    assert await shared.peer_repeat("tick", {"x": [1]}, pattern=pattern) == key
    found = await the_one(shared)
    assert (found.key, found.name, found.data) == (key, "tick", {"x": [1]})
    assert found.problem is None
    assert repr(found.rule) == repr(rule)
    there = await the_one_there(shared)
    assert found.next_at == instant(there["next_fire_ms"])
    first, second = await shared.queue.schedules.preview(key, 2)
    assert (first, second) == (
        found.next_at,
        rule.with_anchor(there["next_fire_ms"]).next_n(1, first)[0],
    )


@pytest.mark.parametrize("kind", RULES)
async def test_the_peer_lists_our_rule_as_we_do(shared: SharedQueue, kind: str) -> None:
    pattern, rule, key = RULES[kind]
    stored = await shared.queue.schedules.add("tick", rule, {"x": [1]})
    there = await the_one_there(shared)
    assert (there["key"], there["job_name"]) == (key, "tick")
    told = {name: value for name, value in there["pattern"].items() if value is not None}
    assert told == pattern
    assert stored.next_at == instant(there["next_fire_ms"])
    # Stored once more by the peer it comes to the same, and takes the same place.
    assert await shared.peer_repeat("tick", {"x": [1]}, pattern=pattern) == key
    assert len(await shared.queue.schedules.list()) == 1


async def test_the_peer_finds_the_same_weekday_nearest_to_a_day(shared: SharedQueue) -> None:
    """Each day of a month, in the months to come; the peer keeps milliseconds."""
    for month in (1, 2, 5, 8, 10):
        for day in (1, 2, 14, 15, 16, 28) if month == 2 else (1, 2, 14, 15, 16, 28, 29, 30, 31):
            text = f"0 0 12 {day}W {month} * 2027-2040"
            rule, pattern = Cron(text), {"kind": "cron", "expression": text}
            key = await shared.peer_repeat("tick", None, pattern=pattern)
            there = await the_one_there(shared)
            now_ms = int((await shared.queue.schedules.preview(Every(1), 1))[0].timestamp() * 1000)
            assert there["next_fire_ms"] // 1000 * 1000 == rule.next_ms(now_ms), text
            await shared.queue.schedules.remove(key)


@pytest.mark.parametrize("policy", POLICIES)
async def test_we_list_the_peers_policies_and_bounds(shared: SharedQueue, policy: str) -> None:
    given, missed = POLICIES[policy]
    await shared.peer_repeat(
        "tick",
        pattern=EVERY,
        missed_fires=given,
        limit=5,
        start_after_ms=LATER_MS,
        end_before_ms=LATER_MS + 600_000,
    )
    found = await the_one(shared)
    settings = found.settings
    assert (settings.missed, settings.limit) == (missed, 5)
    assert (settings.start, settings.end) == (instant(LATER_MS), instant(LATER_MS + 600_000))
    assert found.next_at == instant(LATER_MS + 60_000)  # for the peer, one interval behind


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_peer_lists_our_policies_and_bounds(shared: SharedQueue, policy: str) -> None:
    given, missed = POLICIES[policy]
    await shared.queue.schedules.add(
        "tick",
        Every(60),
        missed=missed,
        limit=5,
        start=instant(LATER_MS),
        end=instant(LATER_MS + 600_000),
    )
    there = await the_one_there(shared)
    wanted = None if missed is Missed.SKIP else {"max_catchup": None, **(given or {})}
    assert there["missed_fires"] == wanted
    assert (there["limit"], there["start_after_ms"]) == (5, LATER_MS)
    assert there["end_before_ms"] == LATER_MS + 600_000
    assert there["next_fire_ms"] == LATER_MS  # for us, at the start


@pytest.mark.parametrize("pattern", [each[0] for each in RULES.values()], ids=list(RULES))
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_spec_of_the_peers_is_written_by_us_byte_for_byte(
    shared: SharedQueue, pattern: dict[str, Any], policy: str
) -> None:
    key = await shared.peer_repeat(
        "tick", {"x": 1}, pattern=pattern, missed_fires=POLICIES[policy][0], limit=3
    )
    raw = shared.admin.hget(shared.keys.spec(key), SPEC)
    assert encode_spec(decode_spec(raw)) == raw


async def test_each_removes_the_schedules_of_the_other(shared: SharedQueue) -> None:
    theirs = await shared.peer_repeat("theirs", pattern=EVERY)
    ours = (await shared.queue.schedules.add("ours", Every(60), overlap=Overlap.SKIP)).key
    assert await shared.queue.schedules.remove(theirs)
    assert await shared.ask("unrepeat", key=ours)
    assert await shared.queue.schedules.list() == await shared.ask("repeats") == []
    assert shared.admin.keys(b"*:repeat*") == []
    assert not await shared.queue.schedules.remove(ours)
    assert not await shared.ask("unrepeat", key=theirs)


async def test_a_paused_schedule_is_gone_for_the_peer_and_comes_back(shared: SharedQueue) -> None:
    key = await shared.peer_repeat("tick", pattern=EVERY)
    assert await shared.queue.schedules.pause(key)
    assert await shared.ask("repeats") == []
    assert (await the_one(shared)).paused
    assert await shared.queue.schedules.resume(key)
    assert (await the_one_there(shared))["key"] == key


async def test_a_paused_schedule_that_the_peer_removes_is_removed(shared: SharedQueue) -> None:
    """It deletes the spec and says that there was none, since it looks into one place only."""
    key = (await shared.queue.schedules.add("tick", Every(60))).key
    await shared.queue.schedules.pause(key)
    assert not await shared.ask("unrepeat", key=key)
    assert await shared.queue.schedules.list() == []
    stored = await shared.queue.schedules.add("tick", Every(60))
    assert (stored.key, stored.paused) == (key, False)


async def test_settings_of_ours_do_not_outlive_a_spec_that_the_peer_writes_over(
    shared: SharedQueue,
) -> None:
    never = TimeWindow(days=["mon"], segments=[("00:00", "00:01")], tz="UTC")
    await shared.queue.schedules.add(
        "tick", Every(60), key="k", window=never, overlap=Overlap.SKIP, attempts=3, timeout=9
    )
    spec = {"key": "k", "job_name": "tock", "pattern": {"kind": "every", "interval_ms": 5_000}}
    assert await shared.ask("repeat_as", data=packed(2), spec=spec) == "k"
    assert shared.admin.hget(shared.keys.spec("k"), OWN) is not None
    found = await the_one(shared)
    assert (found.name, found.rule, found.data) == ("tock", Every(5), 2)
    settings = found.settings
    assert (settings.window, settings.overlap, settings.attempts) == (None, Overlap.ALLOW, None)


async def test_the_same_spec_written_by_the_peer_keeps_our_settings(shared: SharedQueue) -> None:
    """Nothing was changed by that, except that the peer counts from now on again."""
    await shared.queue.schedules.add("tick", Every(60), 1, overlap=Overlap.SKIP, attempts=3)
    await shared.peer_repeat("tick", 1, pattern=EVERY)
    settings = (await the_one(shared)).settings
    assert (settings.overlap, settings.attempts) == (Overlap.SKIP, 3)


async def test_replacing_the_peers_schedule_keeps_its_next_fire_and_counts(
    shared: SharedQueue,
) -> None:
    key = await shared.peer_repeat("tick", 1, pattern=EVERY, limit=9)
    shared.admin.hset(shared.keys.spec(key), "fired", 4)
    before = (await the_one(shared)).next_at
    stored = await shared.queue.schedules.add("tick", Every(60), 2, limit=9)
    assert (stored.next_at, stored.counts.fired, stored.data) == (before, 4, 2)
    assert (await the_one_there(shared))["next_fire_ms"] == before.timestamp() * 1000  # type: ignore[union-attr]
