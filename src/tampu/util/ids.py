"""Job ids: ULIDs, which sort by the time they were made."""

from os import urandom
from typing import Final

_LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's, without I, L, O and U
_PAIRS: Final = [a + b for a in _LETTERS for b in _LETTERS]
_COUNTED_BITS: Final = 40
_COUNTED: Final = (1 << _COUNTED_BITS) - 1
_RANDOM_BITS: Final = 80
_SHIFTS: Final = tuple(range(120, -1, -10))


def new_ids(count: int, now_ms: int) -> list[str]:
    """As many new ids, in ascending order; nothing is kept, so threads and forks cannot collide.

    One draw of 80 random bits serves the batch: the ids of a batch count up from it.
    """
    drawn = int.from_bytes(urandom(10), "big")
    # The half that counts starts low enough never to overflow into the other.
    start = (drawn & _COUNTED) >> 1
    head = _spelled(now_ms, 5) + _spelled(drawn >> _COUNTED_BITS, 4)
    end = start + count
    ids: list[str] = []
    while start < end:
        # Up to the next 1024 only the last two letters differ: a sixth of the time.
        shared, first = head + _spelled(start >> 10, 3), start & 1023
        last = min(1024, first + end - start)
        ids += [shared + pair for pair in _PAIRS[first:last]]
        start += last - first
    return ids


def new_id(now_ms: int) -> str:
    """One new id."""
    number = now_ms << _RANDOM_BITS | int.from_bytes(urandom(10), "big")
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def _spelled(number: int, pairs: int) -> str:
    return "".join([_PAIRS[number >> 10 * place & 1023] for place in range(pairs - 1, -1, -1)])
