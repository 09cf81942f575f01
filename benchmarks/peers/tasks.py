"""Adding many, for peers that have no call for that: from several tasks at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

TASKS: Final = 20  # SAQ's own limit


async def from_tasks(add: Callable[[], Awaitable[object]], jobs: int) -> None:
    """Call `add` for each job, in as many tasks, each one call after another."""

    async def some() -> None:
        for _ in range(jobs // TASKS):
            await add()

    await asyncio.gather(*(some() for _ in range(TASKS)))
