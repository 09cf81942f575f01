"""What tests of lanes share."""

from typing import Protocol

import pytest

from tampu.errors import ConnectionLost, ServerUnreachable
from tampu.server.lane import Lane, LaneOptions
from tests.proxy import Proxy

KEY = b"{chasqui:lane}:stream"
COUNTER = b"{chasqui:lane}:n"
QUICK = LaneOptions(limit_s=30.0, patience_s=10.0, first_pause_s=0.01, longest_pause_s=0.1)
"""Reconnects quickly, and never takes a busy machine for a silent server."""
IMPATIENT = LaneOptions(limit_s=30.0, patience_s=0.5, first_pause_s=0.01, longest_pause_s=0.1)
"""For tests of silence: what they expect may also happen earlier."""
PATIENT = LaneOptions(limit_s=30.0, patience_s=10.0)


class Through(Protocol):
    """Opens a lane that goes through a proxy."""

    async def __call__(self, options: LaneOptions = QUICK) -> tuple[Lane, Proxy]: ...


async def until_lost(lane: Lane) -> None:
    """Return when the lane has noticed that its server is gone."""
    with pytest.raises((ConnectionLost, ServerUnreachable)):
        while True:
            await lane.call("PING", limit_s=0.2)
