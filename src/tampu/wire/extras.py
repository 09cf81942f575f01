"""Extras: settings of ours that travel next to an envelope. Peers ignore them.

In a stream entry they are the field `x`. In a delayed member they follow the envelope, because
peers ignore bytes after it:

    envelope ‖ map ‖ u32 little-endian length of the map ‖ magic

A peer's retry drops them, so correctness never depends on extras alone.
"""

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import Uint32, Uint64
from tampu.wire.fields import cut_text, cut_text_front
from tampu.wire.keys import HeldKey
from tampu.wire.msgpack import decode_as, end_of_value, is_map

if TYPE_CHECKING:
    from tampu.wire.dead import Failure

MAX_EXTRAS_BYTES: Final = 65_536

MAGIC: Final = b"\xc1TX\x01"
"""The end of a delayed member with extras. MessagePack never uses its first byte."""

LINE_ALONE: Final = b"\x81\xa4line"
"""The begin of extras that have a line and nothing else."""

_FOOTER_BYTES: Final = 4 + len(MAGIC)


MAX_FAILURES: Final = 50
"""The times of so many failed attempts are kept, the latest ones."""
# Together with the times at most 4 KiB.
_MAX_TYPE_BYTES: Final = 256
_MAX_MESSAGE_BYTES: Final = 1_024
_MAX_FRAMES_BYTES: Final = 2_304


class LastError(Struct, frozen=True, array_like=True):
    """What the last failed attempt of a job raised, cut to what can travel with it."""

    error_type: str
    message: str
    traceback: str = ""


class Extras(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of one job, and what happened to it so far.

    None and empty values are not written; unknown ones are ignored.
    """

    # The scripts of the gate read the first four, which therefore stay the first.
    line: str | None = None  # where the job waits, if flow control applies to it
    deadline_ms: Uint64 | None = None
    cost: Uint32 | None = None  # tokens that it takes of a rate; None: 1
    rule: str | None = None  # what it says about others that wait in its line
    timeout_ms: Uint64 | None = None
    scheduled_at_ms: Uint64 | None = None
    schedule_key: str | None = None
    tenant: str | None = None
    headers: dict[str, str] = {}
    unique: HeldKey | None = None
    error: LastError | None = None
    failed_at_ms: tuple[Uint64, ...] = ()  # when attempts failed, oldest first

    def with_failure(self, failure: "Failure", at_ms: int) -> "Extras":
        """The same with one more failed attempt."""
        error = LastError(
            cut_text(failure.error_type, _MAX_TYPE_BYTES),
            cut_text(failure.message, _MAX_MESSAGE_BYTES),
            cut_text_front(failure.traceback, _MAX_FRAMES_BYTES),
        )
        times = (*self.failed_at_ms, at_ms)[-MAX_FAILURES:]
        return replace(self, error=error, failed_at_ms=times)

    def without_failures(self) -> "Extras":
        """The same for a job that starts again from its first attempt."""
        return replace(self, error=None, failed_at_ms=())


NO_EXTRAS: Final = Extras()

_encode: Final = Encoder().encode
_decoder: Final = Decoder(Extras)


def encode_extras(extras: Extras) -> bytes | None:
    """The bytes of the field `x`; None if there are no extras."""
    if extras == NO_EXTRAS:
        return None
    try:
        data = _encode(extras)
    except (OverflowError, UnicodeEncodeError):
        raise EncodeError(
            "extras", "a text is not valid UTF-8 or a number does not fit into 64 bits"
        ) from None
    if len(data) > MAX_EXTRAS_BYTES:
        problem = f"they take {len(data)} bytes; the limit is {MAX_EXTRAS_BYTES}"
        raise EncodeError("extras", problem)
    return data


def decode_extras(data: bytes | None) -> Extras:
    """The extras in a field `x` or after an envelope; `NO_EXTRAS` for None."""
    if data is None:
        return NO_EXTRAS
    if len(data) > MAX_EXTRAS_BYTES:
        raise DecodeError("extras", f"they take more than {MAX_EXTRAS_BYTES} bytes")
    return decode_as(_decoder, data, what="extras", expected="a map of known settings")


def append_extras(envelope: bytes, extras: Extras) -> bytes:
    """The envelope, followed by its extras if there are any."""
    return append_raw_extras(envelope, encode_extras(extras) or b"")


def append_raw_extras(envelope: bytes, data: bytes) -> bytes:
    """The same as `append_extras`, for extras that are encoded already; b"" for none."""
    if not data:
        return envelope
    return b"".join((envelope, data, len(data).to_bytes(4, "little"), MAGIC))


def split_extras(data: bytes) -> tuple[bytes, bytes | None]:
    """The envelope, and the bytes of the extras after it, if there are any.

    Cheap without extras. An envelope that only looks as if it ended with a footer stays whole: the
    split happens where the envelope really ends and exactly one map fills the rest.
    """
    if not data.endswith(MAGIC):
        return data, None
    end = len(data) - _FOOTER_BYTES
    start = end - int.from_bytes(data[end : end + 4], "little") if end > 0 else 0
    if start <= 0 or not is_map(data, start) or not _ends_at(data, 0, start):
        return data, None
    if not _ends_at(data, start, end):
        return data, None
    return data[:start], data[start:end]


def _ends_at(data: bytes, start: int, end: int) -> bool:
    try:
        return end_of_value(data, start) == end
    except DecodeError:
        return False
