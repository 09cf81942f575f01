"""A worker at the gate of its queue: it says how many entries it can have."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tampu.errors import ServerError
from tampu.server.scripts.gate import admit, charge
from tampu.server.service import Background

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)
_REPEAT_S: Final = 5.0  # others may have taken us for dead, and forgotten it
_STEP: Final = 8  # a change of less than an eighth is not worth a call
_LEAVE_S: Final = 1.0


class GateRoom(Background):
    """Tells the gate how many entries this worker can have, as long as the queue has a gate."""

    name = "gate-room"

    def __init__(self, lane: Lane, keys: QueueKeys, *, consumer: bytes) -> None:
        self._lane = lane
        self._keys = keys
        self._consumer = consumer
        self._room = 0
        self._told = 0
        self._changed = asyncio.Event()
        self._charging: set[asyncio.Task[int]] = set()
        self.is_open = False
        self._trouble = lane.server.outage.part(f"gate of queue {keys.name!r}")

    def learn(self, *, is_open: bool) -> None:
        """The queue has a gate, or none."""
        if is_open != self.is_open:
            self.is_open, self._told = is_open, 0
            self._changed.set()

    def offer(self, room: int) -> None:
        """This worker can have so many entries."""
        self._room = room
        if self.is_open and self._is_far(room):
            self._changed.set()

    def charge(self, resources: list[str], tokens: int) -> None:
        """Take tokens of rates, for a job that runs here."""
        charging = asyncio.create_task(
            charge(self._lane, self._keys, [(each, tokens) for each in resources]),
            name="tampu-charge",
        )
        self._charging.add(charging)
        charging.add_done_callback(self._charging.discard)
        charging.add_done_callback(self._note_charge)

    def _note_charge(self, charging: asyncio.Task[int]) -> None:
        error = None if charging.cancelled() else charging.exception()
        if error is not None:
            facts = {"queue": self._keys.name, "problem": str(error)}
            logger.warning("a limit of %s was not charged: %s", self._keys.name, error, extra=facts)

    def _is_far(self, room: int) -> bool:
        told = self._told
        return room != told and (not room or not told or abs(room - told) > told // _STEP)

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            wait_s = await self._tell() if self.is_open else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            self._changed.clear()

    async def stop(self) -> None:
        """Tell it that this worker takes nothing more. What still runs is settled at the gate."""
        await super().stop()
        self._trouble.end(recovered=False)
        if self.is_open and self._told:
            self._told = 0
            with suppress(ServerError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await admit(self._lane, self._keys, consumer=self._consumer)

    async def _tell(self) -> float:
        """Send it; how long it holds."""
        self._told = room = self._room  # before the reply: if we are stopped, it may have arrived
        try:
            found = await admit(self._lane, self._keys, consumer=self._consumer, room=room)
        except ServerError as error:
            return self._trouble.begin(error)
        self._trouble.end()
        if found is None:
            self.is_open = False
        return _REPEAT_S
