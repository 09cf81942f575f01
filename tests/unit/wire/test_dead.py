from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError
from tampu.wire.dead import (
    MAX_MESSAGE_BYTES,
    MAX_TRACEBACK_BYTES,
    BuryReason,
    DeadEntry,
    Failure,
    decode_dead,
    encode_dead,
)
from tests.effort import cases
from tests.golden.chasquimq import fields_of, golden
from tests.unit.wire.shapes import texts, uint64

FULL = DeadEntry(
    envelope=b"\x94...",
    source_id="1-1",
    reason=BuryReason.RETRIES_EXHAUSTED,
    raw_name=b"job",
    detail="why",
    failure=Failure("builtins.ValueError", "boom", "Traceback ...\nValueError: boom"),
    attempt=3,
    worker="c-1",
    buried_at_ms=1_700_000_000_000,
    extras=b"\x81\xa6tenant\xa1a",
)


@pytest.mark.parametrize("record", golden("dead_letters"))
def test_a_captured_dead_letter_is_read_and_written_field_by_field(record: dict[str, Any]) -> None:
    captured = fields_of(record)
    letter = decode_dead(captured)
    assert isinstance(letter.reason, BuryReason)
    assert encode_dead(letter) == captured


def test_our_fields_follow_the_peers() -> None:
    assert encode_dead(FULL)[::2] == [
        *(b"d", b"n", b"source_id", b"reason", b"detail"),
        *(b"error_type", b"error", b"traceback", b"attempt", b"worker", b"buried_at_ms", b"x"),
    ]
    assert decode_dead(encode_dead(FULL)) == FULL


def test_the_reasons_are_spelled_as_at_the_peer() -> None:
    assert [reason.value for reason in BuryReason] == [
        *("retries_exhausted", "unrecoverable", "decode_failed", "malformed", "oversize_payload"),
        *("unknown_handler", "crashed", "expired"),
    ]


@pytest.mark.parametrize("reason", [BuryReason.DECODE_FAILED, BuryReason.OVERSIZE_PAYLOAD])
def test_invalid_bytes_and_names_are_kept_exactly(reason: BuryReason) -> None:
    letter = DeadEntry(envelope=b"\xff\x00", source_id="1-1", reason=reason, raw_name=b"\xfe\x00")
    again = decode_dead(encode_dead(letter))
    assert (again.envelope, again.raw_name) == (b"\xff\x00", b"\xfe\x00")
    assert again.name == "\ufffd\x00"


def test_an_unknown_reason_stays_readable() -> None:
    letter = decode_dead([b"d", b"E", b"source_id", b"1-1", b"reason", b"stalled"])
    assert letter.reason == "stalled"
    assert encode_dead(letter) == [b"d", b"E", b"source_id", b"1-1", b"reason", b"stalled"]


def test_message_and_traceback_are_capped_and_the_end_of_the_traceback_is_kept() -> None:
    failure = Failure("E", "発" * 10_000, "frame\n" * 10_000 + "ValueError: boom")
    letter = decode_dead(
        encode_dead(DeadEntry(envelope=b"", source_id="1", reason="x", failure=failure))
    )
    assert letter.failure is not None
    assert len(letter.failure.message.encode()) <= MAX_MESSAGE_BYTES
    assert len(letter.failure.traceback.encode()) <= MAX_TRACEBACK_BYTES
    assert letter.failure.traceback.endswith("ValueError: boom")


def test_an_error_text_that_is_no_utf8_can_be_kept() -> None:
    failure = Failure("E", "a\ud800b", "t\udfff")
    letter = decode_dead(
        encode_dead(DeadEntry(envelope=b"", source_id="1", reason="x", failure=failure))
    )
    assert letter.failure == Failure("E", "a?b", "t?")


def test_fields_that_are_missing_count_as_empty() -> None:
    assert decode_dead([]) == DeadEntry(envelope=b"", source_id="", reason="")


@settings(max_examples=cases(150), deadline=None)
@given(
    st.builds(
        DeadEntry,
        envelope=st.binary(max_size=60),
        source_id=texts,
        reason=st.sampled_from(BuryReason) | st.just("stalled"),
        raw_name=st.binary(max_size=20),
        detail=st.none() | texts,
        failure=st.none() | st.builds(Failure, texts, texts, texts),
        attempt=st.none() | uint64,
        worker=st.none() | texts,
        buried_at_ms=st.none() | uint64,
        extras=st.none() | st.binary(max_size=20),
    )
)
def test_a_dead_letter_comes_back(letter: DeadEntry) -> None:
    assert decode_dead(encode_dead(letter)) == letter


@settings(max_examples=cases(300), deadline=None)
@given(
    st.lists(
        st.sampled_from([b"d", b"n", b"reason", b"attempt", b"error_type"])
        | st.binary(max_size=30),
        max_size=9,
    )
)
def test_any_fields_are_a_dead_letter_or_refused(flat: list[bytes]) -> None:
    try:
        _ = decode_dead(flat).name
    except DecodeError:
        assert len(flat) % 2
