"""The time of a test: it stands still, on the server and in this process, until it is moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tampu.errors import OptionError
from tampu.server.scripts.script import Script, set_prelude
from tampu.util.clock import freeze_clock

if TYPE_CHECKING:
    from tampu.server.lane import Lane

_TRAVEL = Script("travel")
_PRELUDE: Final = "parts/virtual_time"
# Also written in the prelude: a script cannot be given keys of which its caller does not know.
_CLOCK: Final = b"tampu:testing:clock"
_EXPIRIES: Final = b"tampu:testing:expiries"


async def begin_test(lane: Lane, at_ms: int) -> None:
    """Empty the database and let the time stand still at an instant.

    `OptionError` if the database has keys that no test left there.
    """
    if await lane.call("DBSIZE") and not await lane.call("EXISTS", _CLOCK):
        problem = "must lead to an empty database, because tests delete everything in it"
        raise OptionError("url", lane.server.name, problem)
    await empty_database(lane)
    await lane.call("SET", _CLOCK, at_ms)
    set_prelude(_PRELUDE)
    freeze_clock(at_ms)


def end_test() -> None:
    """Let the clock of this process run again."""
    set_prelude(None)
    freeze_clock(None)


async def empty_database(lane: Lane) -> None:
    """Delete every key of the database."""
    await lane.call("FLUSHDB")


async def travel(lane: Lane, sets: Sequence[bytes], *, latest_ms: int, with_now: bool) -> list[int]:
    """Move the time to the next instant at which something is due, but not beyond `latest_ms`.

    Returns the numbers of the sorted sets that have something due; if there are none, the time is
    `latest_ms`. With `with_now`, what is due already counts too.
    """
    args = (latest_ms, int(with_now))
    reply: Any = await _TRAVEL.run(lane, (_CLOCK, _EXPIRIES, *sets), args)
    freeze_clock(int(reply[0]))
    return list(reply[1:])
