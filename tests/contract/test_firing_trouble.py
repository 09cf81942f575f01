"""Schedules in bad company: specs that cannot be read, other leaders, servers that refuse."""

import logging
from uuid import uuid4

import pytest

from tampu import Every
from tampu.metrics import Firings, LeadChanged, MemorySink
from tampu.wire.event import EventKind
from tampu.wire.holders import HolderKind, LockHolder, new_holder
from tests.contract.schedules import (
    SOON,
    instants,
    now_ms,
    score,
    store_raw,
    until_gone,
)
from tests.contract.workers import KEYS, Calls, Harness
from tests.golden.chasquimq import golden
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


class TestBadNeighbours:
    async def test_an_undecodable_schedule_stays_and_does_not_block_others(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING)
        for number in range(300):
            store_raw(harness, f"bad-{number}", b"nonsense", 1000 + number)
        harness.admin.zadd(KEYS.repeat, {"odd": 7, "dangling": 8, "never": "-inf"})
        harness.admin.set(KEYS.spec("odd"), "text")
        harness.admin.hset(KEYS.spec("never"), "spec", b"x")
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.05), limit=3)
        await calls.until(3)
        assert score(harness, "bad-0") == 1000
        assert harness.admin.hget(KEYS.spec("bad-0"), "spec") == b"nonsense"
        assert harness.admin.zcard(KEYS.repeat) == 302
        assert score(harness, "dangling") is None, "nothing can ever come of it"
        logged = [each for each in caplog.records if "cannot read schedule" in each.message]
        assert len(logged) == 302, "each is logged once"

    async def test_a_payload_of_another_kind_is_left_where_it_is(self, harness: Harness) -> None:
        spec = golden("specs")[0].values[0]["spec_hex"]
        slot = golden("specs")[0].values[0]["slot_hex"]
        broken = spec.replace(slot, "c7" + slot[2:])
        assert broken != spec
        store_raw(harness, "bad", bytes.fromhex(broken), 1)
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.05), limit=1)
        await calls.until(1)
        assert score(harness, "bad") == 1


class TestLeading:
    async def test_the_lock_names_a_scheduler_and_is_given_up(self, harness: Harness) -> None:
        sink = MemorySink()
        worker = await harness.start_worker(Calls(), metrics=sink)
        await wait_until(
            lambda: harness.admin.exists(KEYS.scheduler_lock), within=SOON, sentence="it leads"
        )
        holder = LockHolder(harness.admin.get(KEYS.scheduler_lock).decode())
        assert holder.kind is HolderKind.SCHEDULER
        assert 0 < harness.admin.ttl(KEYS.scheduler_lock) <= 5
        await worker.stop()
        assert not harness.admin.exists(KEYS.scheduler_lock)
        assert LeadChanged("schedule-firer", leads=True) in sink.of(LeadChanged)

    async def test_nothing_fires_while_a_peer_leads(self, harness: Harness) -> None:
        peer = new_holder(HolderKind.SCHEDULER, uuid4()).to_bytes()
        harness.admin.set(KEYS.scheduler_lock, peer)
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.05), key="k")
        before = score(harness, "k")
        await harness.queue.add("plain", 1)
        await calls.until(1)
        await wait_until(
            lambda: now_ms() > (before or 0) + 600, within=SOON, sentence="it was asked twice"
        )
        assert [job.name for job in calls.jobs] == ["plain"]
        assert score(harness, "k") == before
        harness.admin.delete(KEYS.scheduler_lock)
        await calls.until(3)

    async def test_a_leader_that_was_replaced_fires_nothing(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.02), key="k")
        await calls.until(3)
        peer = new_holder(HolderKind.SCHEDULER, uuid4()).to_bytes()
        harness.admin.set(KEYS.scheduler_lock, peer)  # as if its lease had run out during a pause
        at = score(harness, "k")
        harness.reset_calls()
        await wait_until(
            lambda: now_ms() > (at or 0) + 300, within=SOON, sentence="it would have fired"
        )
        assert score(harness, "k") == at
        assert harness.calls() < 100, "it knows that it leads no more, and does not try on and on"


class TestTelling:
    async def test_each_fire_is_an_event_and_a_fact(self, harness: Harness) -> None:
        sink, calls = MemorySink(), Calls()
        await harness.start_worker(calls, metrics=sink)
        await harness.queue.schedules.add("tick", Every(0.05), key="k", limit=2)
        await until_gone(harness, "k")
        await harness.until_settled()
        told = [event for event in harness.events() if event.kind is EventKind.FIRED]
        assert [(event.job_id, event.name) for event in told] == [
            (job.id, "tick") for job in calls.jobs
        ]
        assert sum(fact.fired for fact in sink.of(Firings)) == 2

    async def test_without_events_nothing_is_published(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls, events=False)
        await harness.queue.schedules.add("", Every(0.05), limit=1)
        await calls.until(1)
        assert harness.events() == []


class TestTrouble:
    async def test_a_full_server_fires_nothing_and_catches_up(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.1), key="k")
        await calls.until(2)
        harness.admin.config_set("maxmemory", 1)
        try:
            at = score(harness, "k") or 0
            await wait_until(
                lambda: now_ms() > at + 500, within=SOON, sentence="instants pass unfired"
            )
            assert (score(harness, "k") or 0) <= at + 100
        finally:
            harness.admin.config_set("maxmemory", 0)
        await calls.until(12)
        found = instants(calls)
        assert found == [found[0] + 100 * n for n in range(len(found))]

    async def test_a_server_that_wants_replicas_is_waited_for(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.1), key="k")
        await calls.until(2)
        harness.admin.config_set("min-replicas-to-write", 1)
        try:
            at = score(harness, "k") or 0
            await wait_until(
                lambda: now_ms() > at + 500, within=SOON, sentence="instants pass unfired"
            )
        finally:
            harness.admin.config_set("min-replicas-to-write", 0)
        await calls.until(10)
        found = instants(calls)
        assert sorted(found) == [min(found) + 100 * n for n in range(len(found))]

    async def test_scripts_that_the_server_forgot_are_loaded_again(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.schedules.add("tick", Every(0.05), key="k")
        await calls.until(2)
        harness.admin.script_flush()
        await calls.until(5)
        found = instants(calls)
        assert found == [found[0] + 50 * n for n in range(len(found))]
