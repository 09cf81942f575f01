"""Waiting for a queue to be empty."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from tampu.admin.counts import Counts, count_jobs
from tampu.server.lane import Lane
from tampu.util.pauses import Pauses
from tampu.wire.keys import QueueKeys

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


async def drain(
    lane: Lane,
    keys: QueueKeys,
    *,
    group: str = "default",
    delayed: bool = False,
    timeout_s: float | None = None,
    tell: Callable[[Counts], None] | None = None,
) -> Counts:
    """Wait until no job waits or runs; with `delayed`, until none is delayed either.

    Returns the last counts, and that is what `is_drained` is for, when the time is up too. `tell`
    gets the counts of every look.
    """
    limit = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
    pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    while True:
        counts = await count_jobs(lane, keys, group.encode())
        if tell is not None:
            tell(counts)
        left_s = inf if limit is None else limit - asyncio.get_running_loop().time()
        if is_drained(counts, delayed=delayed) or left_s <= 0:
            return counts
        await asyncio.sleep(min(pauses.next_s(), left_s))


def is_drained(counts: Counts, *, delayed: bool = False) -> bool:
    """Whether nothing is left to wait for."""
    return not counts.waiting and not counts.active and not (delayed and counts.delayed)
