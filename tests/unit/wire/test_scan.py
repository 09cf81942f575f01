import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError
from tampu.wire.msgpack import MAX_DEPTH, end_of_value, may_nest_too_deep
from tests.unit.wire.shapes import HOSTILE, mutated, plain_values

# One of each head that MessagePack has, with content that fits it.
EVERY_HEAD = {
    "fixint": b"\x7f",
    "fixmap": b"\x81\x01\x02",
    "fixarray": b"\x92\x01\x02",
    "fixstr": b"\xa3abc",
    "empty fixstr": b"\xa0",
    "longest fixstr": b"\xbf" + b"x" * 31,
    "nil": b"\xc0",
    "false": b"\xc2",
    "true": b"\xc3",
    "bin8": b"\xc4\x02ab",
    "bin16": b"\xc5\x00\x02ab",
    "bin32": b"\xc6\x00\x00\x00\x02ab",
    "ext8": b"\xc7\x02\x05ab",
    "ext16": b"\xc8\x00\x02\x05ab",
    "ext32": b"\xc9\x00\x00\x00\x02\x05ab",
    "float32": b"\xca" + b"\x00" * 4,
    "float64": b"\xcb" + b"\x00" * 8,
    "uint8": b"\xcc\x00",
    "uint16": b"\xcd" + b"\x00" * 2,
    "uint32": b"\xce" + b"\x00" * 4,
    "uint64": b"\xcf" + b"\x00" * 8,
    "int8": b"\xd0\x00",
    "int16": b"\xd1" + b"\x00" * 2,
    "int32": b"\xd2" + b"\x00" * 4,
    "int64": b"\xd3" + b"\x00" * 8,
    "fixext1": b"\xd4\x05" + b"x",
    "fixext2": b"\xd5\x05" + b"x" * 2,
    "fixext4": b"\xd6\x05" + b"x" * 4,
    "fixext8": b"\xd7\x05" + b"x" * 8,
    "fixext16": b"\xd8\x05" + b"x" * 16,
    "str8": b"\xd9\x02ab",
    "str16": b"\xda\x00\x02ab",
    "str32": b"\xdb\x00\x00\x00\x02ab",
    "array16": b"\xdc\x00\x02\x01\x02",
    "array32": b"\xdd\x00\x00\x00\x02\x01\x02",
    "map16": b"\xde\x00\x01\x01\x02",
    "map32": b"\xdf\x00\x00\x00\x01\x01\x02",
    "negative fixint": b"\xe0",
}


@pytest.mark.parametrize("data", EVERY_HEAD.values(), ids=EVERY_HEAD)
def test_the_end_of_every_kind_of_value_is_found(data: bytes) -> None:
    assert end_of_value(data) == len(data)
    assert end_of_value(b"??" + data + b"rest", 2) == len(data) + 2
    for end in range(len(data)):
        with pytest.raises(DecodeError, match="ends too early"):
            end_of_value(data[:end])


@settings(max_examples=300, deadline=None)
@given(plain_values, st.binary(max_size=5))
def test_the_end_is_where_msgpack_wrote_it(value: object, rest: bytes) -> None:
    data: bytes = msgpack.packb(value)
    assert end_of_value(data + rest) == len(data)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60) | mutated(list(EVERY_HEAD.values())))
@example(b"\xc1")
def test_any_bytes_end_somewhere_or_are_refused(data: bytes) -> None:
    try:
        end = end_of_value(data)
    except DecodeError:
        return
    assert 0 < end <= len(data)


def nested(depth: int) -> bytes:
    return b"\x91" * (depth - 1) + b"\x90"


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01"])
def test_nesting_is_allowed_to_the_limit_and_not_beyond(opening: bytes) -> None:
    end_of_value(opening * MAX_DEPTH + b"\xc0")
    end_of_value(opening * (MAX_DEPTH - 1) + b"\x80")
    for deeper in (opening * (MAX_DEPTH + 1) + b"\xc0", opening * MAX_DEPTH + b"\x90"):
        assert may_nest_too_deep(deeper)
        with pytest.raises(DecodeError, match="deeper than 64"):
            end_of_value(deeper)


def test_what_has_few_bytes_or_few_heads_cannot_nest_too_deep() -> None:
    assert not may_nest_too_deep(nested(MAX_DEPTH))
    assert not may_nest_too_deep(nested(MAX_DEPTH - 1) + b"a" * 1000)
    assert may_nest_too_deep(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        end_of_value(data)
