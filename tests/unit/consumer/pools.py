"""Pools for tests, and what they pass outcomes to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tampu.consumer.intake import Delivery
from tampu.consumer.pool import Pool
from tampu.outcome import Cancelled, Outcome
from tests.waiting import wait_until

SOON = 60.0


class FakeSettler:
    """Records which attempts began, and the outcome of each."""

    def __init__(self) -> None:
        self.started: list[object] = []
        self.outcomes: list[tuple[object, Outcome]] = []
        self.room = 0
        self.broken = False

    def start(self, delivery: Delivery) -> None:
        self.started.append(delivery.job.data)

    def put(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        assert duration_ns >= 0
        if self.broken:
            raise OSError("a settler must not do that")
        self.outcomes.append((delivery.job.data, outcome))

    def cancel(self, delivery: Delivery) -> None:
        self.outcomes.append((delivery.job.data, Cancelled()))

    def on_room(self) -> None:
        self.room += 1

    async def until(self, count: int) -> None:
        await wait_until(
            lambda: len(self.outcomes) >= count,
            within=SOON,
            sentence=f"{count} attempts have ended",
        )


@asynccontextmanager
async def pool_of(size: int, settler: FakeSettler) -> AsyncIterator[Pool]:
    """A pool that leaves no task."""
    opened = Pool(size, settler, on_room=settler.on_room)
    yield opened
    await opened.drain(0)
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith("tampu-slot")]
