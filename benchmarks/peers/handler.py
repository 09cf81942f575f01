"""What every peer's handler does: nothing, and say when. Plain Python, for all of them.

A worker is a process of the peer's own making, so its handlers speak through a named pipe:
one line each, short enough to be written whole.
"""

import os
from functools import cache
from itertools import count
from time import process_time, time
from typing import Final

from benchmarks.peers.asked import CONSUME, DISPATCH, LATENESS, NOTE_EVERY, RESULT

URL: Final = os.environ.get("PEER_URL", "")
SCENARIO: Final = os.environ.get("PEER_SCENARIO", "")
RESULTS: Final = SCENARIO == RESULT  # else the peer is to store none
DELAYS: Final = SCENARIO == LATENESS  # a scheduler is needed, where that is a process of its own

_number: Final = count(1)  # counts right in threads, too


def ran(data: object) -> object:
    """Run one job: the body of every handler."""
    if SCENARIO == CONSUME:
        number = next(_number)
        if number == 1 or number % NOTE_EVERY == 0:
            _note(f"{number} {time()} {process_time()}\n")
        return None
    if SCENARIO in {DISPATCH, LATENESS}:
        _note(f"{data if DELAYS else 0} {time()} 0\n")
        return None
    if next(_number) == 1:
        _note(f"1 {time()} 0\n")
    return data


def _note(line: str) -> None:
    os.write(_pipe(), line.encode())


@cache
def _pipe() -> int:
    """Opened by the first job, so that it belongs to the process that runs jobs."""
    return os.open(os.environ["PEER_NOTES"], os.O_WRONLY)
