import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError, EncodeError
from tampu.wire.dead import Failure
from tampu.wire.envelope import Envelope, decode_envelope, encode_envelope, encode_fresh
from tampu.wire.extras import (
    MAGIC,
    MAX_EXTRAS_BYTES,
    MAX_FAILURES,
    NO_EXTRAS,
    Extras,
    LastError,
    append_extras,
    decode_extras,
    encode_extras,
    split_extras,
)
from tampu.wire.keys import HeldKey, UniqueUntil
from tests.effort import cases
from tests.unit.wire.shapes import HOSTILE, envelopes, mutated, texts, uint64

ENVELOPE = encode_fresh("i", b"\x81\xa1x\x01", 1_700_000_000_000)
SOME = Extras(timeout_ms=1500, headers={"traceparent": "00-abc"}, tenant="acme")
FOOTED = append_extras(ENVELOPE, SOME)

any_extras = st.builds(
    Extras,
    timeout_ms=st.none() | uint64,
    deadline_ms=st.none() | uint64,
    scheduled_at_ms=st.none() | uint64,
    schedule_key=st.none() | texts,
    tenant=st.none() | texts,
    headers=st.dictionaries(texts, texts, max_size=4),
    unique=st.none() | st.builds(HeldKey, texts, st.sampled_from(UniqueUntil)),
    error=st.none() | st.builds(LastError, texts, texts, texts),
    failed_at_ms=st.lists(uint64, max_size=4).map(tuple),
)


def test_extras_are_a_map_without_defaults() -> None:
    data = encode_extras(SOME)
    assert data is not None
    assert msgpack.unpackb(data) == {
        "timeout_ms": 1500,
        "tenant": "acme",
        "headers": {"traceparent": "00-abc"},
    }


def test_no_extras_write_nothing() -> None:
    assert encode_extras(NO_EXTRAS) is None
    assert encode_extras(Extras(headers={})) is None
    assert append_extras(ENVELOPE, NO_EXTRAS) == ENVELOPE
    assert decode_extras(None) == NO_EXTRAS
    assert decode_extras(b"\x80") == NO_EXTRAS


@settings(max_examples=cases(200), deadline=None)
@given(envelopes, any_extras)
def test_extras_after_any_envelope_can_be_split_off(envelope: Envelope, extras: Extras) -> None:
    data = encode_envelope(envelope)
    envelope_bytes, extras_bytes = split_extras(append_extras(data, extras))
    assert envelope_bytes == data
    assert decode_extras(extras_bytes) == extras


def test_the_footer_is_length_and_magic() -> None:
    extras = encode_extras(SOME)
    assert extras is not None
    assert ENVELOPE + extras + len(extras).to_bytes(4, "little") + MAGIC == FOOTED


def test_a_reader_that_ignores_what_follows_still_finds_the_envelope() -> None:
    assert decode_envelope(FOOTED) == decode_envelope(ENVELOPE)


def test_unknown_extras_are_ignored() -> None:
    data = msgpack.packb({"tenant": "acme", "from_the_future": [1, {"a": 2}]})
    assert decode_extras(data) == Extras(tenant="acme")


@pytest.mark.parametrize(
    "value",
    [
        [],
        None,
        5,
        "x",
        {"timeout_ms": -1},
        {"timeout_ms": "1"},
        {"headers": {"a": 1}},
        {"tenant": 1},
    ],
)
def test_extras_of_the_wrong_type_are_refused(value: object) -> None:
    with pytest.raises(DecodeError, match="extras"):
        decode_extras(msgpack.packb(value))


def test_extras_have_a_size_limit_both_ways() -> None:
    with pytest.raises(EncodeError, match="the limit is 65536"):
        encode_extras(Extras(tenant="x" * MAX_EXTRAS_BYTES))
    with pytest.raises(DecodeError, match="more than 65536"):
        decode_extras(msgpack.packb({"tenant": "x" * MAX_EXTRAS_BYTES}))


@pytest.mark.parametrize("extras", [Extras(tenant="\ud800"), Extras(timeout_ms=2**64)])
def test_extras_that_cannot_be_encoded_are_refused(extras: Extras) -> None:
    with pytest.raises(EncodeError, match="extras"):
        encode_extras(extras)


def test_an_envelope_that_merely_ends_with_the_magic_stays_whole() -> None:
    attempt = int.from_bytes(MAGIC, "big")
    data = encode_envelope(Envelope("i", b"\xc0", 1, attempt))
    assert data.endswith(MAGIC)
    assert split_extras(data) == (data, None)
    assert decode_envelope(data).attempt == attempt


def test_a_payload_that_holds_a_whole_footer_is_not_split() -> None:
    inner = FOOTED[len(ENVELOPE) :]
    data = b"\x93\xa1i\x01" + b"\xc4" + bytes([len(inner)]) + inner  # ends in the middle of bin
    assert data.endswith(MAGIC)
    assert split_extras(data) == (data, None)


@pytest.mark.parametrize(
    "tail",
    [
        MAGIC,
        b"\x00\x00\x00\x00" + MAGIC,
        b"\xff\xff\xff\xff" + MAGIC,
        b"\x80\x02\x00\x00\x00" + MAGIC,  # the map is shorter than it says
        b"\xc0\x01\x00\x00\x00" + MAGIC,  # not a map
        b"\x81\x01\x00\x00\x00" + MAGIC,  # a map that is cut off
        b"\xc1\x80\x01\x00\x00\x00" + MAGIC,  # something between envelope and map
    ],
)
def test_a_footer_that_does_not_fit_is_left_alone(tail: bytes) -> None:
    assert split_extras(ENVELOPE + tail) == (ENVELOPE + tail, None)
    assert split_extras(tail) == (tail, None)


@settings(max_examples=cases(400), deadline=None)
@given(mutated([FOOTED]) | st.binary(max_size=40).map(lambda data: data + MAGIC))
def test_splitting_never_fails_and_never_loses_a_byte(data: bytes) -> None:
    envelope, extras = split_extras(data)
    if extras is None:
        assert envelope == data
    else:
        assert data == envelope + extras + len(extras).to_bytes(4, "little") + MAGIC


@settings(max_examples=cases(400), deadline=None)
@given(st.binary(max_size=80) | mutated([encode_extras(SOME) or b""]))
def test_any_bytes_are_extras_or_refused(data: bytes) -> None:
    try:
        decode_extras(data)
    except DecodeError:
        return


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_extras(data)
    with pytest.raises(DecodeError):
        decode_extras(b"\x81\xa3new" + data[:1000])
    assert split_extras(data + b"\x01\x00\x00\x00" + MAGIC)[1] is None


class TestFailures:
    def test_a_failure_is_written_as_an_array_and_its_time(self) -> None:
        data = encode_extras(SOME.with_failure(Failure("ValueError", "boom", "tb"), 5))
        assert data is not None
        told = msgpack.unpackb(data)
        assert told["error"] == ["ValueError", "boom", "tb"]
        assert told["failed_at_ms"] == [5]
        assert told["tenant"] == "acme"

    def test_the_last_error_replaces_the_one_before_and_times_add_up(self) -> None:
        once = NO_EXTRAS.with_failure(Failure("A", "1", "tb"), 5)
        twice = once.with_failure(Failure("B", "2"), 6)
        assert twice == Extras(error=LastError("B", "2"), failed_at_ms=(5, 6))
        assert twice.without_failures() == NO_EXTRAS

    def test_only_the_latest_times_are_kept(self) -> None:
        extras = NO_EXTRAS
        for at_ms in range(MAX_FAILURES + 10):
            extras = extras.with_failure(Failure("E", ""), at_ms)
        assert extras.failed_at_ms == tuple(range(10, MAX_FAILURES + 10))

    @pytest.mark.parametrize("letter", ["x", "ä", "\U0001f600", "\ud800"])
    def test_a_failure_never_takes_more_than_four_kibibytes(self, letter: str) -> None:
        long = letter * 100_000
        times = tuple([2**63] * MAX_FAILURES)
        extras = Extras(failed_at_ms=times).with_failure(Failure(long, long, long), 2**63)
        data = encode_extras(extras)
        assert data is not None and 3000 < len(data) <= 4096
        assert decode_extras(data) == extras

    def test_of_a_message_the_beginning_is_kept_and_of_a_traceback_the_end(self) -> None:
        long = "".join(f"{n}," for n in range(10_000))
        error = NO_EXTRAS.with_failure(Failure("E", long, long), 5).error
        assert error is not None
        assert error.message.startswith("0,1,2,")
        assert error.traceback.endswith("9998,9999,")

    def test_a_job_whose_extras_are_full_cannot_take_a_failure_too(self) -> None:
        full = Extras(tenant="x" * (MAX_EXTRAS_BYTES - 500))
        assert encode_extras(full) is not None
        with pytest.raises(EncodeError, match="the limit"):
            encode_extras(full.with_failure(Failure("E", "m" * 1000), 5))
