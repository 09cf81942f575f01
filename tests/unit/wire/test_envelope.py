from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import (
    Envelope,
    RetryOverride,
    WireBackoff,
    decode_envelope,
    decode_envelope_prefix,
    decode_envelopes,
    encode_envelope,
    encode_fresh,
)
from tests.golden.chasquimq import envelope_of, golden
from tests.unit.wire.shapes import HOSTILE, envelopes, mutated, texts, uint64

PLAIN = Envelope("my-id-1", b"\x81\xa1x\x01", 1_794_725_044_563)
FULL = Envelope(
    "my-id-2",
    b"\xc0",
    1_794_725_044_563,
    3,
    RetryOverride(5, WireBackoff("exponential", 250, 30_000, 2.0, 50)),
)


def captured(record: dict[str, Any]) -> bytes:
    (data,) = (bytes.fromhex(value) for name, value in record["fields"] if name == "d")
    return data


@pytest.mark.parametrize("record", golden("stream_entries"))
def test_a_captured_envelope_is_read_and_written_byte_for_byte(record: dict[str, Any]) -> None:
    stated = envelope_of(record["envelope"])
    assert decode_envelope(captured(record)) == stated
    assert encode_envelope(stated) == captured(record)


@settings(max_examples=300, deadline=None)
@given(envelopes)
def test_an_envelope_comes_back_and_takes_the_bytes_of_msgpack(envelope: Envelope) -> None:
    data = encode_envelope(envelope)
    assert decode_envelope(data) == envelope
    assert decode_envelope_prefix(data) == (envelope, len(data))
    row = [envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt]
    if envelope.retry is not None:
        backoff = envelope.retry.backoff
        slots = (
            None
            if backoff is None
            else [getattr(backoff, s) for s in WireBackoff.__struct_fields__]
        )
        row.append([envelope.retry.max_attempts, slots])
    assert data == msgpack.packb(row, use_bin_type=True)


@settings(max_examples=100, deadline=None)
@given(texts, st.binary(max_size=300), uint64)
def test_a_fresh_envelope_is_the_one_without_attempt_and_override(
    job_id: str, payload: bytes, created_at_ms: int
) -> None:
    fresh = encode_fresh(job_id, payload, created_at_ms)
    assert fresh == encode_envelope(Envelope(job_id, payload, created_at_ms))


def test_without_an_override_there_are_four_elements_and_with_an_empty_one_five() -> None:
    assert encode_envelope(PLAIN)[0] == 0x94
    empty = Envelope("i", b"\xc0", 0, 0, RetryOverride(None, None))
    assert encode_envelope(empty) == bytes.fromhex("95a169c401c0000092c0c0")
    with pytest.raises(ValueError, match="too many"):
        _id, _payload, _created, _attempt = msgpack.unpackb(encode_envelope(empty))


def test_an_override_of_the_peers_tests_takes_the_same_bytes() -> None:
    *_, retry = msgpack.unpackb(encode_envelope(FULL))
    assert retry == [5, ["exponential", 250, 30_000, 2.0, 50]]


@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536])
def test_the_payload_is_bin_of_the_smallest_size(size: int) -> None:
    envelope = Envelope("i", b"x" * size, 0)
    assert encode_envelope(envelope) == msgpack.packb(["i", b"x" * size, 0, 0])
    assert decode_envelope(encode_envelope(envelope)) == envelope


def test_a_batch_is_read_in_order_and_one_bad_envelope_spoils_only_itself() -> None:
    good = encode_envelope(PLAIN)
    assert decode_envelopes([good, encode_envelope(FULL)]) == [PLAIN, FULL]
    first, refused, tolerated = decode_envelopes([good, b"\xff", good + b"trailing"])
    assert (first, tolerated) == (PLAIN, PLAIN)
    assert isinstance(refused, DecodeError)
    assert decode_envelopes([]) == []


@pytest.mark.parametrize(
    ("job_id", "created_at_ms"), [("\ud800", 0), ("i", 2**64), ("i", -(2**63) - 1)]
)
def test_what_cannot_be_written_is_refused(job_id: str, created_at_ms: int) -> None:
    with pytest.raises(EncodeError, match="envelope"):
        encode_envelope(Envelope(job_id, b"", created_at_ms))
    with pytest.raises(EncodeError, match="envelope"):
        encode_fresh(job_id, b"", created_at_ms)


def test_an_envelope_does_not_change() -> None:
    with pytest.raises(AttributeError):
        PLAIN.attempt = 1  # type: ignore[misc]


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=80) | mutated([encode_envelope(PLAIN), encode_envelope(FULL)]))
def test_any_bytes_are_an_envelope_or_refused(data: bytes) -> None:
    try:
        envelope = decode_envelope(data)
    except DecodeError:
        return
    assert decode_envelope(encode_envelope(envelope)) == envelope
    assert 0 <= envelope.attempt < 2**32
    assert 0 <= envelope.created_at_ms < 2**64


@settings(max_examples=400, deadline=None)
@given(mutated([encode_envelope(PLAIN), encode_envelope(FULL)]))
def test_the_tolerant_way_reads_what_the_fast_way_reads(data: bytes) -> None:
    try:
        envelope = decode_envelope(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_envelope_prefix(data)
    else:
        assert decode_envelope_prefix(data)[0] == envelope


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_envelope(data)
