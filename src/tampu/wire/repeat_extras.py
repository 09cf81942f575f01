"""What we keep of a repeat beside its spec: a field `tampu` in the same hash, and our counters.

Peers read `spec` and `fired` and leave the rest alone. A peer that writes another spec under the
same key leaves our field behind, so that says which spec it belongs to.
"""

from enum import Enum
from hashlib import blake2b
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import EncodeError
from tampu.wire.fields import show_number
from tampu.wire.record import decode_as
from tampu.wire.retry import RetryOverride, Uint64

SPEC: Final = b"spec"
OWN: Final = b"tampu"
FIRED: Final = b"fired"
MISSED: Final = b"missed"
OVERLAPPED: Final = b"overlapped"
OUTSIDE: Final = b"outside"
PAUSED: Final = b"paused"
HELD: Final = b"held"

_DIGEST_BYTES: Final = 8


class OverlapRule(Enum):
    """What becomes of a fire whose predecessor is not done, spelled as on the wire."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"


class WireWindow(Struct, frozen=True, omit_defaults=True):
    """Hours of the week, as the user gave them."""

    tz: str
    days: tuple[str, ...] | None = None
    segments: tuple[tuple[str, str], ...] | None = None


class RepeatExtras(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a repeat that its spec has no room for; unknown ones are ignored.

    `of` is the digest of the spec that they belong to.
    """

    of: bytes = b""
    anchor_ms: Uint64 | None = None
    window: WireWindow | None = None
    overlap: OverlapRule = OverlapRule.ALLOW
    jitter_ms: Uint64 = 0
    retry: RetryOverride | None = None
    timeout_ms: Uint64 | None = None
    grace_ms: Uint64 | None = None
    catch_up_ms: Uint64 | None = None


NO_REPEAT_EXTRAS: Final = RepeatExtras()

_encode: Final = Encoder().encode
_decoder: Final = Decoder(RepeatExtras)


def digest_of_spec(spec: bytes) -> bytes:
    """What `of` holds for a spec."""
    return blake2b(spec, digest_size=_DIGEST_BYTES).digest()


def encode_repeat_extras(extras: RepeatExtras) -> bytes:
    """The map for the field `tampu`."""
    try:
        return _encode(extras)
    except (OverflowError, UnicodeEncodeError):
        problem = "a text in them is no UTF-8 or a number is beyond 64 bits"
        raise EncodeError("settings of a repeat", problem) from None


def decode_repeat_extras(data: bytes | None, spec: bytes) -> RepeatExtras:
    """The settings that belong to a spec: none if there are none, or those of another spec."""
    if data is None:
        return NO_REPEAT_EXTRAS
    what = "settings of a repeat"
    extras = decode_as(_decoder, data, what=what, expected="a map of known settings")
    return extras if extras.of == digest_of_spec(spec) else NO_REPEAT_EXTRAS


def decode_count(value: bytes | None) -> int:
    """A counter; one that is absent, or no number, counts as 0."""
    number = 0 if value is None else show_number(value)
    return number if isinstance(number, int) else 0
