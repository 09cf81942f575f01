"""Background work: started, stopped, and never ended by what the server answers."""

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import suppress

from tampu.errors import ServerError
from tampu.server.outage import Outage

logger = logging.getLogger(__name__)


class Background(ABC):
    """Work in a task of its own, from `start` to `stop`."""

    name: str
    _task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run(self) -> None:
        """Work until cancelled."""

    def start(self) -> None:
        """Start the task, unless it runs already."""
        if self._task is None:
            self._task = asyncio.create_task(self.run(), name=f"tampu-{self.name}")

    async def stop(self) -> None:
        """Cancel the task and wait for its end. May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


class Service(Background):
    """Background work in ticks.

    A tick that raises is tried again after a pause, which grows. That is logged once, and once
    more when a tick succeeds.
    """

    def __init__(self, outage: Outage, what: str) -> None:
        self._what = what
        self._trouble = outage.part(self._what)
        self._wakeup = asyncio.Event()

    @abstractmethod
    async def tick(self) -> float:
        """Do what is due. Returns after how many seconds to tick again."""

    async def clean_up(self) -> None:
        """Release what the service holds; called by `stop` after the last tick."""

    def wake(self) -> None:
        """Tick now."""
        self._wakeup.set()

    async def stop(self) -> None:
        """End the ticks and clean up. May be called twice."""
        if self._task is None:
            return
        await super().stop()
        self._trouble.end(recovered=False)
        try:
            await self.clean_up()
        except ServerError as error:
            facts = {"part": self._what, "problem": str(error)}
            logger.warning("%s could not clean up: %s", self._what, error, extra=facts)

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            try:
                wait_s = await self.tick()
            except Exception as error:  # noqa: BLE001 - border: a tick must not end its service
                wait_s = self._trouble.begin(error)
            else:
                self._trouble.end()
            await self._wait(wait_s)

    async def _wait(self, wait_s: float) -> None:
        if wait_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wakeup.wait()
        else:
            await asyncio.sleep(0)  # a third of the time that a limit of 0 takes
        self._wakeup.clear()
