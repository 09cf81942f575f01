from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import decode, encode

from tampu.errors import DecodeError, EncodeError, OptionError
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.result import (
    StoredFailure,
    decode_failure,
    decode_notice,
    decode_result,
    encode_failure,
    encode_notice,
    encode_result,
    ids_in_notice,
    result_ttl_s,
)
from tests.effort import cases
from tests.golden.chasquimq import golden
from tests.unit.wire.shapes import plain_values, texts

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
    with pytest.raises(EncodeError, match="Cannot encode the result: it takes 12 bytes"):
        encode_result("x" * 11, max_bytes=10)
    with pytest.raises(DecodeError, match="Cannot decode the result"):
        decode_result(b"")


@settings(max_examples=cases(100), deadline=None)
@given(plain_values)
def test_a_result_comes_back(value: object) -> None:
    assert decode_result(encode_result(value, max_bytes=LIMIT)) == value


@settings(max_examples=cases(200), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_result_or_refused(data: bytes) -> None:
    try:
        decode_result(data)
    except DecodeError:
        return


@settings(max_examples=cases(100), deadline=None)
@given(st.lists(texts, max_size=20))
def test_the_ids_of_a_notice_come_back_in_order(job_ids: list[str]) -> None:
    assert decode_notice(encode_notice(job_ids)) == job_ids
    assert ids_in_notice([b"ids", encode_notice(job_ids)]) == job_ids


def test_a_notice_is_a_plain_list_of_texts() -> None:
    assert encode_notice(["a", "b"]) == b"\x92\xa1a\xa1b"


def test_further_fields_of_a_notice_are_ignored() -> None:
    assert ids_in_notice([b"v", b"2", b"ids", b"\x91\xa1a"]) == ["a"]


@pytest.mark.parametrize(
    "flat", [[], [b"ids"], [b"who", b"\x91\xa1a"], [b"ids", b""], [b"ids", b"\x91\x01"]]
)
def test_an_entry_that_is_no_notice_is_refused(flat: list[bytes]) -> None:
    with pytest.raises(DecodeError, match="notice"):
        ids_in_notice(flat)


@settings(max_examples=cases(200), deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_notice_or_refused(data: bytes) -> None:
    try:
        told = decode_notice(data)
    except DecodeError:
        return
    assert all(isinstance(job_id, str) for job_id in told)


@settings(max_examples=cases(100), deadline=None)
@given(st.sampled_from(BuryReason), texts, texts, texts)
def test_a_burial_comes_back(reason: BuryReason, kind: str, message: str, traceback: str) -> None:
    data = encode_failure(reason, Failure(kind, message, traceback))
    assert decode_failure(data) == StoredFailure(reason.value, kind, message, traceback)


def test_a_burial_without_an_exception_has_its_reason_only() -> None:
    data = encode_failure(BuryReason.EXPIRED, None)
    assert decode(data) == ["expired", "", "", ""]
    assert decode_failure(data) == StoredFailure("expired")


def test_a_shorter_and_a_longer_burial_can_be_read() -> None:
    assert decode_failure(encode(["later"])) == StoredFailure("later")
    assert decode_failure(encode(["r", "T", "m", "t", "new"])) == StoredFailure("r", "T", "m", "t")


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", encode("text"), encode([1]), encode({})])
def test_bytes_that_are_no_burial_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="failure"):
        decode_failure(data)
