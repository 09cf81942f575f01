"""A job, as handlers and producers see it in chasquimq."""

import asyncio
import warnings
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tampu.errors import ResultTimeout

__all__ = ["Job"]

_WARN_AFTER_S: Final = 1.0
_NO_RESULT: Final = (
    "no result after 1s: a worker without store_results=True never stores one, and neither does a "
    "handler that returns None"
)


class ResultSource(Protocol):
    """The part of a `Queue` that a job uses to wait for its result."""

    async def _next_result(self, job_id: str, within_s: float) -> object:
        """The result as soon as it is stored; raises `ResultTimeout` after `within_s`."""


@dataclass
class Job:
    """A job: what a handler gets to do, or what a producer has added.

    `attempt` is the number of earlier runs.
    """

    id: str
    name: str
    data: Any
    attempt: int
    created_at_ms: int
    _queue: ResultSource | None = field(default=None, repr=False, compare=False, hash=False)

    @property
    def attempts_made(self) -> int:
        """The same as `attempt`."""
        return self.attempt

    async def wait_for_result(
        self, *, timeout: float = 30.0, poll_interval: float = 0.1
    ) -> Any | None:  # noqa: ANN401 - a user's
        """What the handler returned, as soon as it is stored.

        tampu's workers push the result. For results of chasquimq's workers, the server is polled
        every `poll_interval` seconds. Raises `TimeoutError` after `timeout` seconds, and at once,
        with the reason, if the job was buried. A handler that returned None has no result.
        """
        if self._queue is None:
            raise RuntimeError(
                "Job.wait_for_result requires a Queue reference; call from a Job returned by "
                "Queue.add / Queue.add_bulk, not from a Worker handler"
            )
        for name, given in (("timeout", timeout), ("poll_interval", poll_interval)):
            if given <= 0:
                raise ValueError(f"{name} must be a positive number of seconds, got {given!r}")
        async with asyncio.timeout(timeout):
            try:
                return await self._poll(self._queue, poll_interval, limit_s=_WARN_AFTER_S)
            except ResultTimeout:
                warnings.warn(_NO_RESULT, RuntimeWarning, stacklevel=2)
            return await self._poll(self._queue, poll_interval)

    async def _poll(
        self, queue: ResultSource, interval_s: float, *, limit_s: float | None = None
    ) -> object:
        """Wait for the result in steps; raises `ResultTimeout` after `limit_s`."""
        clock = asyncio.get_running_loop().time
        end = None if limit_s is None else clock() + limit_s
        while True:
            step_s = interval_s if end is None else min(interval_s, end - clock())
            try:
                return await queue._next_result(self.id, max(step_s, 0.001))
            except ResultTimeout:
                if end is not None and clock() >= end:
                    raise
