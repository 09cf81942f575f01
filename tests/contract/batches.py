"""Handlers that get batches, for contract tests."""

import asyncio
from collections.abc import Callable
from typing import Any

from tampu import (
    Job,
    JobBatch,
    JobState,
    NewJob,
)
from tests.contract.workers import SOON, Harness
from tests.waiting import wait_until

LONG = "1h"  # longer than any test waits


class Batches:
    """A handler that records its batches, and waits at a gate if it has one."""

    def __init__(
        self, act: Callable[[JobBatch[Any]], object] | None = None, *, gated: bool = False
    ) -> None:
        self.batches: list[JobBatch[Any]] = []
        self.open = asyncio.Event()
        if not gated:
            self.open.set()
        self._act = act

    async def __call__(self, batch: JobBatch[Any]) -> object:
        self.batches.append(batch)
        await self.open.wait()
        return None if self._act is None else self._act(batch)

    @property
    def data(self) -> list[list[Any]]:
        return [batch.data for batch in self.batches]

    async def until(self, count: int) -> None:
        """Return when so many batches have started."""
        await wait_until(
            lambda: len(self.batches) >= count, within=SOON, sentence=f"{count} batches began"
        )


async def add(harness: Harness, *data: object, name: str = "index") -> list[Job]:
    return await harness.queue.add_many([NewJob(name, each) for each in data])


async def states(jobs: list[Job]) -> list[JobState]:
    return [(await job.info()).state for job in jobs]
