from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError, EncodeError, OptionError
from tampu.wire.result import decode_result, encode_result, result_ttl_s
from tests.golden.chasquimq import golden
from tests.unit.wire.shapes import plain_values

LIMIT = 1_048_576


@pytest.mark.parametrize("record", golden("results"))
def test_a_captured_result_is_read_and_written_byte_for_byte(record: dict[str, Any]) -> None:
    captured = bytes.fromhex(record["value_hex"])
    assert decode_result(captured) == record["value"]
    assert encode_result(record["value"], max_bytes=LIMIT) == captured


@pytest.mark.parametrize("record", golden("commands", command="store result"))
def test_a_captured_result_is_kept_for_as_many_seconds(record: dict[str, Any]) -> None:
    asked_ms = 1_500 if record["case"].endswith("ttl_1500ms") else 3_600_000
    assert result_ttl_s(asked_ms) == record["ttl_s"]


def test_none_is_a_result() -> None:
    assert encode_result(None, max_bytes=LIMIT) == b"\xc0"
    assert decode_result(b"\xc0") is None


@pytest.mark.parametrize(
    ("ttl_ms", "ttl_s"), [(1, 1), (999, 1), (1000, 1), (1001, 2), (1500, 2), (3_600_000, 3600)]
)
def test_a_ttl_is_rounded_up_to_seconds(ttl_ms: int, ttl_s: int) -> None:
    assert result_ttl_s(ttl_ms) == ttl_s


@pytest.mark.parametrize("ttl_ms", [0, -1])
def test_a_ttl_must_be_above_zero(ttl_ms: int) -> None:
    with pytest.raises(OptionError, match="result_ttl"):
        result_ttl_s(ttl_ms)


def test_errors_speak_of_the_result() -> None:
    with pytest.raises(EncodeError, match="result cannot be encoded: it takes 12 bytes"):
        encode_result("x" * 11, max_bytes=10)
    with pytest.raises(DecodeError, match="result cannot be decoded"):
        decode_result(b"")


@settings(max_examples=100, deadline=None)
@given(plain_values)
def test_a_result_comes_back(value: object) -> None:
    assert decode_result(encode_result(value, max_bytes=LIMIT)) == value


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_result_or_refused(data: bytes) -> None:
    try:
        decode_result(data)
    except DecodeError:
        return
