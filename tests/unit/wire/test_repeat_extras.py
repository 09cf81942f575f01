"""Our settings beside a spec."""

import msgpack
import pytest

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import RetryOverride, WireBackoff
from tampu.wire.schedule import (
    NO_SCHEDULE_EXTRAS,
    OverlapRule,
    ScheduleExtras,
    WireWindow,
    decode_count,
    decode_schedule_extras,
    digest_of_spec,
    encode_schedule_extras,
)

SPEC = b"spec"
FULL = ScheduleExtras(
    of=digest_of_spec(SPEC),
    anchor_ms=1_794_725_043_642,
    window=WireWindow("Europe/Berlin", ("mon", "fri"), (("09:00", "17:00"),)),
    overlap=OverlapRule.QUEUE_ONE,
    jitter_ms=500,
    retry=RetryOverride(3, WireBackoff("fixed", 100, 100, 1.0, 0)),
    timeout_ms=1000,
    grace_ms=5,
    catch_up_ms=6,
)


def test_what_is_written_is_read() -> None:
    assert decode_schedule_extras(encode_schedule_extras(FULL), SPEC) == FULL


def test_the_bytes_are_a_map_of_what_was_set() -> None:
    data = encode_schedule_extras(ScheduleExtras(of=b"12345678", overlap=OverlapRule.SKIP))
    assert msgpack.unpackb(data) == {"of": b"12345678", "overlap": "skip"}


def test_what_belongs_to_another_spec_does_not_count() -> None:
    assert decode_schedule_extras(encode_schedule_extras(FULL), b"another") == NO_SCHEDULE_EXTRAS


def test_a_spec_of_a_peer_has_none() -> None:
    assert decode_schedule_extras(None, SPEC) == NO_SCHEDULE_EXTRAS


def test_settings_of_a_later_version_are_passed_over() -> None:
    data = msgpack.packb({"of": digest_of_spec(SPEC), "jitter_ms": 7, "later": [1]})
    assert decode_schedule_extras(data, SPEC).jitter_ms == 7


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb([1]),
        msgpack.packb({"of": digest_of_spec(SPEC), "overlap": "no"}),
        msgpack.packb({"of": digest_of_spec(SPEC), "jitter_ms": -1}),
        msgpack.packb({"of": digest_of_spec(SPEC), "window": "always"}),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="settings of a repeat"):
        decode_schedule_extras(data, SPEC)


def test_a_number_beyond_the_wire_cannot_be_written() -> None:
    with pytest.raises(EncodeError):
        encode_schedule_extras(ScheduleExtras(jitter_ms=2**64))


def test_counters_are_numbers_or_nothing() -> None:
    assert [decode_count(text) for text in (None, b"17", b"x", b"")] == [0, 17, 0, 0]
