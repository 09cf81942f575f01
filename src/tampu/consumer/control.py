"""What a running worker is told: cancel a job, pause or resume its queue, stop.

The messages are on the control stream of the queue. What must not be lost, should a worker miss a
message or start later, is kept in keys of its own and read when the worker begins to follow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from tampu.errors import DecodeError
from tampu.server.gates import read_holds
from tampu.server.listening import StreamTarget
from tampu.server.scripts.control import read_control
from tampu.server.streams import last_id
from tampu.wire.control import (
    CancelRequest,
    DrainRequest,
    FlowsNotice,
    GateNotice,
    HoldNotice,
    PauseRequest,
    ReleaseNotice,
    decode_control,
    decode_request,
)

if TYPE_CHECKING:
    from tampu.consumer.feed import Feed
    from tampu.consumer.reader import Reader
    from tampu.server.lane import Lane
    from tampu.server.listening import StreamFollower
    from tampu.server.streams import RawEntry
    from tampu.wire.control import ControlMessage
    from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)


class Control(StreamTarget):
    """Follows the control stream of a queue, and has the parts of the worker do what it says."""

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        feed: Feed,
        reader: Reader,
        on_drain: Callable[[str], None],
        on_notice: Callable[[GateNotice | FlowsNotice], None],
    ) -> None:
        self.after = b"0-0"
        self._lane = lane
        self._keys = keys
        self._feed = feed
        self._reader = reader
        self._on_notice = on_notice  # called when the queue gets flow control, loses it, has flows
        self._on_drain = on_drain  # called with the id of the worker that was asked to stop

    async def learn(self) -> None:
        """Learn the state of the queue, before the first job."""
        await self.bridge_gap(self._lane)

    def follow(self, streams: StreamFollower) -> None:
        """Follow its changes from there on."""
        streams.listen(self._keys.control, self)

    async def close(self, streams: StreamFollower) -> None:
        """Follow no more."""
        await streams.ignore(self._keys.control)

    def take(self, entries: list[RawEntry]) -> None:
        """Do what the messages say, in their order."""
        for entry_id, fields in entries:
            try:
                self._apply(decode_control(fields or ()))
            except DecodeError as error:
                facts = {"queue": self._keys.name, "entry_id": entry_id.decode()}
                logger.warning("ignored a message on the control stream: %s", error, extra=facts)

    async def bridge_gap(self, lane: Lane) -> None:
        """Read the whole state: messages may have been missed."""
        self.after = await last_id(lane, self._keys.control)
        state = await read_control(lane, self._keys)
        self._apply(GateNotice(state.has_gate))
        if state.has_flows:
            self._apply(FlowsNotice())
        self._feed.release_held()
        for notice in await read_holds(lane, self._keys) if state.has_gate else ():
            self._apply(notice)
        self._apply(PauseRequest(state.paused))
        for member in state.requests:
            try:
                self._apply(decode_request(member))
            except DecodeError as error:
                logger.warning("ignored a request: %s", error, extra={"queue": self._keys.name})

    def _pause(self, *, paused: bool) -> None:
        if paused != self._reader.is_paused:
            name, what = self._keys.name, "paused" if paused else "resumed"
            logger.info("queue %s was %s", name, what, extra={"queue": name})
        self._reader.pause(paused=paused)

    def _apply(self, message: ControlMessage) -> None:
        match message:
            case CancelRequest():
                self._feed.cancel(message)
            case PauseRequest(paused):
                self._pause(paused=paused)
            case DrainRequest(worker):
                self._on_drain(worker)
            case GateNotice() | FlowsNotice():
                self._on_notice(message)
            case HoldNotice():
                self._feed.hold(message)
            case ReleaseNotice(what):
                self._feed.release_held(what)
            case _:
                assert_never(message)
