"""Wakes a service before its time: somebody rang."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Final

from tampu.errors import ServerError
from tampu.server.connect import Server
from tampu.server.lane import Lane, LaneOptions, Pauses
from tampu.server.streams import wait_for_ring

logger = logging.getLogger(__name__)

_WAIT_S: Final = 1.0


class Bell:
    """Listens on a lane of its own, which it has only while it listens.

    Whoever cannot hear the bell is late, not wrong: services look from time to time anyway.
    """

    def __init__(self, server: Server, key: bytes, heard: Callable[[], None]) -> None:
        self._server = server
        self._key = key
        self._heard = heard
        self._task: asyncio.Task[None] | None = None
        self._deaf = False
        self._pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients

    def listen(self) -> None:
        """Listen, until `rest`."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tampu-bell")

    async def rest(self) -> None:
        """Listen no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            try:
                async with await Lane.open(self._server, self._key) as lane:
                    await self._listen_on(lane)
            except ServerError as error:
                if not self._deaf:
                    logger.warning("a bell cannot be heard", extra={"problem": str(error)})
                self._deaf = True
            await asyncio.sleep(self._pauses.next_s())

    async def _listen_on(self, lane: Lane) -> None:
        """Until the server refuses, or takes back the lane."""
        while True:
            if await wait_for_ring(lane, self._key, wait_s=_WAIT_S):
                self._heard()
            self._deaf = False
            self._pauses.reset()
