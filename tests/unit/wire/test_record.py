import pytest
from msgspec.msgpack import encode

from tampu.errors import DecodeError
from tampu.wire.msgpack import RecordShape, read_name, read_optional_uint, read_record, read_uint

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
def test_what_is_no_such_record_is_refused(data: bytes) -> None:
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
