from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.msgpack import decode, encode

from tampu.errors import DecodeError
from tampu.wire.holders import (
    CONSUMER_PREFIX,
    HolderKind,
    LockHolder,
    WorkerHeartbeat,
    decode_heartbeat,
    encode_heartbeat,
    new_holder,
)
from tests.effort import cases
from tests.golden.chasquimq import golden
from tests.unit.wire.shapes import texts, uint64

UNIQUE = UUID("2deed097-5ca8-4d41-813a-cde5707b2f3c")


@pytest.mark.parametrize("record", golden("locks"))
def test_a_captured_holder_is_read_and_written_byte_for_byte(record: dict[str, Any]) -> None:
    captured = bytes.fromhex(record["value_hex"])
    holder = LockHolder(captured.decode())
    assert holder == LockHolder(record["text"])
    assert holder.kind is {"c": HolderKind.CONSUMER, "s": HolderKind.SCHEDULER}[record["text"][0]]
    assert holder.to_bytes() == captured


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (HolderKind.CONSUMER, f"c-{UNIQUE}"),
        (HolderKind.PROMOTER, f"p-{UNIQUE}"),
        (HolderKind.SCHEDULER, f"s-{UNIQUE}"),
    ],
)
def test_a_new_holder_is_its_kind_and_a_uuid(kind: HolderKind, text: str) -> None:
    holder = new_holder(kind, UNIQUE)
    assert holder.text == text
    assert holder.kind is kind


def test_a_new_holder_may_have_a_name_to_know_it_by() -> None:
    holder = new_holder(HolderKind.SCHEDULER, UNIQUE, name="host-7")
    assert holder.text == f"s-host-7-{UNIQUE}"
    assert holder.kind is HolderKind.SCHEDULER


@pytest.mark.parametrize("text", ["", "c", "worker-1", "host:17", "x-1"])
def test_a_name_of_the_users_own_has_no_kind(text: str) -> None:
    assert LockHolder(text).kind is None


marks = st.builds(
    WorkerHeartbeat,
    client_id=uint64,
    host=texts,
    pid=uint64,
    started_at_ms=uint64,
    concurrency=uint64,
    lease_ms=uint64,
)


@settings(max_examples=cases(100), deadline=None)
@given(marks)
def test_a_heartbeat_comes_back(mark: WorkerHeartbeat) -> None:
    assert decode_heartbeat(encode_heartbeat(mark)) == mark


@settings(max_examples=20, deadline=None)
@given(marks)
def test_a_heartbeat_is_a_list_that_a_later_version_may_extend(mark: WorkerHeartbeat) -> None:
    values = list(structs.astuple(mark))
    assert decode(encode_heartbeat(mark)) == values
    assert decode_heartbeat(encode([*values, "more"])) == mark


@pytest.mark.parametrize("data", [b"", b"\xc1", b"1", encode([7, "h", 42]), encode(["7"] * 8)])
def test_bytes_that_are_not_a_heartbeat_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="heartbeat"):
        decode_heartbeat(data)


@settings(max_examples=cases(200), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_heartbeat_or_refused(data: bytes) -> None:
    with suppress(DecodeError):
        assert isinstance(decode_heartbeat(data), WorkerHeartbeat)


def test_our_consumer_names_have_a_prefix() -> None:
    assert CONSUMER_PREFIX == b"t-"  # takeover tells our dead workers from silent peers by it
