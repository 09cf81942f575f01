"""Promoting on real servers that refuse, are full, or hold what they should not."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.promoting import standing_alone, until_led_by
from tests.contract.workers import KEYS, SOON, Calls, Crew
from tests.servers import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


@pytest.fixture(params=["connection ended", "a service is interrupted"])
def refusing(crew: Crew, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A replica, which is not the place to write; or a master without replicas."""
    admin = crew.admin

    def refuse(*, on: bool) -> None:
        if request.param == "connection ended":
            admin.replicaof(*(("127.0.0.1", free_port()) if on else ("NO", "ONE")))
        else:
            admin.config_set("min-replicas-to-write", int(on))

    yield refuse, request.param
    refuse(on=False)


async def test_it_goes_on_when_the_server_writes_again(
    crew: Crew,
    refusing: tuple[Any, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls, (refuse, told) = Calls(), refusing
    await crew.hire(calls, promote=False)
    async with standing_alone(crew) as promoter:
        await until_led_by(crew, promoter.id)
        await crew.queue.add("a", 1, delay=0.5)
        refuse(on=True)
        await wait_until(
            lambda: told in caplog.messages, within=SOON, sentence="the promoter is refused"
        )
        assert calls.data == []
        refuse(on=False)
        await calls.until(1)
        await crew.queue.add("a", 2, delay=0.02)
        await calls.until(2)
    assert calls.data == [1, 2]
    assert troubles(caplog) <= 1, "told once"


async def test_at_the_memory_limit_it_promotes_what_is_there(crew: Crew) -> None:
    admin = crew.admin
    async with standing_alone(crew) as promoter:
        await until_led_by(crew, promoter.id)
        await crew.queue.add_each("a", range(10), delay=0.3)
        admin.config_set("maxmemory", 1)
        try:
            await wait_until(
                lambda: admin.xlen(KEYS.stream) == 10, within=SOON, sentence="all are promoted"
            )
        finally:
            admin.config_set("maxmemory", 0)
    assert admin.zcard(KEYS.delayed) == 0


async def test_keys_of_the_wrong_kind_lose_nothing(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    async with standing_alone(crew) as promoter:
        await until_led_by(crew, promoter.id)
        crew.admin.set(KEYS.bell, "no bell")
        await crew.queue.add("a", delay=0.5)
        crew.admin.set(KEYS.stream, "no stream")
        await wait_until(
            lambda: troubles(caplog) > 0, within=SOON, sentence="the promoter is refused"
        )
        assert crew.admin.zcard(KEYS.delayed) == 1
        crew.admin.delete(KEYS.stream)
        await wait_until(
            lambda: crew.admin.xlen(KEYS.stream) == 1, within=SOON, sentence="it is promoted"
        )
        await wait_until(
            lambda: "a bell cannot be heard" in caplog.messages,
            within=SOON,
            sentence="it is told that the bell is none",
        )


def troubles(caplog: pytest.LogCaptureFixture) -> int:
    """How often a promoter said that it is interrupted."""
    return sum(
        record.message == "a service is interrupted" and record.service == "promoter"  # type: ignore[attr-defined]
        for record in caplog.records
    )
