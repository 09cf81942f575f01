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
from tests.contract.workers import KEYS, Calls, Crew
from tests.golden.chasquimq import golden
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


class TestBadNeighbours:
    async def test_what_cannot_be_read_stops_nobody_and_stays(
        self, crew: Crew, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING)
        for number in range(300):
            store_raw(crew, f"bad-{number}", b"nonsense", 1000 + number)
        crew.admin.zadd(KEYS.repeat, {"odd": 7, "dangling": 8, "never": "-inf"})
        crew.admin.set(KEYS.spec("odd"), "text")
        crew.admin.hset(KEYS.spec("never"), "spec", b"x")
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.schedule("tick", Every(0.05), limit=3)
        await calls.until(3)
        assert score(crew, "bad-0") == 1000
        assert crew.admin.hget(KEYS.spec("bad-0"), "spec") == b"nonsense"
        assert crew.admin.zcard(KEYS.repeat) == 302
        assert score(crew, "dangling") is None, "nothing can ever come of it"
        logged = [each for each in caplog.records if "cannot read schedule" in each.message]
        assert len(logged) == 302, "each is logged once"

    async def test_a_payload_of_another_kind_is_left_where_it_is(self, crew: Crew) -> None:
        spec = golden("specs")[0].values[0]["spec_hex"]
        slot = golden("specs")[0].values[0]["slot_hex"]
        broken = spec.replace(slot, "c7" + slot[2:])
        assert broken != spec
        store_raw(crew, "bad", bytes.fromhex(broken), 1)
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.schedule("tick", Every(0.05), limit=1)
        await calls.until(1)
        assert score(crew, "bad") == 1


class TestLeading:
    async def test_the_lock_names_a_scheduler_and_is_given_up(self, crew: Crew) -> None:
        sink = MemorySink()
        worker = await crew.hire(Calls(), metrics=sink)
        await wait_until(
            lambda: crew.admin.exists(KEYS.scheduler_lock), within=SOON, sentence="it leads"
        )
        holder = LockHolder(crew.admin.get(KEYS.scheduler_lock).decode())
        assert holder.kind is HolderKind.SCHEDULER
        assert 0 < crew.admin.ttl(KEYS.scheduler_lock) <= 5
        await worker.stop()
        assert not crew.admin.exists(KEYS.scheduler_lock)
        assert LeadChanged("schedule-firer", leads=True) in sink.of(LeadChanged)

    async def test_nothing_fires_while_a_peer_leads(self, crew: Crew) -> None:
        peer = new_holder(HolderKind.SCHEDULER, uuid4()).to_bytes()
        crew.admin.set(KEYS.scheduler_lock, peer)
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.schedule("tick", Every(0.05), key="k")
        before = score(crew, "k")
        await crew.queue.add("plain", 1)
        await calls.until(1)
        await wait_until(
            lambda: now_ms() > (before or 0) + 600, within=SOON, sentence="it was asked twice"
        )
        assert [job.name for job in calls.jobs] == ["plain"]
        assert score(crew, "k") == before
        crew.admin.delete(KEYS.scheduler_lock)
        await calls.until(3)

    async def test_a_leader_that_was_replaced_fires_nothing(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.schedule("tick", Every(0.02), key="k")
        await calls.until(3)
        peer = new_holder(HolderKind.SCHEDULER, uuid4()).to_bytes()
        crew.admin.set(KEYS.scheduler_lock, peer)  # as if its lease had run out during a pause
        at = score(crew, "k")
        crew.forget_calls()
        await wait_until(
            lambda: now_ms() > (at or 0) + 300, within=SOON, sentence="it would have fired"
        )
        assert score(crew, "k") == at
        assert crew.calls() < 100, "it knows that it leads no more, and does not try on and on"


class TestTelling:
    async def test_each_fire_is_an_event_and_a_fact(self, crew: Crew) -> None:
        sink, calls = MemorySink(), Calls()
        await crew.hire(calls, metrics=sink)
        await crew.queue.schedule("tick", Every(0.05), key="k", limit=2)
        await until_gone(crew, "k")
        await crew.settled()
        told = [event for event in crew.events() if event.kind is EventKind.FIRED]
        assert [(event.job_id, event.name) for event in told] == [
            (job.id, "tick") for job in calls.jobs
        ]
        assert sum(fact.fired for fact in sink.of(Firings)) == 2

    async def test_without_events_nothing_is_told(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls, events=False)
        await crew.queue.schedule("", Every(0.05), limit=1)
        await calls.until(1)
        assert crew.events() == []


class TestTrouble:
    async def test_a_full_server_fires_nothing_and_catches_up(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.schedule("tick", Every(0.1), key="k")
        await calls.until(2)
        crew.admin.config_set("maxmemory", 1)
        try:
            at = score(crew, "k") or 0
            await wait_until(
                lambda: now_ms() > at + 500, within=SOON, sentence="instants pass unfired"
            )
            assert (score(crew, "k") or 0) <= at + 100
        finally:
            crew.admin.config_set("maxmemory", 0)
        await calls.until(12)
        found = instants(calls)
        assert found == [found[0] + 100 * n for n in range(len(found))]

    async def test_a_server_that_wants_replicas_is_waited_for(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.schedule("tick", Every(0.1), key="k")
        await calls.until(2)
        crew.admin.config_set("min-replicas-to-write", 1)
        try:
            at = score(crew, "k") or 0
            await wait_until(
                lambda: now_ms() > at + 500, within=SOON, sentence="instants pass unfired"
            )
        finally:
            crew.admin.config_set("min-replicas-to-write", 0)
        await calls.until(10)
        found = instants(calls)
        assert sorted(found) == [min(found) + 100 * n for n in range(len(found))]

    async def test_scripts_that_the_server_forgot_are_loaded_again(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.schedule("tick", Every(0.05), key="k")
        await calls.until(2)
        crew.admin.script_flush()
        await calls.until(5)
        found = instants(calls)
        assert found == [found[0] + 50 * n for n in range(len(found))]
