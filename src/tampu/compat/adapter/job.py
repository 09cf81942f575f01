"""A job as programs written for chasquimq see it."""

import asyncio
import warnings
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tampu.errors import ResultTimeout

_QUIET_S: Final = 1.0  # after so long without a result, the caller is told why there may be none
_NO_RESULT: Final = (
    "no result after 1s: a worker without store_results=True never stores one, and nor does a "
    "handler that returns None"
)


class Results(Protocol):
    """What a job needs of its queue."""

    async def _next_result(self, job_id: str, within_s: float) -> object:
        """The result, as soon as it is there; `ResultTimeout` when it is not in time."""


@dataclass
class Job:
    """One job: in a handler what is to be done, at the producer what was added.

    `attempt` counts the runs before this one.
    """

    id: str
    name: str
    data: Any
    attempt: int
    created_at_ms: int
    _queue: Results | None = field(default=None, repr=False, compare=False, hash=False)

    @property
    def attempts_made(self) -> int:
        """The same as `attempt`."""
        return self.attempt

    async def wait_for_result(
        self, *, timeout: float = 30.0, poll_interval: float = 0.1
    ) -> Any | None:  # noqa: ANN401 - a user's
        """What the handler returned, as soon as it is there.

        Workers of tampu push it; for those of chasquimq the server is asked each `poll_interval`.
        Raises `TimeoutError` when the time is up, and at once, with the reason, if the job was
        buried. A handler that returned None has no result.
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
                return await self._asked(self._queue, poll_interval, limit_s=_QUIET_S)
            except ResultTimeout:
                warnings.warn(_NO_RESULT, RuntimeWarning, stacklevel=2)
            return await self._asked(self._queue, poll_interval)

    async def _asked(
        self, queue: Results, poll_s: float, *, limit_s: float | None = None
    ) -> object:
        """Ask again and again, up to a limit."""
        clock = asyncio.get_running_loop().time
        end = None if limit_s is None else clock() + limit_s
        while True:
            step_s = poll_s if end is None else min(poll_s, end - clock())
            try:
                return await queue._next_result(self.id, max(step_s, 0.001))
            except ResultTimeout:
                if end is not None and clock() >= end:
                    raise
