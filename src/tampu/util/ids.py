"""Job ids: ULIDs, which sort by the time they were made.

The first pair after the time is not random: it is kept for the number of a partition, so that a
job could be found by its id on a queue that is spread over several nodes. Today it is always 00.
"""

import re
from itertools import count as count_up
from os import urandom
from typing import Final

from tampu.util.clock import frozen_ms

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's, without I, L, O and U
_OWN_ID: Final = re.compile(f"[{_ALPHABET}]{{26}}").fullmatch
_PAIRS: Final = [a + b for a in _ALPHABET for b in _ALPHABET]
_COUNTER_BITS: Final = 40
_COUNTER_MASK: Final = (1 << _COUNTER_BITS) - 1
_RANDOM_BITS: Final = 70
_RANDOM_MASK: Final = (1 << _RANDOM_BITS) - 1
_TAIL_BITS: Final = 80  # all bits after the time
_PARTITION: Final = "00"
_SHIFTS: Final = tuple(range(120, -1, -10))
_ORDER: Final = count_up(1)


def new_ids(count: int, now_ms: int) -> list[str]:
    """`count` new ids in ascending order. No state is kept, so threads and forks cannot collide.

    A batch draws 70 random bits once; its ids count up from there.
    """
    drawn = _draw()
    # The counter starts in the lower half of its range, so that it never overflows.
    start = (drawn & _COUNTER_MASK) >> 1
    head = _encode(now_ms, 5) + _PARTITION + _encode(drawn >> _COUNTER_BITS, 3)
    end = start + count
    ids: list[str] = []
    while start < end:
        # Up to the next multiple of 1024 only the last two characters differ: a sixth of the time.
        prefix, first = head + _encode(start >> 10, 3), start & 1023
        last = min(1024, first + end - start)
        ids += [prefix + pair for pair in _PAIRS[first:last]]
        start += last - first
    return ids


def new_id(now_ms: int) -> str:
    """One new id."""
    number = now_ms << _TAIL_BITS | _draw()
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def is_own_id(job_id: str) -> bool:
    """Whether an id looks like one of ours; else a user chose it."""
    return _OWN_ID(job_id) is not None


def time_of_id(job_id: str) -> int | None:
    """When an id was made, in ms since 1970; None for an id that a user chose."""
    if not is_own_id(job_id):
        return None
    time_ms = 0
    for letter in job_id[:10]:
        time_ms = time_ms << 5 | _ALPHABET.index(letter)
    return time_ms


def _draw() -> int:
    if frozen_ms() is not None:
        # All ids have the same time then, and would be in no order.
        return next(_ORDER) << _COUNTER_BITS
    return int.from_bytes(urandom(9), "big") & _RANDOM_MASK


def _encode(number: int, pairs: int) -> str:
    return "".join([_PAIRS[number >> 10 * place & 1023] for place in range(pairs - 1, -1, -1)])
