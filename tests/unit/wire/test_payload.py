import dataclasses
import enum
import math
import uuid
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from tampu.errors import DecodeError, EncodeError
from tampu.wire.msgpack import MAX_DEPTH
from tampu.wire.payload import decode_payload, encode_payload, encode_payloads
from tests.effort import cases
from tests.unit.wire.shapes import HOSTILE, mutated, plain_values

LIMIT = 1_048_576


def encode(value: object) -> bytes:
    return encode_payload(value, max_bytes=LIMIT)


@settings(max_examples=cases(400), deadline=None)
@given(plain_values)
def test_a_plain_value_takes_the_bytes_of_msgpack_and_comes_back(value: object) -> None:
    data = encode(value)
    assert data == msgpack.packb(value, use_bin_type=True)
    assert decode_payload(data) == value
    assert msgpack.unpackb(data, strict_map_key=False) == value


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91" * 5000, b"\x01\x02"])
def test_raw_bytes_are_written_as_they_are_up_to_the_limit(data: bytes) -> None:
    assert encode(Raw(data)) == data
    assert encode_payloads([Raw(data), 1], max_bytes=LIMIT) == [data, b"\x01"]
    with pytest.raises(EncodeError, match="max_payload is"):
        encode_payload(Raw(data + b"x"), max_bytes=len(data))


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
def test_every_length_header_is_the_one_of_msgpack(size: int) -> None:
    for value in ("x" * size, b"x" * size, [None] * size, dict.fromkeys(range(size))):
        data = encode(value)
        assert data == msgpack.packb(value)
        assert decode_payload(data) == value


@pytest.mark.parametrize(
    "number", [0, 127, 128, 255, 256, 2**16, 2**32, 2**63, 2**64 - 1, -1, -32, -33, -128, -129]
)
def test_every_int_is_the_smallest_one(number: int) -> None:
    assert encode(number) == msgpack.packb(number)
    assert decode_payload(encode(number)) == number


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**40])
def test_an_int_beyond_64_bits_is_refused(number: int) -> None:
    with pytest.raises(EncodeError, match="2\\*\\*63"):
        encode({"n": [number]})


def test_a_nan_stays_one() -> None:
    value = decode_payload(encode(math.nan))
    assert isinstance(value, float)
    assert math.isnan(value)


def test_tuples_arrive_as_lists() -> None:
    assert encode((1, (2, 3))) == msgpack.packb((1, (2, 3)))
    assert decode_payload(encode((1, (2, 3)))) == [1, [2, 3]]


def test_keys_of_any_plain_hashable_type_come_back() -> None:
    value = {1: "a", -1: "b", b"k": "c", "s": "d", None: "e", 1.5: "f"}
    assert decode_payload(encode(value)) == value


@pytest.mark.parametrize("data", [b"\x81\x80\x01", b"\x81\x91\x80\x01"])
def test_unhashable_keys_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_payload(data)


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not this"


class Whole(int):
    pass


class Real(float):
    pass


class Octets(bytes):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Text("a"),
        {Text("k"): Text("v")},
        Whole(7),
        {Whole(1): Whole(2)},
        [Real(0.5)],
        Octets(b"x"),
        OrderedDict(a=1),
    ],
)
def test_subclasses_of_plain_types_are_written_as_msgpack_writes_them(value: object) -> None:
    assert encode(value) == msgpack.packb(value)


@pytest.mark.parametrize(
    "instant",
    [
        datetime(2026, 5, 4, 3, 2, 1, 654_321, tzinfo=UTC),
        datetime(1969, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 5, 4, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ],
)
def test_an_aware_datetime_comes_back_as_the_same_instant(instant: datetime) -> None:
    value = decode_payload(encode({"at": instant}))
    assert value == {"at": instant}


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


def test_types_that_msgspec_converts_are_written_as_plain_types() -> None:
    unique = uuid.UUID(int=1)
    value = {"u": unique, "c": Colour.RED, "p": Point(1), "s": {1}, "d": datetime(2026, 1, 1)}  # noqa: DTZ001 - what a user may give
    assert decode_payload(encode(value)) == {
        "u": str(unique),
        "c": "red",
        "p": {"x": 1},
        "s": [1],
        "d": "2026-01-01T00:00:00",
    }


@pytest.mark.parametrize("value", [object(), 1j, range(3), iter([]), ...])
def test_an_unsupported_type_is_named(value: object) -> None:
    with pytest.raises(EncodeError, match=type(value).__qualname__):
        encode({"deep": [value]})


def test_a_lone_surrogate_is_refused_without_quoting_the_text() -> None:
    with pytest.raises(EncodeError) as caught:
        encode({"password": "hunter2\ud800"})
    assert "hunter2" not in str(caught.value)


def test_a_payload_may_be_as_large_as_the_limit_and_no_larger() -> None:
    assert len(encode_payload("x" * 98, max_bytes=100)) == 100
    with pytest.raises(EncodeError, match="101 bytes; max_payload is 100"):
        encode_payload("x" * 99, max_bytes=100)


def nested(depth: int) -> object:
    value: object = {}
    for level in range(depth - 1):
        value = [value] if level % 2 else {"k": value}
    return value


def test_many_containers_side_by_side_are_not_deep() -> None:
    value = [nested(MAX_DEPTH - 1)] * 100
    assert decode_payload(encode(value)) == value


def test_text_that_looks_like_containers_is_not_deep() -> None:
    for value in ("жук" * 1000, b"\x91" * 1000):
        assert decode_payload(encode(value)) == value


def test_nesting_is_allowed_to_the_limit_both_ways() -> None:
    value = nested(MAX_DEPTH)
    assert decode_payload(encode(value)) == value
    with pytest.raises(EncodeError, match="more than 64 levels deep"):
        encode(nested(MAX_DEPTH + 1))
    with pytest.raises(DecodeError, match="more than 64 levels deep"):
        decode_payload(msgpack.packb(nested(MAX_DEPTH + 1)))


def test_a_value_that_holds_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(EncodeError, match="more than 64 levels deep"):
        encode(ring)


def test_an_extension_type_is_readable() -> None:
    value: Any = decode_payload(b"\xd5\x01ab")
    assert (value.code, value.data) == (1, b"ab")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x01\x02",
        b"\xa2\xff\xff",
        b"\x92\x01",
        b"\xd4\xff\x00",
        b"\xd7\xff" + b"\xff" * 8,
    ],
)
def test_bytes_that_are_not_exactly_one_value_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_payload(data)


def test_an_error_never_quotes_the_payload() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_payload(b"\xa6secret\xff")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@settings(max_examples=cases(600), deadline=None)
@given(
    st.binary(max_size=120)
    | mutated([msgpack.packb({"a": [1, 2.5, None, "x" * 40], "b": {"c": b"\x00" * 50}})])
)
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    try:
        decode_payload(data)
    except DecodeError:
        return


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_payload(data)


class TestMany:
    def test_each_is_encoded_as_it_would_be_alone(self) -> None:
        values: list[object] = [None, 1, "x" * 500, {"a": [1, 2]}, [[[]]] * 50, b"", True]
        alone = [encode_payload(value, max_bytes=1000) for value in values]
        assert encode_payloads(values, max_bytes=1000) == alone
        assert encode_payloads([], max_bytes=1000) == []

    @pytest.mark.parametrize(
        ("bad", "problem"),
        [
            (object(), "MessagePack has no type for builtins.object"),
            (2**64, "above 2"),
            ("\ud800", "lone surrogate"),
            ("x" * 60, "61 bytes|62 bytes"),
            ("x" * 200, "202 bytes"),
            (eval("[" * 65 + "]" * 65), "levels deep"),  # noqa: S307 - a literal
        ],
    )
    def test_an_invalid_value_in_a_batch_raises_the_same_error_as_alone(
        self, bad: object, problem: str
    ) -> None:
        most = 1000 if problem == "levels deep" else 50
        with pytest.raises(EncodeError, match=problem):
            encode_payloads([1, bad, 2], max_bytes=most)
