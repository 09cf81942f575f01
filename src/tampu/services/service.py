"""What lives long: started once, stopped once, and never ended by a server's answer."""

import asyncio
import logging
from abc import ABC, abstractmethod
from random import Random

from tampu.errors import ServerError
from tampu.server.lane import LaneOptions, Pauses

logger = logging.getLogger(__name__)


class Service(ABC):
    """A loop of ticks. Trouble is logged once, and the next tick comes after a growing pause."""

    name: str

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._waking = asyncio.Event()
        self._troubled = False
        self._pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients

    @abstractmethod
    async def tick(self) -> float:
        """Do what is due; how many seconds the next tick may wait."""

    @abstractmethod
    async def ended(self) -> None:
        """Let go of what the service held; called once, behind the last tick."""

    def start(self) -> None:
        """Begin to tick."""
        self._task = asyncio.create_task(self._run(), name=f"tampu-{self.name}")

    def wake(self) -> None:
        """Have the next tick come now."""
        self._waking.set()

    async def stop(self) -> None:
        """End the loop and let go. May be called twice."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        try:
            await self.ended()
        except ServerError as error:
            logger.warning("a service left something behind", extra=self._facts(error))

    async def _run(self) -> None:
        while True:
            wait_s = await self._safe_tick()
            try:
                async with asyncio.timeout(wait_s):
                    await self._waking.wait()
            except TimeoutError:
                pass
            self._waking.clear()

    async def _safe_tick(self) -> float:
        try:
            wait_s = await self.tick()
        except ServerError as error:
            if not self._troubled:
                logger.warning("a service is interrupted", extra=self._facts(error))
        except Exception as error:  # border: a tick must not end its service
            if not self._troubled:
                logger.exception("a service failed", extra=self._facts(error))
        else:
            if self._troubled:
                logger.info("a service goes on", extra={"service": self.name})
            self._troubled = False
            self._pauses.reset()
            return wait_s
        self._troubled = True
        return self._pauses.next_s()

    def _facts(self, error: Exception) -> dict[str, object]:
        return {"service": self.name, "problem": str(error)}
