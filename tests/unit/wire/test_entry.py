from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError, EncodeError
from tampu.wire.entry import Entry, decode_entry, encode_entry
from tests.golden.chasquimq import fields_of, golden


@pytest.mark.parametrize(
    "record", golden("stream_entries") + golden("commands", command="XADD stream")
)
def test_a_captured_entry_is_read_and_written_field_by_field(record: dict[str, Any]) -> None:
    captured = fields_of(record)
    entry = decode_entry(captured)
    assert entry.envelope is not None
    assert entry.extras is None
    assert encode_entry(entry.envelope, entry.name) == captured


def test_fields_are_found_in_any_order_and_among_others() -> None:
    pairs = [(b"d", b"E"), (b"n", b"job"), (b"x", b"\x80"), (b"zz", b"?")]
    for order in permutations(pairs):
        flat = [part for pair in order for part in pair]
        assert decode_entry(flat) == Entry(b"E", b"job", b"\x80")


def test_of_a_field_that_comes_twice_the_first_counts() -> None:
    assert decode_entry([b"d", b"1", b"d", b"2"]).envelope == b"1"


def test_an_empty_name_is_not_written_and_an_absent_one_is_empty() -> None:
    assert encode_entry(b"E") == [b"d", b"E"]
    assert decode_entry([b"d", b"E"]).name == ""
    assert decode_entry([b"d", b"E", b"n", b""]).name == ""


def test_a_name_that_is_not_utf8_counts_as_empty_and_is_kept() -> None:
    entry = decode_entry([b"d", b"E", b"n", b"\xff"])
    assert (entry.name, entry.raw_name) == ("", b"\xff")


def test_a_name_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(EncodeError, match="job name"):
        encode_entry(b"E", "\ud800")


def test_extras_come_last() -> None:
    assert encode_entry(b"E", "job", b"\x80") == [b"d", b"E", b"n", b"job", b"x", b"\x80"]


def test_an_entry_without_an_envelope_says_so() -> None:
    assert decode_entry([b"n", b"job"]).envelope is None
    assert decode_entry([]).envelope is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([b"d", b"n", b"x", b"", b"\xff"]) | st.binary(max_size=5), max_size=7)
)
def test_any_fields_are_an_entry_or_refused(flat: list[bytes]) -> None:
    try:
        _ = decode_entry(flat).name
    except DecodeError:
        assert len(flat) % 2
