"""Leases on occurrences and on whole resources; one call for each script.

All of them may be sent again after a lost reply, and are then answered as they were the first time.
"""

from enum import Enum
from typing import Final

from msgspec import Struct

from tampu.server.lane import Lane
from tampu.server.script import Script
from tampu.wire.guard_keys import GuardKeys

MOST_DONE: Final = 10_000
"""Occurrences of one resource that are remembered as done, however young they are."""

_HOLD = Script("hold")
_KEEP = Script("keep")
_LET_GO = Script("let_go")


class Answer(Enum):
    """What became of a wish to hold something."""

    HELD = 0  # somebody else holds it
    OURS = 1
    DONE = 2  # it has been run


class Holding(Struct, frozen=True):
    """What is held or to be held, by whom, and for how long at a time."""

    field: bytes
    member: bytes
    token: str
    lease_ms: int


async def hold(lane: Lane, keys: GuardKeys, wanted: Holding) -> Answer:
    """Take it, or learn why it is not to be had."""
    args = (wanted.field, wanted.token, wanted.lease_ms, wanted.member)
    return Answer(await _HOLD.run(lane, (keys.held, keys.done), args, repeatable=True))


async def keep(lane: Lane, keys: GuardKeys, holding: Holding) -> bool:
    """Renew the lease; False if it is not ours any more."""
    args = (holding.field, holding.token, holding.lease_ms)
    return bool(await _KEEP.run(lane, (keys.held,), args, repeatable=True))


async def let_go(lane: Lane, keys: GuardKeys, holding: Holding, *, remember_ms: int) -> bool:
    """Give it back, its occurrence done; False if it was not ours any more."""
    args = (holding.field, holding.token, holding.lease_ms, holding.member, remember_ms, MOST_DONE)
    return bool(await _LET_GO.run(lane, (keys.held, keys.done), args, repeatable=True))
