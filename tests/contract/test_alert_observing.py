"""What alerts see of a queue and its server: everything that a condition needs, and no more."""

from collections.abc import AsyncIterator, Sequence

import pytest

from tampu import Alert, Every, Missed
from tampu.admin.alerts import AlertObserver, late_schedules, read_server_memory
from tampu.consumer import history
from tampu.metrics.alerts import Fire, evaluate
from tampu.metrics.conditions import Observation
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms, store_for
from tampu.wire.history import PackedProcess, encode_history
from tests.contract.schedules import arm, until_counted
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Gate, Harness
from tests.servers import RunningServer
from tests.waiting import wait_until


def observer(lane: Lane, alerts: Sequence[Alert]) -> AlertObserver:
    return AlertObserver(
        lane,
        KEYS,
        group=b"default",
        needs={need for each in alerts for need in each.condition.needs},
        minutes=max(each.minutes for each in alerts),
    )


async def fires(lane: Lane, alert: Alert) -> bool:
    now_ms, seen = await observer(lane, [alert]).observe()
    return isinstance(evaluate(alert, seen, None, now_ms=now_ms), Fire)


@pytest.fixture
async def lane(server: Server) -> AsyncIterator[Lane]:
    async with await Lane.open(server, KEYS.stream) as opened:
        yield opened


@pytest.mark.every_server
async def test_jobs_are_seen_whether_they_wait_run_or_are_due_and_so_are_workers(
    harness: Harness, lane: Lane
) -> None:
    alert = Alert.no_workers(QUEUE, for_=0)
    assert not await fires(lane, alert)
    await harness.queue.add("x", delay="1h")
    assert not await fires(lane, alert)
    await harness.queue.add("x", delay=0.001)
    await wait_until(lambda: fires(lane, alert), within=SOON, sentence="a delayed job is due")
    assert await fires(lane, alert)
    gate = Gate()
    worker = await harness.start_worker(gate)
    await gate.until(1)
    assert not await fires(lane, alert)
    gate.open.set()
    await worker.stop()


@pytest.mark.every_server
async def test_a_consumer_of_a_peer_counts_while_it_asks_for_jobs(
    harness: Harness, lane: Lane
) -> None:
    alert = Alert.no_workers(QUEUE, for_=0)
    await harness.queue.add("x")
    harness.admin.xgroup_create(KEYS.stream, "default", "0")
    assert await fires(lane, alert)
    harness.admin.xreadgroup("default", "c-peer", {KEYS.stream: ">"}, count=1)
    assert not await fires(lane, alert)
    harness.admin.xack(KEYS.stream, "default", *[i for i, _ in harness.admin.xrange(KEYS.stream)])


@pytest.mark.every_server
async def test_the_age_of_the_oldest_waiting_job_is_seen(harness: Harness, lane: Lane) -> None:
    alert = Alert.oldest(QUEUE, "1h", for_=0)
    await harness.queue.add("x")
    assert not await fires(lane, alert)
    long_ago_ms = await server_time_ms(lane) - 3_601_000
    harness.admin.delete(KEYS.stream)
    harness.admin.xadd(KEYS.stream, {"d": b"x"}, id=f"{long_ago_ms}-0")
    assert await fires(lane, alert)


async def test_failures_and_dead_letters_are_seen_in_the_history(
    harness: Harness, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EVERY_S", 0.1)
    await harness.start_worker({"bad": Boom(), "good": Calls()}, attempts=1)
    await harness.queue.add_each("bad", range(3))
    await harness.queue.add_each("good", range(3))
    rate = Alert.failure_rate(QUEUE, "bad", at_least=3, for_=0)
    assert await _soon(lane, rate)
    assert await _soon(lane, Alert.failure_rate(QUEUE, above=0.4, at_least=6, for_=0))
    assert await _soon(lane, Alert.dead_growing(QUEUE, more_than=2, for_=0))
    assert not await fires(lane, Alert.dead_growing(QUEUE, more_than=3, for_=0))
    assert not await fires(lane, Alert.failure_rate(QUEUE, "good", at_least=1, for_=0))
    await harness.dead_letters(3)


async def _soon(lane: Lane, alert: Alert) -> bool:
    await wait_until(lambda: fires(lane, alert), within=SOON, sentence=f"{alert.key} fires")
    return True


async def test_minutes_that_are_over_are_read_once(harness: Harness, lane: Lane) -> None:
    watching = observer(lane, [Alert.dead_growing(QUEUE, within="1h")])
    await watching.observe()
    harness.reset_calls()
    _, seen = await watching.observe()
    assert seen.minutes is not None
    assert len(seen.minutes) == 61
    assert harness.calls("hgetall") <= 4  # one more if a minute has just begun


@pytest.mark.every_server
async def test_a_schedule_is_late_unless_it_waits_for_an_earlier_job(
    harness: Harness, lane: Lane
) -> None:
    alert = Alert.schedule_missed(QUEUE, "old", by="1m", for_=0)
    await harness.queue.schedules.add("tick", Every("1h"), key="old")
    assert await late_schedules(lane, KEYS) == {}
    past_ms = await server_time_ms(lane) - 61_000
    harness.admin.zadd(KEYS.repeat, {"old": past_ms})
    late = await late_schedules(lane, KEYS)
    assert list(late) == ["old"]
    assert late["old"] >= 61_000
    assert await fires(lane, alert)
    harness.admin.hset(KEYS.spec("old"), "held", past_ms)
    assert await late_schedules(lane, KEYS) == {}


@pytest.mark.every_server
async def test_fires_that_the_missed_policy_skipped_are_seen_afterwards(
    harness: Harness, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EVERY_S", 0.1)
    late = Missed.SKIP.within(grace="1s")
    for key in ("one", "two"):
        await harness.queue.schedules.add("tick", Every(60), key=key, missed=late)
    arm(harness, "one", await server_time_ms(lane) - 150_000)
    await harness.start_worker(Calls())
    await until_counted(harness, "one", missed=3)
    assert await late_schedules(lane, KEYS) == {}, "it is armed for its next instant again"
    await harness.queue.add_each("tick", range(3))  # so there is something to record
    assert await _soon(lane, Alert.schedule_missed(QUEUE, for_=0))
    assert await fires(lane, Alert.schedule_missed(QUEUE, "one", for_=0))
    assert not await fires(lane, Alert.schedule_missed(QUEUE, "two", for_=0))


@pytest.mark.every_server
async def test_the_memory_and_the_policy_of_the_server_are_seen(
    running: RunningServer, lane: Lane
) -> None:
    memory = await read_server_memory(lane)
    assert memory is not None
    assert memory.used > 0
    assert memory.limit == 0
    assert memory.machine > memory.used
    full, evicting = Alert.server_memory(above=0.01, for_=0), Alert.eviction(for_=0)
    assert not await fires(lane, evicting)
    with running.admin() as admin:
        admin.config_set("maxmemory", 4 * memory.used)
        admin.config_set("maxmemory-policy", "allkeys-lru")
        try:
            assert await fires(lane, full)
            assert await fires(lane, evicting)
        finally:
            admin.config_set("maxmemory-policy", "noeviction")
            admin.config_set("maxmemory", 0)


@pytest.mark.every_server
async def test_the_lag_of_a_worker_is_seen_in_its_report(harness: Harness, lane: Lane) -> None:
    worker = await harness.start_worker(Calls(), history=False)
    alert = Alert.loop_lag(QUEUE, above="1s", for_=0)
    assert not await fires(lane, alert)
    report = PackedProcess(0, "h", 1, 2, 0.5, 1500.0, 4, [], 0, "v", "3.11", "")
    key = KEYS.process(worker.id.encode())
    await store_for(lane, key, encode_history(report), ttl_ms=30_000)
    assert await fires(lane, alert)


async def test_nothing_is_asked_that_no_alert_needs(harness: Harness, lane: Lane) -> None:
    harness.reset_calls()
    _, seen = await observer(lane, [Alert.eviction()]).observe()
    assert seen == Observation(memory=seen.memory)
    asked = set(harness.admin.info("commandstats"))
    assert {name for name in asked if "info" in name} == {"cmdstat_info"}
    assert not {name for name in asked if name.startswith(("cmdstat_x", "cmdstat_z"))}
