"""Records as the peer's serde reads them: an array by position or a map by name.

For the tolerant ways only. A record comes apart into the raw bytes of its fields, and each
field is then read for what it should be.
"""

from typing import Annotated, Final, TypeVar

from msgspec import Meta, MsgspecError, Struct
from msgspec.msgpack import Decoder

from tampu.errors import DecodeError
from tampu.wire.scan import end_of_value, open_value

T = TypeVar("T")

NIL: Final = b"\xc0"

_anything: Final = Decoder()
_uint: Final[Decoder[int]] = Decoder(Annotated[int, Meta(ge=0)])


class Shape(Struct, frozen=True):
    """What a record is made of.

    An array has at least `least` elements and at most one per name. A map has at least the first
    `needed` names: what is optional may be left out of a map, but not out of an array.
    """

    what: str
    names: tuple[str, ...]
    least: int
    needed: int


def read_record(data: bytes, start: int, shape: Shape) -> tuple[dict[str, bytes], int]:
    """The raw bytes of each field that is there, and the index behind the record."""
    if is_array(data, start):
        return _read_array(data, start, shape)
    if is_map(data, start):
        return _read_map(data, start, shape)
    raise DecodeError(shape.what, "it is neither an array nor a map")


def read_map(data: bytes, start: int, *, what: str) -> tuple[list[tuple[bytes, bytes]], int]:
    """The raw bytes of each key and value of the map at `start`, and the index behind it."""
    cells, end = _read_cells(data, start, what=what)
    return list(zip(cells[::2], cells[1::2], strict=True)), end


def is_array(data: bytes, start: int = 0) -> bool:
    """Whether an array begins at `start`."""
    head = data[start : start + 1]
    return b"\x90" <= head <= b"\x9f" or head in {b"\xdc", b"\xdd"}


def is_map(data: bytes, start: int = 0) -> bool:
    """Whether a map begins at `start`."""
    head = data[start : start + 1]
    return b"\x80" <= head <= b"\x8f" or head in {b"\xde", b"\xdf"}


def read_name(raw: bytes, *, what: str) -> str | int:
    """A field's or variant's name, or its index; serde takes either."""
    name = decode_as(_anything, raw, what=what, expected="a name")
    return name if type(name) is int else _as_text(name, what=what)


def read_text(raw: bytes, *, what: str) -> str:
    """A text, written as str or as bin of UTF-8."""
    return _as_text(decode_as(_anything, raw, what=what, expected="a text"), what=what)


def read_uint(raw: bytes, *, what: str, bits: int = 64) -> int:
    """A whole number from 0 up to what `bits` hold."""
    number = decode_as(_uint, raw, what=what, expected="a whole number from 0")
    if number >> bits:
        raise DecodeError(what, f"it does not fit into {bits} bits")
    return number


def read_optional_uint(raw: bytes, *, what: str, bits: int = 64) -> int | None:
    """As `read_uint`, or None for nil."""
    return None if raw == NIL else read_uint(raw, what=what, bits=bits)


def decode_as(decoder: Decoder[T], raw: bytes, *, what: str, expected: str) -> T:
    """What the decoder makes of the bytes, or `DecodeError`; foreign errors end here.

    Their texts may quote the bytes, so nothing of them is kept.
    """
    try:
        return decoder.decode(raw)
    except (MsgspecError, ValueError, RecursionError, OverflowError):
        raise DecodeError(what, f"it is not {expected}") from None


def _read_array(data: bytes, start: int, shape: Shape) -> tuple[dict[str, bytes], int]:
    most = len(shape.names)
    _, count = open_value(data, start, what=shape.what)
    if not shape.least <= count <= most:
        raise DecodeError(shape.what, f"it has {count} elements, not {shape.least} to {most}")
    cells, end = _read_cells(data, start, what=shape.what)
    return dict(zip(shape.names, cells, strict=False)), end


def _read_map(data: bytes, start: int, shape: Shape) -> tuple[dict[str, bytes], int]:
    pairs, end = read_map(data, start, what=shape.what)
    fields: dict[str, bytes] = {}
    for raw_name, raw in pairs:
        name = read_name(raw_name, what=f"field name of {shape.what}")
        if name in fields:
            raise DecodeError(shape.what, "it has a field twice")
        if name in shape.names:
            fields[str(name)] = raw
    for name in shape.names[: shape.needed]:
        if name not in fields:
            raise DecodeError(shape.what, f"it has no {name}")
    return fields, end


def _read_cells(data: bytes, start: int, *, what: str) -> tuple[list[bytes], int]:
    """The raw bytes of each value directly in the container at `start`."""
    position, count = open_value(data, start, what=what)
    cells = []
    for _ in range(count):
        end = end_of_value(data, position, what=what)
        cells.append(data[position:end])
        position = end
    return cells, position


def _as_text(value: object, *, what: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise DecodeError(what, "it is not a text")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise DecodeError(what, "it is not UTF-8") from None
