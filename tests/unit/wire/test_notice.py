import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import decode, encode

from tampu.errors import DecodeError
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.result import (
    Burial,
    decode_burial,
    decode_notice,
    encode_burial,
    encode_notice,
    ids_in_notice,
)
from tests.unit.wire.shapes import texts


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_notice_or_refused(data: bytes) -> None:
    try:
        told = decode_notice(data)
    except DecodeError:
        return
    assert all(isinstance(job_id, str) for job_id in told)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(BuryReason), texts, texts, texts)
def test_a_burial_comes_back(reason: BuryReason, kind: str, message: str, traceback: str) -> None:
    data = encode_burial(reason, Failure(kind, message, traceback))
    assert decode_burial(data) == Burial(reason.value, kind, message, traceback)


def test_a_burial_without_an_exception_has_its_reason_only() -> None:
    data = encode_burial(BuryReason.EXPIRED, None)
    assert decode(data) == ["expired", "", "", ""]
    assert decode_burial(data) == Burial("expired")


def test_a_shorter_and_a_longer_burial_can_be_read() -> None:
    assert decode_burial(encode(["later"])) == Burial("later")
    assert decode_burial(encode(["r", "T", "m", "t", "new"])) == Burial("r", "T", "m", "t")


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", encode("text"), encode([1]), encode({})])
def test_bytes_that_are_no_burial_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="failure"):
        decode_burial(data)
