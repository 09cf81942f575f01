"""What is started once and stopped once."""

import asyncio
import math

import pytest

from tampu.errors import WrongContext
from tampu.util.lifecycle import Lifetime
from tests.waiting import wait_until


class Thing:
    """Something to open and close; it counts both."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_open = asyncio.Event()
        self.opened = self.closed = 0
        self.grace_s = math.inf
        self._error = error

    async def open(self) -> "Thing":
        await self.may_open.wait()
        if self._error is not None:
            raise self._error
        self.opened += 1
        return self

    async def close(self, grace_s: float) -> None:
        await self.hurry(grace_s)
        await wait_until(lambda: self.grace_s == 0, within=10, sentence="it may be closed")
        self.closed += 1

    async def hurry(self, grace_s: float) -> None:
        self.grace_s = min(self.grace_s, grace_s)


async def test_it_is_closed_once_however_many_stop_it() -> None:
    thing = Thing()
    thing.may_open.set()
    life = Lifetime("thing", thing.open, Thing.close, hurry=Thing.hurry)
    running = asyncio.create_task(life.run())
    await asyncio.sleep(0)
    await asyncio.gather(*[life.stop() for _ in range(3)])
    await asyncio.wait_for(running, 10)
    assert (thing.opened, thing.closed) == (1, 1)
    with pytest.raises(WrongContext, match="to a new thing: each is used once"):
        await life.start()


async def test_what_could_not_be_opened_is_not_closed() -> None:
    thing = Thing(ValueError("no"))
    thing.may_open.set()
    life = Lifetime("thing", thing.open, Thing.close, hurry=Thing.hurry)
    with pytest.raises(ValueError, match="no"):
        await life.start()
    await life.stop()
    assert thing.closed == 0


async def test_a_stop_while_it_starts_waits_for_the_start() -> None:
    thing = Thing()
    life = Lifetime("thing", thing.open, Thing.close, hurry=Thing.hurry)
    starting = asyncio.create_task(life.start())
    await asyncio.sleep(0)
    stopping = asyncio.create_task(life.stop())
    await asyncio.sleep(0)
    thing.may_open.set()
    await asyncio.gather(starting, stopping)
    assert (thing.opened, thing.closed) == (1, 1)


async def test_a_start_that_is_cancelled_opens_nothing() -> None:
    thing = Thing()
    life = Lifetime("thing", thing.open, Thing.close, hurry=Thing.hurry)
    starting = asyncio.create_task(life.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    thing.may_open.set()
    await life.stop()
    assert (thing.opened, thing.closed) == (0, 0)


async def test_a_run_that_is_cancelled_closes_what_it_opened() -> None:
    thing = Thing()
    thing.may_open.set()
    life = Lifetime("thing", thing.open, Thing.close, hurry=Thing.hurry)
    running = asyncio.create_task(life.run())
    await wait_until(lambda: thing.opened == 1, within=10, sentence="it is open")
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert (thing.opened, thing.closed) == (1, 1)


async def test_a_run_that_is_cancelled_hurries_a_stop_that_takes_its_time() -> None:
    thing = Thing()
    thing.may_open.set()
    life = Lifetime("thing", thing.open, Thing.close, hurry=Thing.hurry)
    running = asyncio.create_task(life.run())
    await wait_until(lambda: thing.opened == 1, within=10, sentence="it is open")
    stopping = asyncio.create_task(life.stop(60))
    await wait_until(lambda: thing.grace_s == 60, within=10, sentence="it is being closed")
    running.cancel()
    await asyncio.wait_for(stopping, 10)
    await asyncio.wait([running])
    assert running.cancelled()
    assert (thing.grace_s, thing.closed) == (0, 1)


async def test_what_was_stopped_before_it_started_never_starts() -> None:
    thing = Thing()
    life = Lifetime("thing", thing.open, Thing.close, hurry=Thing.hurry)
    await life.stop()
    with pytest.raises(WrongContext):
        await life.start()
    assert thing.opened == 0
