import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.msgpack import encode

from tampu.errors import DecodeError
from tampu.wire.msgpack import (
    MAX_DEPTH,
    RecordShape,
    end_of_value,
    may_nest_too_deep,
    read_name,
    read_optional_uint,
    read_record,
    read_uint,
)
from tests.effort import cases
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


@settings(max_examples=cases(300), deadline=None)
@given(plain_values, st.binary(max_size=5))
def test_the_end_is_where_msgpack_wrote_it(value: object, rest: bytes) -> None:
    data: bytes = msgpack.packb(value)
    assert end_of_value(data + rest) == len(data)


@settings(max_examples=cases(500), deadline=None)
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
        with pytest.raises(DecodeError, match="more than 64 levels deep"):
            end_of_value(deeper)


def test_short_values_and_values_with_few_containers_cannot_nest_too_deep() -> None:
    assert not may_nest_too_deep(nested(MAX_DEPTH))
    assert not may_nest_too_deep(nested(MAX_DEPTH - 1) + b"a" * 1000)
    assert may_nest_too_deep(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        end_of_value(data)


SHAPE = RecordShape(what="thing", names=("a", "b", "c"), least=2, needed=1)


def test_a_record_is_read_by_position_or_by_name() -> None:
    assert read_record(b"\x92\x01\x02", 0, SHAPE) == ({"a": b"\x01", "b": b"\x02"}, 3)
    by_name = encode({"c": None, "a": 1, "other": [1, 2]})
    assert read_record(by_name, 0, SHAPE) == ({"a": b"\x01", "c": b"\xc0"}, len(by_name))


def test_a_record_may_stand_in_the_middle() -> None:
    fields, end = read_record(b"???\x92\x01\x02!!!", 3, SHAPE)
    assert (fields, end) == ({"a": b"\x01", "b": b"\x02"}, 6)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x91\x01", b"\x94\x01\x02\x03\x04", b"\x80", b"\x01", b"\x81\xc0\x01", b"\x81\x01"],
)
def test_a_malformed_record_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_record(data, 0, SHAPE)


def test_a_name_may_be_text_bytes_or_a_number() -> None:
    assert read_name(b"\xa1x", what="n") == "x"
    assert read_name(b"\xc4\x01x", what="n") == "x"
    assert read_name(b"\x02", what="n") == 2
    for raw in (b"\xc3", b"\xc0", b"\xcb" + b"\x00" * 8, b"\xc4\x01\xff", b"\x90"):
        with pytest.raises(DecodeError):
            read_name(raw, what="n")


def test_a_number_must_fit_its_bits() -> None:
    assert read_uint(encode(2**32 - 1), what="n", bits=32) == 2**32 - 1
    assert read_uint(encode(2**64 - 1), what="n") == 2**64 - 1
    assert read_optional_uint(b"\xc0", what="n") is None
    with pytest.raises(DecodeError, match="32 bits"):
        read_uint(encode(2**32), what="n", bits=32)
