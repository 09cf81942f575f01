"""Asks a store until it answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from tampu.errors import Closed, ServerError, Verdict
from tampu.scheduler.events import StoreDegraded, StoreOperation, StoreRecovered
from tampu.scheduler.observer import Telling
from tampu.server.lane import LaneOptions, Pauses

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Patience:
    """Waits for a store that cannot be reached; told once an outage, and once it is over."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients
        self._hurried = asyncio.Event()
        self._troubled = False

    def hurry(self) -> None:
        """From now on give up at the first failure: the scheduler is to stop."""
        self._hurried.set()

    async def until_answered(
        self, operation: StoreOperation, ask: Callable[[], Awaitable[T]]
    ) -> T | None:
        """What the store answers; None if it is given up. What will not get better is raised."""
        while True:
            try:
                answer = await ask()
            except ServerError as error:
                # A program that ends takes the connection along: that is no trouble with the store.
                ended = self._hurried.is_set() and isinstance(error, Closed)
                if error.verdict is Verdict.GIVE_UP and not ended:
                    raise
                self.failed(operation, error)
                if self._hurried.is_set():
                    logger.warning("a store is given up", extra={"operation": operation.name})
                    return None
            else:
                self.answered()
                return answer
            await self.pause()

    async def pause(self) -> None:
        """Wait for a while, longer each time."""
        try:
            async with asyncio.timeout(self._pauses.next_s()):
                await self._hurried.wait()
        except TimeoutError:
            pass

    def failed(self, operation: StoreOperation, error: ServerError) -> None:
        """It did not answer."""
        if not self._troubled:
            facts = {"operation": operation.name, "problem": str(error)}
            logger.warning("a store cannot be reached, and is asked again", extra=facts)
            self._telling.tell(StoreDegraded(operation=operation, error=str(error)))
        self._troubled = True

    def answered(self) -> None:
        """It did."""
        if self._troubled:
            logger.info("a store is back")
            self._telling.tell(StoreRecovered())
            self._pauses.reset()
        self._troubled = False
