"""A handler of ChasquiMQ's that notes what it was called for, and does as it was told."""

import asyncio
import time
from typing import Any

from chasquimq import Job, UnrecoverableError

from tests.interop.peer.values import packed


class Handler:
    """Fails in so many first attempts, or for good; waits until it is let go; returns data."""

    def __init__(
        self,
        *,
        fails: int = 0,
        gives_up: bool = False,
        holds: bool = False,
        returns: bool = True,
        takes_s: float = 0.0,
    ) -> None:
        self._fails = fails
        self._gives_up = gives_up
        self._returns = returns
        self._takes_s = takes_s
        self.free = asyncio.Event()
        if not holds:
            self.free.set()
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, job: Job) -> object:
        call = {
            "id": job.id,
            "name": job.name,
            "data": packed(job.data),
            "attempt": job.attempt,
            "created_at_ms": job.created_at_ms,
            "at_ms": time.time_ns() // 1_000_000,
        }
        self.calls.append(call)
        await self.free.wait()
        if self._takes_s:
            await asyncio.sleep(self._takes_s)
        if self._gives_up:
            raise UnrecoverableError("no use")
        # In a mixed load a job says itself how often it fails.
        fails = job.data["fails"] if isinstance(job.data, dict) and "fails" in job.data else 0
        if job.attempt < max(self._fails, fails):
            call["failed"] = True
            raise RuntimeError("boom")
        return job.data if self._returns else None
