from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.msgpack import decode, encode

from tampu.errors import DecodeError
from tampu.wire.holders import CONSUMER_PREFIX, WorkerHeartbeat, decode_heartbeat, encode_heartbeat
from tests.unit.wire.shapes import texts, uint64

marks = st.builds(
    WorkerHeartbeat,
    client_id=uint64,
    host=texts,
    pid=uint64,
    started_at_ms=uint64,
    concurrency=uint64,
    lease_ms=uint64,
)


@settings(max_examples=100, deadline=None)
@given(marks)
def test_a_mark_comes_back(mark: WorkerHeartbeat) -> None:
    assert decode_heartbeat(encode_heartbeat(mark)) == mark


@settings(max_examples=20, deadline=None)
@given(marks)
def test_a_mark_is_a_plain_list_that_a_later_version_may_lengthen(mark: WorkerHeartbeat) -> None:
    values = list(structs.astuple(mark))
    assert decode(encode_heartbeat(mark)) == values
    assert decode_heartbeat(encode([*values, "more"])) == mark


@pytest.mark.parametrize("data", [b"", b"\xc1", b"1", encode([7, "h", 42]), encode(["7"] * 8)])
def test_bytes_that_are_no_mark_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="worker mark"):
        decode_heartbeat(data)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_mark_or_refused(data: bytes) -> None:
    with suppress(DecodeError):
        assert isinstance(decode_heartbeat(data), WorkerHeartbeat)


def test_the_names_of_our_consumers_begin_in_a_way_of_their_own() -> None:
    assert CONSUMER_PREFIX == b"t-"  # takeover tells our dead workers from silent peers by it
