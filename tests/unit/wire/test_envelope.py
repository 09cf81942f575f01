"""What the peer's decoder accepts and refuses, and where we accept more on purpose."""

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import decode, encode

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import (
    BackoffKind,
    Envelope,
    RetryOverride,
    WireBackoff,
    decode_envelope,
    decode_envelope_prefix,
    encode_envelope,
    encode_fresh,
    payload_of_slot,
)
from tampu.wire.payload import decode_payload
from tests.effort import cases
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


@settings(max_examples=cases(300), deadline=None)
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


@settings(max_examples=cases(100), deadline=None)
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


@pytest.mark.parametrize(
    ("job_id", "created_at_ms"), [("\ud800", 0), ("i", 2**64), ("i", -(2**63) - 1)]
)
def test_an_envelope_that_cannot_be_encoded_is_refused(job_id: str, created_at_ms: int) -> None:
    with pytest.raises(EncodeError, match="envelope"):
        encode_envelope(Envelope(job_id, b"", created_at_ms))
    with pytest.raises(EncodeError, match="envelope"):
        encode_fresh(job_id, b"", created_at_ms)


def test_an_envelope_does_not_change() -> None:
    with pytest.raises(AttributeError):
        PLAIN.attempt = 1  # type: ignore[misc]


@settings(max_examples=cases(1000), deadline=None)
@given(st.binary(max_size=80) | mutated([encode_envelope(PLAIN), encode_envelope(FULL)]))
def test_any_bytes_are_an_envelope_or_refused(data: bytes) -> None:
    try:
        envelope = decode_envelope(data)
    except DecodeError:
        return
    assert decode_envelope(encode_envelope(envelope)) == envelope
    assert 0 <= envelope.attempt < 2**32
    assert 0 <= envelope.created_at_ms < 2**64


@settings(max_examples=cases(400), deadline=None)
@given(mutated([encode_envelope(PLAIN), encode_envelope(FULL)]))
def test_both_decoders_read_the_same(data: bytes) -> None:
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


def test_a_backoff_has_all_five_slots_and_a_float_multiplier() -> None:
    backoff = WireBackoff("exponential", 100, None, 3, None)
    assert encode(backoff) == encode(["exponential", 100, None, 3.0, None])


def test_an_override_has_both_slots() -> None:
    assert encode(RetryOverride(5, None)) == bytes.fromhex("9205c0")
    assert encode(RetryOverride(None, None)) == bytes.fromhex("92c0c0")


@pytest.mark.parametrize(
    ("kind", "effective"),
    [
        ("fixed", BackoffKind.FIXED),
        ("exponential", BackoffKind.EXPONENTIAL),
        ("Fixed", BackoffKind.EXPONENTIAL),
        ("linear", BackoffKind.EXPONENTIAL),
        ("", BackoffKind.EXPONENTIAL),
    ],
)
def test_every_kind_but_fixed_counts_as_exponential_and_keeps_its_text(
    kind: str, effective: BackoffKind
) -> None:
    backoff = decode(encode([kind, 1, None, None, None]), type=WireBackoff)
    assert backoff.effective_kind is effective
    assert encode(backoff) == encode([kind, 1, None, None, None])


BIN = bytes.fromhex("c40481a17801")
PAYLOAD = bytes.fromhex("81a17801")
CREATED = bytes.fromhex("cf0000018bcfe56800")
CREATED_AT_MS = 1_700_000_000_000
# Refused by the peer's Python worker, read by us: a Rust program with a typed payload writes it.
INLINED = {
    "payload inline map": {"x": 1},
    "payload int": 5,
    "payload nil": None,
    "payload str": "hello",
}


@pytest.mark.parametrize("record", golden("envelope_decode_tolerance"))
def test_captured_bytes_are_taken_or_refused_as_the_peer_does(record: dict[str, Any]) -> None:
    data, delivered = bytes.fromhex(record["d_hex"]), record["delivered"]
    if record["case"] in INLINED:
        assert decode_payload(decode_envelope(data).payload) == INLINED[record["case"]]
    elif delivered is None:
        with pytest.raises(DecodeError):
            decode_envelope(data)
    else:
        envelope = decode_envelope(data)
        assert decode_payload(envelope.payload) == delivered["data"]
        assert envelope.id == delivered["id"]
        assert envelope.attempt == delivered["attempt"]
        assert envelope.created_at_ms == delivered["created_at_ms"]


def row(*, job_id: bytes = b"\xa1i", payload: bytes = BIN, rest: bytes = b"\x00") -> bytes:
    return b"\x94" + job_id + payload + CREATED + rest


def with_retry(retry: object) -> bytes:
    return b"\x95" + row()[1:] + encode(retry)


ACCEPTED = {
    "three elements": b"\x93" + row(rest=b"")[1:],
    "five with nil": b"\x95" + row()[1:] + b"\xc0",
    "array16": b"\xdc\x00\x04" + row()[1:],
    "array32": b"\xdd\x00\x00\x00\x04" + row()[1:],
    "id as str8": row(job_id=b"\xd9\x01i"),
    "id as str32": row(job_id=b"\xdb\x00\x00\x00\x01i"),
    "id as bin": row(job_id=b"\xc4\x01i"),
    "payload as bin16": row(payload=b"\xc5\x00\x04" + PAYLOAD),
    "payload as bin32": row(payload=b"\xc6\x00\x00\x00\x04" + PAYLOAD),
    "payload as small ints": row(payload=encode(list(PAYLOAD))),
    "attempt as uint64": row(rest=b"\xcf" + b"\x00" * 8),
    "attempt as int64": row(rest=b"\xd3" + b"\x00" * 8),
    "bytes behind it": row() + b"\xc1garbage",
    "map": encode({"id": "i", "payload": PAYLOAD, "created_at_ms": CREATED_AT_MS}),
    "map with unknown keys": encode(
        {"zzz": [1], "attempt": 0, "created_at_ms": CREATED_AT_MS, "payload": PAYLOAD, "id": "i"}
        | {"retry": None, 7: "seven"}
    ),
}


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED)
def test_other_ways_to_write_an_envelope_are_read(data: bytes) -> None:
    expected = Envelope("i", PAYLOAD, CREATED_AT_MS)
    assert decode_envelope(data) == expected
    envelope, end = decode_envelope_prefix(data)
    assert envelope == expected
    assert end == len(data) - (len(b"\xc1garbage") if data.endswith(b"garbage") else 0)


REFUSED = {
    "nothing": b"",
    "two elements": b"\x92\xa1i" + BIN,
    "six elements": b"\x96" + row()[1:] + b"\xc0\xc0",
    "a number": b"\x05",
    "a text": b"\xa5hello",
    "id as int": row(job_id=b"\x05"),
    "id as nil": row(job_id=b"\xc0"),
    "id as bin that is not UTF-8": row(job_id=b"\xc4\x01\xff"),
    "id as str that is not UTF-8": row(job_id=b"\xa1\xff"),
    "id with a surrogate": row(job_id=b"\xa3\xed\xa0\x80"),
    "payload as ext": row(payload=b"\xd5\x01ab"),
    "payload as ext8": row(payload=b"\xc7\x01\x01a"),
    "payload as timestamp": row(payload=b"\xd6\xff\x00\x00\x00\x00"),
    "attempt as float": row(rest=b"\xcb" + b"\x00" * 8),
    "attempt negative": row(rest=b"\xff"),
    "attempt of 2**32": row(rest=b"\xcf\x00\x00\x00\x01\x00\x00\x00\x00"),
    "attempt nil": row(rest=b"\xc0"),
    "attempt true": row(rest=b"\xc3"),
    "created negative": encode(["i", PAYLOAD, -1, 0]),
    "created as whole float": encode(["i", PAYLOAD, 1.0, 0]),
    "retry of one": with_retry([3]),
    "retry of three": with_retry([3, None, None]),
    "retry as text": with_retry("x"),
    "max_attempts negative": with_retry([-1, None]),
    "max_attempts of 2**32": with_retry([2**32, None]),
    "backoff of two": with_retry([3, ["fixed", 100]]),
    "backoff of six": with_retry([3, ["fixed", 100, None, None, None, None]]),
    "backoff delay as float": with_retry([3, ["fixed", 100.0, None, None, None]]),
    "backoff kind as int": with_retry([3, [1, 100, None, None, None]]),
    "backoff multiplier as text": with_retry([3, ["fixed", 100, None, "2", None]]),
    "map without id": encode({"payload": PAYLOAD, "created_at_ms": 1}),
    "map without payload": encode({"id": "i", "created_at_ms": 1}),
    "map with a field twice": b"\x84\xa2id\xa1i\xa2id\xa1i"
    + encode("payload") + BIN + encode("created_at_ms") + b"\x01",
    "backoff map without delay": with_retry({"backoff": {"kind": "fixed"}}),
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_bytes_that_the_peer_refuses_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_envelope(data)
    with pytest.raises(DecodeError):
        decode_envelope_prefix(data)


def test_a_retry_override_may_be_a_map() -> None:
    backoff = {"kind": "fixed", "delay_ms": 100, "jitter_ms": 5, "unknown": 1}
    envelope = decode_envelope(with_retry({"max_attempts": 3, "backoff": backoff}))
    assert envelope.retry == RetryOverride(3, WireBackoff("fixed", 100, None, None, 5))
    assert decode_envelope(with_retry({})).retry == RetryOverride(None, None)
    assert decode_envelope(with_retry([3, backoff])).retry == envelope.retry


def test_a_whole_multiplier_becomes_a_float() -> None:
    for retry in ([3, ["fixed", 1, None, 3, None]], {"backoff": ["fixed", 1, None, 3, None]}):
        data = encode_envelope(decode_envelope(with_retry(retry)))
        assert data.endswith(encode(["fixed", 1, None, 3.0, None]))


@pytest.mark.parametrize("kind", ["linear", "Fixed", "", "発"])
def test_an_unknown_backoff_kind_is_kept_for_writing(kind: str) -> None:
    data = with_retry([3, [kind, 100, None, None, None]])
    envelope = decode_envelope(data)
    assert envelope.retry is not None
    assert envelope.retry.backoff is not None
    assert envelope.retry.backoff.effective_kind is BackoffKind.EXPONENTIAL
    assert encode_envelope(envelope) == data


def test_an_empty_id_is_read() -> None:
    assert decode_envelope(row(job_id=b"\xa0")).id == ""


@pytest.mark.parametrize(
    "value",
    [{"x": 1}, {}, "hello", "", 5, -7, None, 1.5, True, False, [], ["a"], [[1]], [300, 1], [-1, 2]],
)
def test_an_inlined_payload_is_the_bytes_of_its_element(value: object) -> None:
    slot: bytes = msgpack.packb(value)
    assert payload_of_slot(slot) == slot
    envelope = decode_envelope(row(payload=slot))
    assert envelope.payload == slot
    assert decode_payload(envelope.payload) == value


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [5],  # one element: a list, even though 05 alone is MessagePack
        [0x92, 0x01],  # an array of two that ends after one
        [0x01, 0x02],  # two values, not one
        [0xC1, 0x00],  # the reserved byte
        [0x91, 0x01, 0x01],
        [0xC4, 0x01, 0x100],
    ],
)
def test_small_ints_that_spell_no_value_are_a_list(numbers: list[int]) -> None:
    slot: bytes = msgpack.packb(numbers)
    assert payload_of_slot(slot) == slot


@pytest.mark.parametrize("value", [{"x": 1}, [1, 2, 3], "hello", b"\x00" * 300, 70_000])
def test_small_ints_that_spell_one_value_are_its_bytes(value: object) -> None:
    data: bytes = msgpack.packb(value)
    assert payload_of_slot(msgpack.packb(list(data))) == data


def test_an_inlined_payload_may_nest_as_deep_as_any_other() -> None:
    assert decode_envelope(row(payload=b"\x91" * 64 + b"\x01")).payload == b"\x91" * 64 + b"\x01"
    with pytest.raises(DecodeError, match="more than 64 levels deep"):
        decode_envelope(row(payload=b"\x91" * 65 + b"\x01"))


def test_an_error_never_quotes_the_envelope() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_envelope(row(job_id=b"\xc4\x07secret\xff"))
    assert "secret" not in str(caught.value)
    assert "ff" not in str(caught.value)
