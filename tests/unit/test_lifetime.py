"""What is started once and stopped once."""

import asyncio

import pytest

from tampu.errors import OutOfPlace
from tampu.lifetime import Lifetime
from tests.waiting import wait_until


class Thing:
    """Something to open and close; it counts both."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_open = asyncio.Event()
        self.opened = self.closed = 0
        self._error = error

    async def open(self) -> "Thing":
        await self.may_open.wait()
        if self._error is not None:
            raise self._error
        self.opened += 1
        return self

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


async def test_it_is_closed_once_however_many_stop_it() -> None:
    thing = Thing()
    thing.may_open.set()
    life = Lifetime("thing", thing.open)
    running = asyncio.create_task(life.run(Thing.close))
    await asyncio.sleep(0)
    await asyncio.gather(*[life.stop(Thing.close) for _ in range(3)])
    await asyncio.wait_for(running, 10)
    assert (thing.opened, thing.closed) == (1, 1)
    with pytest.raises(OutOfPlace, match="to a new thing: each is used once"):
        await life.start(Thing.close)


async def test_what_could_not_be_opened_is_not_closed() -> None:
    thing = Thing(ValueError("no"))
    thing.may_open.set()
    life = Lifetime("thing", thing.open)
    with pytest.raises(ValueError, match="no"):
        await life.start(Thing.close)
    await life.stop(Thing.close)
    assert thing.closed == 0


async def test_a_stop_while_it_starts_waits_for_the_start() -> None:
    thing = Thing()
    life = Lifetime("thing", thing.open)
    starting = asyncio.create_task(life.start(Thing.close))
    await asyncio.sleep(0)
    stopping = asyncio.create_task(life.stop(Thing.close))
    await asyncio.sleep(0)
    thing.may_open.set()
    await asyncio.gather(starting, stopping)
    assert (thing.opened, thing.closed) == (1, 1)


async def test_a_start_that_is_cancelled_opens_nothing() -> None:
    thing = Thing()
    life = Lifetime("thing", thing.open)
    starting = asyncio.create_task(life.start(Thing.close))
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    thing.may_open.set()
    await life.stop(Thing.close)
    assert (thing.opened, thing.closed) == (0, 0)


async def test_a_run_that_is_cancelled_closes_what_it_opened() -> None:
    thing = Thing()
    thing.may_open.set()
    life = Lifetime("thing", thing.open)
    running = asyncio.create_task(life.run(Thing.close))
    await wait_until(lambda: thing.opened == 1, within=10, sentence="it is open")
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert (thing.opened, thing.closed) == (1, 1)


async def test_what_was_stopped_before_it_started_never_starts() -> None:
    thing = Thing()
    life = Lifetime("thing", thing.open)
    await life.stop(Thing.close)
    with pytest.raises(OutOfPlace):
        await life.start(Thing.close)
    assert thing.opened == 0
