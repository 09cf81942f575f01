"""Reads MessagePack without building values, and records as peers write them.

A record is what serde makes of a Rust struct: an array by position or a map by name.
"""

from typing import Annotated, Final, TypeVar

from msgspec import Meta, MsgspecError, Struct
from msgspec.msgpack import Decoder

from tampu.errors import DecodeError

MAX_DEPTH: Final = 64
"""How deep containers may nest, for values that we write and values that we read."""
_CONTAINER_HEADS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
# head: (bytes of the length, bytes between length and content, values per unit of the length);
# 0 values per unit: the length counts bytes of content.
_SIZED: Final = {
    0xC4: (1, 0, 0),  # bin
    0xC5: (2, 0, 0),
    0xC6: (4, 0, 0),
    0xC7: (1, 1, 0),  # ext, with a byte for its type
    0xC8: (2, 1, 0),
    0xC9: (4, 1, 0),
    0xD9: (1, 0, 0),  # str
    0xDA: (2, 0, 0),
    0xDB: (4, 0, 0),
    0xDC: (2, 0, 1),  # array
    0xDD: (4, 0, 1),
    0xDE: (2, 0, 2),  # map
    0xDF: (4, 0, 2),
}


def _fixed_widths() -> bytes:
    """The width of a value by its first byte; 0 where that byte alone does not tell."""
    widths = bytearray(256)
    widths[0x00:0x80] = bytes([1]) * 0x80  # positive fixint
    widths[0xA0:0xC0] = bytes(range(1, 33))  # fixstr
    widths[0xC0] = widths[0xC2] = widths[0xC3] = 1  # nil, false, true
    widths[0xCA:0xD4] = bytes([5, 9, 2, 3, 5, 9, 2, 3, 5, 9])  # float, uint, int
    widths[0xD4:0xD9] = bytes([3, 4, 6, 10, 18])  # fixext
    widths[0xE0:0x100] = bytes([1]) * 0x20  # negative fixint
    return bytes(widths)


_WIDTHS: Final = _fixed_widths()


_NO_CONTAINER: Final = -1


def end_of_value(data: bytes, start: int = 0, *, what: str = "value") -> int:
    """The index after the value that begins at `start`.

    Raises `DecodeError` for a value that is cut off, holds the reserved byte or nests deeper
    than `MAX_DEPTH`. Text is not checked for valid UTF-8.
    """
    try:
        end = _walk(data, start, what)
    except IndexError:
        raise _cut_off(what) from None
    if end > len(data):
        raise _cut_off(what)
    return end


def _walk(data: bytes, position: int, what: str) -> int:
    """One loop for all levels: recursion would be slower."""
    widths, missing = _WIDTHS, 1
    outer: list[int] = []  # values still missing in each container around this one
    while True:
        while missing:
            missing -= 1
            head = data[position]
            width = widths[head]
            if width:
                position += width
                continue
            if head < 0xA0:  # the same as in `open_value`; a call would double the time
                position += 1
                children = (head & 0x0F) << (head < 0x90)
            else:
                position, children = open_value(data, position, what=what)
            if children != _NO_CONTAINER:
                if len(outer) == MAX_DEPTH:
                    raise DecodeError(what, f"it is nested more than {MAX_DEPTH} levels deep")
                outer.append(missing)
                missing = children
        if not outer:
            return position
        missing = outer.pop()


def open_value(data: bytes, position: int, *, what: str) -> tuple[int, int]:
    """Read the head of a value whose first byte does not tell its width.

    Returns for a container the index of its first child and the number of its children, which is
    never more than the bytes that are left; for anything else the index after it and -1.
    """
    head = data[position]
    if head < 0xA0:
        return position + 1, (head & 0x0F) << (head < 0x90)
    if head not in _SIZED:
        raise DecodeError(what, "it contains the reserved byte 0xc1")
    length_width, between, per_unit = _SIZED[head]
    content = position + 1 + length_width
    if content > len(data):
        raise _cut_off(what)
    length = int.from_bytes(data[position + 1 : content], "big")
    if not per_unit:
        return content + between + length, _NO_CONTAINER
    if length * per_unit > len(data) - content:
        raise _cut_off(what)
    return content, length * per_unit


def may_nest_too_deep(data: bytes) -> bool:
    """False if the value cannot be nested deeper than `MAX_DEPTH`; a cheap first check.

    Neither a short value nor one with few bytes that could open a container nests that deep.
    """
    if len(data) <= MAX_DEPTH:
        return False
    return len(data) - len(data.translate(None, _CONTAINER_HEADS)) > MAX_DEPTH


def _cut_off(what: str) -> DecodeError:
    return DecodeError(what, "it ends too early")


T = TypeVar("T")
NIL: Final = b"\xc0"
_anything: Final = Decoder()
_uint: Final[Decoder[int]] = Decoder(Annotated[int, Meta(ge=0)])


class RecordShape(Struct, frozen=True):
    """The fields of a record.

    An array has at least `least` elements and at most one for each name. A map must contain the
    first `needed` names: optional fields may be missing in a map, but not in an array.
    """

    what: str
    names: tuple[str, ...]
    least: int
    needed: int


def read_record(data: bytes, start: int, shape: RecordShape) -> tuple[dict[str, bytes], int]:
    """The raw bytes of each field that is present, and the index after the record."""
    if is_array(data, start):
        return _read_array(data, start, shape)
    if is_map(data, start):
        return _read_map(data, start, shape)
    raise DecodeError(shape.what, "it is neither an array nor a map")


def read_map(data: bytes, start: int, *, what: str) -> tuple[list[tuple[bytes, bytes]], int]:
    """The raw bytes of each key and value of the map at `start`, and the index after it."""
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
    """The name or the index of a field or variant; serde accepts either."""
    name = decode_as(_anything, raw, what=what, expected="a name")
    return name if type(name) is int else _as_text(name, what=what)


def read_text(raw: bytes, *, what: str) -> str:
    """Text, written as str or as bin with UTF-8."""
    return _as_text(decode_as(_anything, raw, what=what, expected="text"), what=what)


def read_uint(raw: bytes, *, what: str, bits: int = 64) -> int:
    """An unsigned integer of at most `bits` bits."""
    number = decode_as(_uint, raw, what=what, expected="a non-negative integer")
    if number >> bits:
        raise DecodeError(what, f"it does not fit into {bits} bits")
    return number


def read_optional_uint(raw: bytes, *, what: str, bits: int = 64) -> int | None:
    """The same as `read_uint`, but None for nil."""
    return None if raw == NIL else read_uint(raw, what=what, bits=bits)


def decode_as(decoder: Decoder[T], raw: bytes, *, what: str, expected: str) -> T:
    """Decode the bytes, or raise `DecodeError`.

    The text of the original error may quote the bytes, so it is dropped.
    """
    try:
        return decoder.decode(raw)
    except (MsgspecError, ValueError, RecursionError, OverflowError):
        raise DecodeError(what, f"it is not {expected}") from None


def _read_array(data: bytes, start: int, shape: RecordShape) -> tuple[dict[str, bytes], int]:
    most = len(shape.names)
    _, count = open_value(data, start, what=shape.what)
    if not shape.least <= count <= most:
        raise DecodeError(shape.what, f"it has {count} elements, not {shape.least} to {most}")
    cells, end = _read_cells(data, start, what=shape.what)
    return dict(zip(shape.names, cells, strict=False)), end


def _read_map(data: bytes, start: int, shape: RecordShape) -> tuple[dict[str, bytes], int]:
    pairs, end = read_map(data, start, what=shape.what)
    fields: dict[str, bytes] = {}
    for raw_name, raw in pairs:
        name = read_name(raw_name, what=f"field name of {shape.what}")
        if name in fields:
            raise DecodeError(shape.what, "a field appears twice")
        if name in shape.names:
            fields[str(name)] = raw
    for name in shape.names[: shape.needed]:
        if name not in fields:
            raise DecodeError(shape.what, f"{name} is missing")
    return fields, end


def _read_cells(data: bytes, start: int, *, what: str) -> tuple[list[bytes], int]:
    """The raw bytes of each direct child of the container at `start`."""
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
        raise DecodeError(what, "it is not text")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise DecodeError(what, "it is not UTF-8") from None
