"""Who blocks on the stream: in a large fleet only a few workers, and the others are called.

A server runs the read of every blocked consumer again for each entry that is added. With 500 of
them an add takes a millisecond of its time.
"""

from __future__ import annotations

import asyncio
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Final

from tampu.server.scripts.workers import unwatch, watch
from tampu.server.streams import wait_for_wakeup
from tampu.util.lifecycle import ignore_outcome

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.services.reaper import Fleet
    from tampu.wire.keys import QueueKeys

MOST_WATCHERS: Final = 8
HAND_ON_S: Final = 0.003
"""A watcher without room for so long lets another one watch."""
_PLACE_S: Final = 12.0  # a place lasts so long at the server, and
_RENEW_S: Final = 5.0  # is renewed after so long
_SLEEP_S: Final = 10.0  # then a consumer that was not called looks at the stream all the same


class Watch:
    """The place of a worker among the watchers of its stream. A small fleet needs no places."""

    def __init__(self, lane: Lane, keys: QueueKeys, *, consumer: bytes, fleet: Fleet) -> None:
        self._lane = lane
        self._keys = keys
        self._consumer = consumer
        self._fleet = fleet
        self._has_place = False
        self.must_hand_on = False  # when we have no room: nobody else may be watching
        self._renew_at = 0.0
        self._leaving: asyncio.Task[None] | None = None

    @property
    def may_block(self) -> bool:
        """Whether this worker may block on the stream."""
        if self._fleet.size <= MOST_WATCHERS:
            return True
        return self._has_place and monotonic() < self._renew_at

    def note_entries(self) -> None:
        """There was something to read, and there may be more than we have room for."""
        self.must_hand_on = self._fleet.size > MOST_WATCHERS

    async def wait_for_turn(self) -> None:
        """Get a place, or sleep until it is time to look at the stream all the same."""
        is_called = True
        while is_called and not await self._take_place():
            sleep_s = round(uniform(0.5, 1.0) * _SLEEP_S, 3)  # noqa: S311 - spreads looks
            keys = [self._keys.watch_wakeup]
            is_called = await wait_for_wakeup(self._lane, keys, wait_s=sleep_s) is not None

    async def _take_place(self) -> bool:
        now = monotonic()
        self._has_place = self.must_hand_on = await watch(
            self._lane,
            self._keys,
            consumer=self._consumer,
            ttl_ms=round(_PLACE_S * 1000),
            most=MOST_WATCHERS,
        )
        self._renew_at = now + _RENEW_S
        return self._has_place

    def hand_on(self) -> None:
        """Give up the place, if we have one, and call another worker if there are too few."""
        if self.must_hand_on:
            self._has_place = self.must_hand_on = False
            leaving = unwatch(self._lane, self._keys, consumer=self._consumer, most=MOST_WATCHERS)
            self._leaving = asyncio.create_task(leaving, name="tampu-unwatch")
            self._leaving.add_done_callback(ignore_outcome)
