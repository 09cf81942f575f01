"""Jobs with flow control: retries, delays, dead letters, and a server in trouble."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
import redis

from tampu import Batch, BuryReason, Every, Handler, Job, NewJob, QueueFull, Snooze
from tampu.backoff import Backoff
from tampu.consumer.gate import GateRoom
from tampu.errors import TampuError
from tampu.limits import Concurrency, Limit, Rate, RateLimited
from tampu.queue import Queue
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.conftest import Start
from tests.contract.workers import GROUP, KEYS, QUEUE, SOON, Boom, Calls, Gate, Harness, until_empty
from tests.gates import ManualGate, assert_empty, look_at_gate, slots
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

LIMIT = [Concurrency(1)]


# --- with workers ---------------------------------------------------------------------------------


async def test_a_concurrency_holds_over_workers(harness: Harness) -> None:
    gate = Gate()
    for _ in range(3):
        await harness.start_worker(gate, concurrency=10)
    await harness.queue.add_each("j", range(20), limits=[Concurrency(4)])
    await gate.until(4)
    gate.open.set()
    await gate.until(20)
    await until_empty(harness)
    assert gate.most == 4
    assert sorted(gate.data) == list(range(20))


async def test_jobs_that_a_worker_releases_unstarted_give_back_their_tokens(
    harness: Harness,
) -> None:
    calls = Calls()
    worker = await harness.start_worker(Handler(calls, batch=Batch(4, wait="1h")))
    await harness.queue.add_each("j", range(3), limits=[Rate("3/h", burst=3)])
    await wait_until(lambda: harness.pending() == 3, within=SOON, sentence="it has taken all")
    await worker.stop()
    assert calls.jobs == []
    await harness.start_worker(calls)
    await until_empty(harness)
    assert calls.data == [0, 1, 2]


async def test_a_worker_that_takes_no_more_still_settles_at_the_gate(
    gate: ManualGate, lane: Lane
) -> None:
    await gate.queue.add("j", 0, limits=LIMIT)
    room = GateRoom(lane, gate.keys, consumer=b"w-1")
    room.learn(is_open=True)
    room.offer(5)
    room.start()
    want = gate.keys.gate + b":want"
    await wait_until(lambda: gate.admin.hget(want, "w-1") == b"5", within=SOON, sentence="it told")
    await room.stop()
    assert gate.admin.hexists(want, "w-1") is False
    assert room.is_open, "what still runs would be acknowledged without giving its slot back"


async def test_a_retry_gives_its_slot_back_while_it_waits(harness: Harness) -> None:
    calls = Boom(times=1)
    await harness.start_worker(calls, backoff=Backoff.fixed(60), attempts=5)
    await harness.queue.add_each("j", range(5), limits=LIMIT)
    await calls.until(5)
    await wait_until(lambda: slots(harness.admin, KEYS) == {}, within=SOON, sentence="all is free")
    assert calls.data == [0, 1, 2, 3, 4]
    assert harness.admin.zcard(KEYS.delayed) == 1


async def test_a_retry_comes_back_through_its_line(harness: Harness) -> None:
    gate = Gate()
    attempts: list[int] = []

    async def fail_first(job: Job[Any]) -> None:
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise ValueError("again")
        await gate(job)

    await harness.start_worker(fail_first, backoff=Backoff.fixed(0.01), attempts=5)
    await harness.queue.add_each("j", range(4), limits=LIMIT)
    gate.open.set()
    await gate.until(4)
    await until_empty(harness)
    assert sorted(attempts) == [1] * 4 + [2] * 4 + [3] * 4
    assert gate.most == 1


async def test_a_snoozed_job_holds_nothing(harness: Harness) -> None:
    calls = Boom(Snooze(60), times=1)
    await harness.start_worker(calls)
    await harness.queue.add_each("j", range(3), limits=LIMIT)
    await calls.until(3)
    await wait_until(lambda: slots(harness.admin, KEYS) == {}, within=SOON, sentence="all is free")


async def test_a_delayed_job_meets_its_limit_when_it_is_due(harness: Harness) -> None:
    gate = Gate()
    await harness.start_worker(gate)
    await harness.queue.add_each("j", range(3), limits=LIMIT, delay=timedelta(milliseconds=20))
    await gate.until(1)
    await wait_until(
        lambda: look_at_gate(harness.admin, KEYS).lined == 2, within=SOON, sentence="two wait"
    )
    gate.open.set()
    await gate.until(3)
    await until_empty(harness)
    assert gate.most == 1


async def test_a_job_that_a_peer_promoted_past_the_gate_is_sent_back(harness: Harness) -> None:
    gate = Gate()
    await harness.start_worker(gate, concurrency=5)
    await harness.queue.add("j", 0, limits=LIMIT)
    await gate.until(1)
    await harness.queue.add_each("j", range(1, 4), limits=LIMIT, delay="1h")
    for raw in harness.admin.zrange(KEYS.delayed, 0, -1):
        size = int.from_bytes(raw[:4], "little")
        harness.admin.zrem(KEYS.delayed, raw)
        harness.add_entry({"d": raw[4 + size :], "n": raw[4 : 4 + size]})
    await wait_until(
        lambda: look_at_gate(harness.admin, KEYS).lined == 3, within=SOON, sentence="they wait"
    )
    gate.open.set()
    await gate.until(4)
    await until_empty(harness)
    assert gate.most == 1
    assert gate.attempts == [1] * 4


async def test_a_job_that_is_run_before_it_is_due_meets_its_limit(harness: Harness) -> None:
    gate = Gate()
    await harness.start_worker(gate)
    await harness.queue.add("j", 0, limits=LIMIT)
    await gate.until(1)
    later = await harness.queue.add("j", 1, limits=LIMIT, delay="1h")
    assert await later.run_now() is True
    assert look_at_gate(harness.admin, KEYS).lined == 1
    gate.open.set()
    await gate.until(2)
    await until_empty(harness)


async def test_jobs_of_a_schedule_wait_behind_others(harness: Harness) -> None:
    gate = Gate()
    await harness.start_worker(gate, concurrency=1)
    await harness.queue.add("first", 0, priority=9)
    await gate.until(1)
    await harness.queue.schedules.add("tick", Every(0.02), {"n": 1}, limit=3)
    await wait_until(
        lambda: look_at_gate(harness.admin, KEYS).lined + harness.admin.xlen(KEYS.stream) >= 4,
        within=SOON,
        sentence="it has fired",
    )
    await harness.queue.add("urgent", 9, priority=9)
    gate.open.set()
    await gate.until(5)
    await until_empty(harness)
    assert [job.name for job in gate.jobs].count("tick") == 3


async def test_a_replayed_dead_letter_goes_through_the_gate(harness: Harness) -> None:
    boom = Boom(times=2)
    worker = await harness.start_worker(boom, attempts=1)
    await harness.queue.add_each("j", range(2), limits=LIMIT)
    await harness.dead_letters(2)
    await worker.stop()
    gate = Gate()
    await harness.start_worker(gate, attempts=1)
    assert await harness.queue.dead.replay() == 2
    await gate.until(1)
    assert look_at_gate(harness.admin, KEYS).lined == 1
    gate.open.set()
    await gate.until(2)
    await until_empty(harness)
    assert gate.most == 1


async def test_rate_limited_closes_the_limit_for_all_workers(harness: Harness) -> None:
    began: list[tuple[float, int]] = []

    async def limited(job: Job[Any]) -> None:
        began.append((time.monotonic(), job.attempt))
        if len(began) == 1:
            raise RateLimited(0.4)

    harness.admin.hset(KEYS.gate + b":limits", "api", "1 0 0 1 0")
    for _ in range(2):
        await harness.start_worker(limited)
    await harness.queue.add_each("j", range(5), limits=[Limit("api")])
    await wait_until(lambda: len(began) == 6, within=SOON, sentence="all have run")
    await until_empty(harness)
    (first, _), (second, attempt), *_ = began
    assert second - first >= 0.39
    assert attempt == 1, "it does not count"


async def test_rate_limited_may_name_one_limit_of_several(harness: Harness) -> None:
    calls: list[tuple[str, str]] = []

    async def limited(job: Job[Any]) -> None:
        calls.append((job.name, job.data["t"]))
        if len(calls) == 1:
            raise RateLimited(600, limit="a")

    for name in "ab":
        harness.admin.hset(KEYS.gate + b":limits", name, "5 0 0 1 0")
    await harness.start_worker(limited, concurrency=1)
    both = [Limit("a", by="t"), Limit("b")]
    await harness.queue.add("j", {"t": "x"}, limits=both)
    await wait_until(
        lambda: harness.admin.exists(KEYS.gate + b":over") == 1,
        within=SOON,
        sentence="it is closed",
    )
    await harness.queue.add("j", {"t": "x"}, limits=both)
    await harness.queue.add("j", {"t": "y"}, limits=both)
    await wait_until(lambda: len(calls) == 2, within=SOON, sentence="another has run")
    assert calls[1] == ("j", "y")
    assert look_at_gate(harness.admin, KEYS).lined == 2


async def test_an_expired_job_takes_no_slot_and_no_token(harness: Harness) -> None:
    gate = Gate()
    limits = (Rate("2/h", burst=2), Concurrency(1))
    await harness.start_worker(gate)
    await harness.queue.add("j", "first", limits=limits)
    await gate.until(1)
    await harness.queue.add_each("j", ["late"] * 5, limits=limits, expires=0.05)
    await harness.queue.add("j", "last", limits=limits)
    await asyncio.sleep(0.1)  # they expire
    gate.open.set()
    await gate.until(2)
    assert gate.data == ["first", "last"]
    letters = await harness.dead_letters(5)
    assert {letter.reason for letter in letters} == {BuryReason.EXPIRED}
    await until_empty(harness)


async def test_an_expired_job_does_not_run_beside_the_limit_on_a_worker_whose_clock_is_slow(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    await harness.start_worker(gate)
    await harness.queue.add("j", "first", limits=LIMIT)
    await gate.until(1)
    await harness.queue.add_each("j", ["late"] * 5, limits=LIMIT, expires=0.05)
    await asyncio.sleep(0.1)  # they expire
    monkeypatch.setattr("tampu.consumer.feed.now_ms", lambda: round(time.time() * 1000) - 60_000)
    gate.open.set()
    await harness.dead_letters(5)
    await until_empty(harness)
    assert gate.data == ["first"]


async def test_entries_that_a_peer_settled_give_their_slots_back(harness: Harness) -> None:
    """Whoever leads finds them; a peer's worker acknowledges and deletes, and knows no gate."""
    gate = Gate()
    await harness.start_worker(gate, concurrency=5)
    await harness.queue.add_each("j", range(6), limits=[Concurrency(2)])
    await gate.until(2)
    held = [
        each["message_id"] for each in harness.admin.xpending_range(KEYS.stream, GROUP, "-", "+", 9)
    ]
    harness.admin.xack(KEYS.stream, GROUP, *held)
    harness.admin.xdel(KEYS.stream, *held)
    await gate.until(4)
    gate.open.set()
    await gate.until(6)
    await until_empty(harness)
    assert sorted(gate.data) == list(range(6))


# --- adding ---------------------------------------------------------------------------------------


async def test_jobs_in_lines_count_for_the_longest_queue(running: RunningServer) -> None:
    async with Queue(QUEUE, running.url, max_len=10) as queue:
        await queue.add_each("j", range(10), limits=LIMIT)
        with pytest.raises(QueueFull):
            await queue.add("j", 10, limits=LIMIT)
        with pytest.raises(QueueFull):
            await queue.add("j", 10)
        with running.admin() as admin:
            assert look_at_gate(admin, KEYS).lined == 10


async def test_an_add_whose_reply_was_lost_adds_nothing_twice(running: RunningServer) -> None:
    async with Proxy(running.port) as proxy, Queue(QUEUE, proxy.url) as queue:
        await queue.add("j", 0, limits=LIMIT)
        proxy.deafening = b"$0\r\n\r\n"
        adding = asyncio.create_task(queue.add("j", 1, limits=LIMIT))
        await wait_until(lambda: proxy.swallowed > 0, within=SOON, sentence="the reply is lost")
        proxy.deafening = None
        proxy.cut()
        await adding
        with running.admin() as admin:
            assert look_at_gate(admin, KEYS).lined == 2


async def test_a_server_that_forgets_its_scripts_loses_nothing(harness: Harness) -> None:
    calls = Calls()
    await harness.start_worker(calls, concurrency=5)
    for round_ in range(10):
        harness.admin.script_flush()
        jobs = [NewJob("j", n, key=n % 3, limits=[Concurrency(2)]) for n in range(10)]
        await harness.queue.add_many(jobs)
        harness.admin.script_flush()
        await calls.until(10 * round_ + 5)
    await calls.until(100)
    await until_empty(harness)
    assert len(calls) == 100


async def test_at_the_memory_limit_an_add_leaves_nothing_half_written(gate: ManualGate) -> None:
    await gate.queue.add_each("j", range(20), limits=[Concurrency(3)], key="k")
    await gate.want(50)
    held, before = gate.read(), look_at_gate(gate.admin, gate.keys)
    gate.admin.config_set("maxmemory-policy", "noeviction")
    gate.admin.config_set("maxmemory", 1)
    try:
        for options in ({"limits": LIMIT}, {"key": "new"}, {"priority": 9}, {}):
            with pytest.raises(TampuError):
                await gate.queue.add("other", 1, **options)
        assert look_at_gate(gate.admin, gate.keys) == before
        done = []
        while held:
            done += [job.data for job in held]
            assert await gate.settle(held) == len(held)
            gate.sound()
            held = gate.read()
    finally:
        gate.admin.config_set("maxmemory", 0)
    assert done == list(range(20))
    assert_empty(gate.admin, gate.keys)
    await gate.queue.add("other", 1, limits=LIMIT)
    gate.sound()


async def test_at_the_memory_limit_the_first_job_of_a_gate_leaves_nothing_behind(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        await queue.add("plain", 1)
        admin.config_set("maxmemory-policy", "noeviction")
        admin.config_set("maxmemory", 1)
        try:
            with pytest.raises(TampuError):
                await queue.add("j", 1, limits=LIMIT, job_id="mine")
        finally:
            admin.config_set("maxmemory", 0)
        keys: Any = admin.keys()
        assert [key for key in keys if b":gate" in key] == []
        await queue.add("j", 1, limits=LIMIT, job_id="mine")
        assert look_at_gate(admin, KEYS).lined == 1


async def test_a_server_that_starts_again_knows_what_is_held(start: Start) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "no")
    keys, gate = QueueKeys(QUEUE), Gate()
    async with Queue(QUEUE, server.url) as queue:
        async with Worker(QUEUE, gate, server.url, concurrency=5):
            await queue.add_each("j", range(20), limits=[Concurrency(2)])
            await gate.until(2)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            gate.open.set()
            await gate.until(20)
            with server.admin() as admin:
                await wait_until(
                    lambda: look_at_gate(admin, keys).lined == 0 == admin.xlen(keys.stream),
                    within=SOON,
                    sentence="all have ended",
                )
                assert_empty(admin, keys)
    assert gate.most == 2
