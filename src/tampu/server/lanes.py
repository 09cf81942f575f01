"""Lanes to keys with different hash tags: one lane to a server, one for each slot of a cluster.

Lanes to the same node share a connection.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Self

from tampu.server.client import CredentialCallback
from tampu.server.connect import CONNECT_TIMEOUT_S, Server, Target, check_target, connect
from tampu.server.connection import SharedConnections
from tampu.server.lane import Lane, LaneOptions
from tampu.wire.keys import QueueKeys

_MOST_OPEN: Final = 64
"""Lanes to a cluster. Beyond that, the ones that were idle for longest are closed."""


class Lanes:
    """Lanes that are opened when they are first needed and closed by their last user."""

    def __init__(
        self,
        target: Target,
        *,
        credentials: CredentialCallback | None = None,
        options: LaneOptions | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        check_target(target, credentials)
        self._target = target
        self._credentials = credentials
        self._options = options
        self._connect_timeout_s = connect_timeout_s
        self._users = 0
        self._server: Server | None = None
        self._shared: SharedConnections | None = None
        self._lanes: dict[int, Lane] = {}  # by slot, least recently used first
        self._opening = asyncio.Lock()

    @classmethod
    def within(
        cls, timeout_s: float, target: Target, credentials: CredentialCallback | None
    ) -> Self:
        """Lanes on which neither connecting nor a call takes longer than `timeout_s`.

        A connection that is silent for half of that is replaced, in time to send the call again.
        """
        usual = LaneOptions()
        options = LaneOptions(
            limit_s=timeout_s,
            patience_s=min(usual.patience_s, timeout_s / 2),
            first_pause_s=min(usual.first_pause_s, timeout_s),
            longest_pause_s=min(usual.longest_pause_s, timeout_s),
        )
        return cls(target, credentials=credentials, options=options, connect_timeout_s=timeout_s)

    def open(self) -> None:
        """Count one more user."""
        self._users += 1

    async def close(self) -> None:
        """Count one user less; after the last one, close all lanes."""
        self._users -= 1
        if self._users > 0:
            return
        lanes, self._lanes = list(self._lanes.values()), {}
        server, self._server = self._server, None
        for lane in lanes:
            await lane.close()
        if server is not None:
            await server.close()

    async def to(self, key: bytes) -> Lane:
        """The lane to a key; raises a `ServerError` if its node cannot be reached."""
        async with self._opening:
            server = await self._connect()
            slot = server.slot(key)
            lane = self._lanes.pop(slot, None)
            if lane is None:
                await self._make_room()
                lane = await Lane.open(server, key, options=self._options, shared=self._shared)
            self._lanes[slot] = lane
            return lane

    async def order_by_lane(self, keys: Sequence[bytes]) -> list[int]:
        """The indexes of the keys, keys of one lane next to each other."""
        async with self._opening:
            slot = (await self._connect()).slot
        return sorted(range(len(keys)), key=lambda index: slot(keys[index]))

    async def _connect(self) -> Server:
        if self._server is None:
            self._server = await connect(
                self._target,
                credentials=self._credentials,
                connect_timeout_s=self._connect_timeout_s,
            )
            self._shared = SharedConnections(self._server)
        return self._server

    async def _make_room(self) -> None:
        idle = [slot for slot, lane in self._lanes.items() if lane.is_idle]
        for slot in idle[: max(0, len(self._lanes) + 1 - _MOST_OPEN)]:
            await self._lanes.pop(slot).close()


class QueueLanes:
    """Lanes to queues, for who has one to a queue of its own; those of other slots on demand."""

    def __init__(
        self, own: Lane, keys: QueueKeys, *, shared: SharedConnections | None = None
    ) -> None:
        self.own = own
        self._shared = shared
        self._server = own.server
        self._slot = own.server.slot(keys.stream)
        self._lanes: dict[int, Lane] = {}  # by slot
        self._opening = asyncio.Lock()

    async def to(self, queue: str) -> tuple[Lane, QueueKeys]:
        """The lane to a queue, and its keys; raises a `ServerError` if it cannot be reached."""
        keys = QueueKeys(queue)
        slot = self._server.slot(keys.stream)
        if slot == self._slot:
            return self.own, keys
        async with self._opening:
            lane = self._lanes.get(slot)
            if lane is None:
                lane = await Lane.open(self._server, keys.stream, shared=self._shared)
                self._lanes[slot] = lane
        return lane, keys

    async def close(self) -> None:
        """Close those that were opened."""
        lanes, self._lanes = list(self._lanes.values()), {}
        for lane in lanes:
            await lane.close()
