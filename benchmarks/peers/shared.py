"""What the peers' programs share: their environment, the body of their handlers, adding from tasks.

A peer may start its worker processes itself, so handlers write notes to a named pipe: one line
each, short enough to be written at once.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sized
from functools import cache
from itertools import count
from time import process_time, time
from typing import Final

from benchmarks.peers.protocol import (
    COUNTED,
    DISPATCH,
    JOINS,
    LATENESS,
    NOTE_EVERY,
    OVERTAKE,
    RATE,
    RESULT,
    URGENT,
)

URL: Final = os.environ.get("PEER_URL", "")
SCENARIO: Final = os.environ.get("PEER_SCENARIO", "")
RESULTS: Final = SCENARIO in {RESULT, JOINS}  # otherwise the peer should store no results
DELAYS: Final = SCENARIO == LATENESS  # some peers need another process for delayed jobs
SLOW: Final = SCENARIO == OVERTAKE  # handlers sleep for SLOW_JOB_S after `run_job`

TASKS: Final = 20  # SAQ's own limit

_number: Final = count(1)  # safe in threads


def run_job(data: object) -> object:
    """The body of every handler: do nothing, except for writing notes."""
    if SCENARIO == JOINS:
        return None
    if SCENARIO in COUNTED and data != URGENT:
        number = next(_number)
        if number == 1 or number % NOTE_EVERY == 0:
            _write_note(f"{number} {time()} {process_time()}\n")
        return None
    if SCENARIO in {DISPATCH, LATENESS, OVERTAKE, RATE}:
        _write_note(f"{data if DELAYS else 0} {time()} 0\n")
        return None
    if next(_number) == 1:
        _write_note(f"1 {time()} 0\n")
    return data


def run_join(values: Sized) -> int:
    """The body of the handler that joins a group."""
    _write_note(f"{next(_number)} {time()} {process_time()}\n")
    return len(values)


def _write_note(line: str) -> None:
    os.write(_pipe(), line.encode())


@cache
def _pipe() -> int:
    """Opened by the first job, because only then it is known which process runs jobs."""
    return os.open(os.environ["PEER_NOTES"], os.O_WRONLY)


async def add_from_tasks(add: Callable[[], Awaitable[object]], jobs: int) -> None:
    """Add jobs from several tasks at once, for peers without a call that adds many."""

    async def add_some() -> None:
        for _ in range(jobs // TASKS):
            await add()

    await asyncio.gather(*(add_some() for _ in range(TASKS)))
