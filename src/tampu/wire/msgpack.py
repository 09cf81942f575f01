"""Reads MessagePack without building values, and records as the peer writes them."""

from typing import Annotated, Final, TypeVar

from msgspec import Meta, MsgspecError, Struct
from msgspec.msgpack import Decoder

from tampu.errors import DecodeError

MAX_DEPTH: Final = 64
"""Containers inside containers that a value may have, in both directions."""
_CONTAINER_HEADS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
# head: (bytes of the length, bytes between length and content, values per unit of the length);
# no values per unit means that the length counts bytes of content.
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
    """Bytes taken by a value whose head alone tells; 0 where it does not."""
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
    """Index just behind the one value that begins at `start`.

    Raises `DecodeError` for a value that is cut off, holds the reserved byte or nests deeper
    than `MAX_DEPTH`. Texts are not checked to be UTF-8.
    """
    try:
        end = _walk(data, start, what)
    except IndexError:
        raise _cut_off(what) from None
    if end > len(data):
        raise _cut_off(what)
    return end


def _walk(data: bytes, position: int, what: str) -> int:
    """One loop for all levels, for speed."""
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
            if head < 0xA0:  # as `open_value` has it; the call would double the time
                position += 1
                children = (head & 0x0F) << (head < 0x90)
            else:
                position, children = open_value(data, position, what=what)
            if children != _NO_CONTAINER:
                if len(outer) == MAX_DEPTH:
                    raise DecodeError(what, f"it nests deeper than {MAX_DEPTH} levels")
                outer.append(missing)
                missing = children
        if not outer:
            return position
        missing = outer.pop()


def open_value(data: bytes, position: int, *, what: str) -> tuple[int, int]:
    """Read a head whose width the first byte does not tell: where it leads, how many children.

    For a container: the index of its first child and the number of values in it, which is never
    more than the bytes that are left. For anything else: the index behind it and -1.
    """
    head = data[position]
    if head < 0xA0:
        return position + 1, (head & 0x0F) << (head < 0x90)
    if head not in _SIZED:
        raise DecodeError(what, "it holds the reserved byte 0xc1")
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
    """False if the bytes cannot nest deeper than `MAX_DEPTH`, which is cheap to tell of most.

    So few bytes, or so few bytes that could open a container, cannot nest that deep.
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
    """What a record is made of.

    An array has at least `least` elements and at most one per name. A map has at least the first
    `needed` names: what is optional may be left out of a map, but not out of an array.
    """

    what: str
    names: tuple[str, ...]
    least: int
    needed: int


def read_record(data: bytes, start: int, shape: RecordShape) -> tuple[dict[str, bytes], int]:
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
