from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError
from tampu.wire.holders import HolderKind, LockHolder, new_holder, parse_holder
from tests.golden.chasquimq import golden

UNIQUE = UUID("2deed097-5ca8-4d41-813a-cde5707b2f3c")


@pytest.mark.parametrize("record", golden("locks"))
def test_a_captured_holder_is_read_and_written_byte_for_byte(record: dict[str, Any]) -> None:
    captured = bytes.fromhex(record["value_hex"])
    holder = parse_holder(captured)
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
    assert parse_holder(holder.to_bytes()).kind is kind


def test_a_new_holder_may_have_a_name_to_know_it_by() -> None:
    holder = new_holder(HolderKind.SCHEDULER, UNIQUE, name="host-7")
    assert holder.text == f"s-host-7-{UNIQUE}"
    assert holder.kind is HolderKind.SCHEDULER


@pytest.mark.parametrize("text", ["", "c", "worker-1", "host:17", "x-1"])
def test_a_name_of_the_users_own_has_no_kind(text: str) -> None:
    assert parse_holder(text.encode()) == LockHolder(text)
    assert LockHolder(text).kind is None


def test_a_holder_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError, match="lock holder"):
        parse_holder(b"c-\xff")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=20))
def test_any_bytes_are_a_holder_or_refused(data: bytes) -> None:
    try:
        assert parse_holder(data).to_bytes() == data
    except DecodeError:
        return
