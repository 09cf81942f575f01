"""Job ids: ULIDs, which sort by the time they were made."""

from os import urandom
from typing import Final

_LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's, without I, L, O and U
_PAIRS: Final = [a + b for a in _LETTERS for b in _LETTERS]
_COUNTED_BITS: Final = 40
_COUNTED: Final = (1 << _COUNTED_BITS) - 1


def new_ids(count: int, now_ms: int) -> list[str]:
    """As many new ids, in ascending order; nothing is kept, so threads and forks cannot collide.

    One draw of 80 random bits serves the batch: the ids of a batch count up from it.
    """
    drawn = int.from_bytes(urandom(10), "big")
    # The half that counts starts low enough never to overflow into the other.
    start = (drawn & _COUNTED) >> 1
    head = _spelled(now_ms, 10) + _spelled(drawn >> _COUNTED_BITS, 8)
    pairs = _PAIRS
    return [
        head
        + pairs[number >> 30]
        + pairs[number >> 20 & 1023]
        + pairs[number >> 10 & 1023]
        + pairs[number & 1023]
        for number in range(start, start + count)
    ]


def new_id(now_ms: int) -> str:
    """One new id."""
    return new_ids(1, now_ms)[0]


def _spelled(number: int, length: int) -> str:
    return "".join(_LETTERS[number >> 5 * place & 31] for place in reversed(range(length)))
