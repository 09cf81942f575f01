"""A queue that may be used from several event loops, and again after it was closed."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tampu.compat.adapter.address import CredentialProvider, credentials_of
from tampu.compat.adapter.errors import as_theirs
from tampu.job import Job, JobOptions, NewJob
from tampu.producer.options import MAX_PAYLOAD_CAP
from tampu.queue import Queue
from tampu.util.clock import MAX_MS
from tampu.wire.keys import MAX_JOB_NAME_BYTES, QueueKeys

_LONGEST = timedelta(milliseconds=MAX_MS)


@dataclass(slots=True)
class Line:
    """The queue of each event loop that has asked for it; made when it first does."""

    name: str
    url: str
    max_len: int | None = None
    provider: CredentialProvider | None = None
    keys: QueueKeys = field(init=False)
    _queues: dict[asyncio.AbstractEventLoop, Queue] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = QueueKeys(self.name)

    def queue(self) -> Queue:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._queues.get(loop)
        if found is None:
            for gone in [each for each in list(self._queues) if each.is_closed()]:
                del self._queues[gone]
            found = self._queues[loop] = Queue(
                self.name,
                self.url,
                credentials=credentials_of(self.provider, self.url),
                max_len=self.max_len,
                max_delay=_LONGEST,  # chasquimq's own limit is checked before
                max_payload=MAX_PAYLOAD_CAP,
            )
        return found

    async def add(self, name: str, data: object, options: JobOptions) -> Job[Any]:
        """Add a job."""
        with as_theirs():
            return await self.queue().add(name, data, **options)

    async def add_all(self, jobs: Iterable[NewJob]) -> list[Job[Any]]:
        """Add many."""
        with as_theirs():
            return await self.queue().add_many(jobs)

    async def close(self) -> None:
        """Disconnect on every loop that still runs; the next use connects again."""
        here = asyncio.get_running_loop()
        queues, self._queues = self._queues, {}
        for loop, queue in queues.items():
            if loop is here:
                await queue.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(queue.close(), loop)
                await asyncio.wrap_future(closing)


def checked_name(name: str | None) -> str:
    """The name of a job, if it can be; None is the empty one."""
    given: object = name or ""
    if not isinstance(given, str):
        raise ValueError("opts.name must be a string")  # noqa: TRY004 - theirs
    size = len(given.encode())
    if size > MAX_JOB_NAME_BYTES:
        raise RuntimeError(
            f"config: job name exceeds {MAX_JOB_NAME_BYTES}-byte cap (got {size} bytes)"
        )
    return given
