"""Promoting with a server that refuses, is full, or has keys of the wrong type."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.promoting import make_promoter, until_leader_is
from tests.contract.workers import KEYS, SOON, Calls, Harness
from tests.servers import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


@pytest.fixture(params=["replica", "no replicas"])
def refusing(harness: Harness, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Make the server refuse writes: as a replica, or as a primary without replicas."""
    admin = harness.admin

    def refuse(*, on: bool) -> None:
        if request.param == "replica":
            admin.replicaof(*(("127.0.0.1", free_port()) if on else ("NO", "ONE")))
        else:
            admin.config_set("min-replicas-to-write", int(on))

    yield refuse
    refuse(on=False)


async def test_it_promotes_again_when_the_server_accepts_writes(
    harness: Harness,
    refusing: Any,  # noqa: ANN401 - a function with a keyword
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = Calls()
    await harness.start_worker(calls, promote=False)
    async with make_promoter(harness) as promoter:
        await until_leader_is(harness, promoter.id)
        await harness.queue.add("a", 1, delay=0.5)
        refusing(on=True)
        await wait_until(
            lambda: "is unavailable, retrying" in caplog.text,
            within=SOON,
            sentence="the promoter is refused",
        )
        assert calls.data == []
        refusing(on=False)
        await calls.until(1)
        await harness.queue.add("a", 2, delay=0.02)
        await calls.until(2)
    assert calls.data == [1, 2]
    assert caplog.text.count("promoter of queue") == 0, "it shares the lines of the outage"


async def test_it_promotes_at_the_memory_limit(harness: Harness) -> None:
    admin = harness.admin
    async with make_promoter(harness) as promoter:
        await until_leader_is(harness, promoter.id)
        await harness.queue.add_each("a", range(10), delay=0.3)
        admin.config_set("maxmemory", 1)
        try:
            await wait_until(
                lambda: admin.xlen(KEYS.stream) == 10, within=SOON, sentence="all are promoted"
            )
        finally:
            admin.config_set("maxmemory", 0)
    assert admin.zcard(KEYS.delayed) == 0


async def test_keys_of_the_wrong_type_lose_no_job(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_promoter(harness) as promoter:
        await until_leader_is(harness, promoter.id)
        harness.admin.set(KEYS.wakeup, "no bell")
        await harness.queue.add("a", delay=0.5)
        harness.admin.set(KEYS.stream, "no stream")
        await wait_until(
            lambda: "promoter of queue 'work' failed, retrying: " in caplog.text,
            within=SOON,
            sentence="the promoter is refused",
        )
        assert harness.admin.zcard(KEYS.delayed) == 1
        harness.admin.delete(KEYS.stream)
        await wait_until(
            lambda: harness.admin.xlen(KEYS.stream) == 1, within=SOON, sentence="it is promoted"
        )
        await wait_until(
            lambda: f"nothing arrives on {KEYS.wakeup.decode()}" in caplog.text,
            within=SOON,
            sentence="the wrong type of the wakeup key is logged",
        )
