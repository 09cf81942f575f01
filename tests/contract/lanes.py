"""Shared parts of the tests of lanes."""

from typing import Protocol

import pytest

from tampu.errors import ConnectionLost, ServerUnreachable
from tampu.server import redis_py
from tampu.server.lane import Lane, LaneOptions
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

KEY = b"{chasqui:lane}:stream"
COUNTER = b"{chasqui:lane}:n"
QUICK = LaneOptions(limit_s=30.0, patience_s=10.0, first_pause_s=0.01, longest_pause_s=0.1)
"""Reconnects quickly, and does not mistake a busy machine for a silent server."""
IMPATIENT = LaneOptions(limit_s=30.0, patience_s=0.5, first_pause_s=0.01, longest_pause_s=0.1)
"""For tests of silence: on a busy machine they may end earlier, but not differently."""
PATIENT = LaneOptions(limit_s=60.0, patience_s=30.0)


class OpenThroughProxy(Protocol):
    """Opens a lane through a new proxy."""

    async def __call__(self, options: LaneOptions = QUICK) -> tuple[Lane, Proxy]: ...


async def until_lost(lane: Lane) -> None:
    """Return when the lane has lost its server."""
    with pytest.raises((ConnectionLost, ServerUnreachable)):
        while True:
            await lane.call("PING", limit_s=0.2)


async def wait_until_blocked(running: RunningServer) -> None:
    """Return when a blocking read waits at the server."""
    with running.admin() as admin:
        await wait_until(
            lambda: bool(admin.info("clients")["blocked_clients"]), within=60, sentence="blocked"
        )


def hide_private_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make redis-py look like a version without the private parts that lanes use."""
    for part in ("_WRITER", "_NODES_MANAGER"):
        monkeypatch.setattr(redis_py, part, "no_such_part")
