"""What tests of apps share."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Unpack

from tampu import App, AppWorker, DeadLetter
from tampu.consumer.options import WorkerOptions
from tests.contract.workers import SOON, connections, handler_threads, own_tasks
from tests.servers import RunningServer
from tests.waiting import wait_until


@asynccontextmanager
async def working(
    app: App, queues: Mapping[str, int] | None = None, **options: Unpack[WorkerOptions]
) -> AsyncIterator[AppWorker]:
    """A worker of the app that stores results and stops without grace."""
    kept: WorkerOptions = {"store_results": True, "concurrency": 10, "grace": 0, **options}
    async with app, AppWorker(app, queues, **kept) as worker:
        yield worker


async def dead(app: App, queue: str = "default", count: int = 1) -> list[DeadLetter]:
    """So many dead letters, as soon as they are there."""
    letters: list[DeadLetter] = []

    async def there() -> bool:
        letters[:] = await app.queue(queue).dead.peek(count + 1)
        return len(letters) >= count

    await wait_until(there, within=SOON, sentence=f"{count} jobs are buried")
    assert len(letters) == count
    return letters


async def nothing_left(running: RunningServer, act: Callable[[], Awaitable[None]]) -> None:
    """Do something; fail if it leaves a task, a thread or a connection behind."""
    with running.admin() as admin:
        before = connections(admin)
        await act()
        assert own_tasks() == []
        await wait_until(
            lambda: connections(admin) <= before, within=SOON, sentence="connections are closed"
        )
    await wait_until(lambda: handler_threads() == [], within=SOON, sentence="threads have ended")
    assert not [each for each in threading.enumerate() if each.name == "tampu-leases"]
    await asyncio.sleep(0)
