from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError, EncodeError
from tampu.wire.entry import (
    DelayedMember,
    Entry,
    deadline_of,
    decode_entry,
    decode_member,
    encode_member,
    id_of_member,
    postpone,
)
from tampu.wire.envelope import Envelope, decode_envelope, encode_envelope, encode_fresh
from tampu.wire.extras import Extras, decode_extras
from tests.effort import cases
from tests.golden.chasquimq import envelope_of, fields_of, golden
from tests.unit.wire.shapes import HOSTILE, envelopes, mutated, texts


@pytest.mark.parametrize(
    "record", golden("stream_entries") + golden("commands", command="XADD stream")
)
def test_a_captured_entry_is_read_field_by_field(record: dict[str, Any]) -> None:
    captured = fields_of(record)
    entry = decode_entry(captured)
    assert entry.envelope is not None
    assert entry.extras is None
    assert [b"d", entry.envelope, b"n", entry.raw_name][: len(captured)] == captured


def test_fields_are_found_in_any_order_and_among_others() -> None:
    pairs = [(b"d", b"E"), (b"n", b"job"), (b"x", b"\x80"), (b"zz", b"?")]
    for order in permutations(pairs):
        flat = [part for pair in order for part in pair]
        assert decode_entry(flat) == Entry(b"E", b"job", b"\x80")


def test_the_first_value_of_a_repeated_field_wins() -> None:
    assert decode_entry([b"d", b"1", b"d", b"2"]).envelope == b"1"


def test_the_mark_of_an_expired_job_is_read() -> None:
    fields = [b"d", b"envelope", b"n", b"name", b"x", b"extras"]
    assert decode_entry(fields) == Entry(b"envelope", b"name", b"extras")
    assert decode_entry([*fields, b"e", b"1"]) == Entry(
        b"envelope", b"name", b"extras", is_expired=True
    )


def test_an_absent_name_is_empty() -> None:
    assert decode_entry([b"d", b"E"]).name == ""
    assert decode_entry([b"d", b"E", b"n", b""]).name == ""


def test_a_name_that_is_not_utf8_counts_as_empty_and_is_kept() -> None:
    entry = decode_entry([b"d", b"E", b"n", b"\xff"])
    assert (entry.name, entry.raw_name) == ("", b"\xff")


def test_an_entry_without_an_envelope_says_so() -> None:
    assert decode_entry([b"n", b"job"]).envelope is None
    assert decode_entry([]).envelope is None


@settings(max_examples=cases(200), deadline=None)
@given(
    st.lists(st.sampled_from([b"d", b"n", b"x", b"", b"\xff"]) | st.binary(max_size=5), max_size=7)
)
def test_any_fields_are_an_entry_or_refused(flat: list[bytes]) -> None:
    try:
        _ = decode_entry(flat).name
    except DecodeError:
        assert len(flat) % 2


ENVELOPE = encode_fresh("d1", b"\x81\xa1x\x01", 1_794_725_044_748)


@pytest.mark.parametrize("record", golden("delayed_members"))
def test_a_captured_member_is_read_and_written_byte_for_byte(record: dict[str, Any]) -> None:
    assert_same(bytes.fromhex(record["member_hex"]), record)


@pytest.mark.parametrize("record", golden("indexes"))
def test_a_captured_index_holds_the_same_member(record: dict[str, Any]) -> None:
    assert_same(bytes.fromhex(record["value_hex"]), record)


def assert_same(captured: bytes, record: dict[str, Any]) -> None:
    stated = envelope_of(record["envelope"])
    member = decode_member(captured)
    assert (member.name, member.extras) == (record["name"], None)
    assert decode_envelope(member.envelope) == stated
    assert encode_member(record["name"], encode_envelope(stated)) == captured


@pytest.mark.parametrize("command", ["ZADD delayed", "add delayed with id"])
def test_members_sent_by_the_peer_come_back_byte_for_byte(command: str) -> None:
    for parameter in golden("commands", command=command):
        captured = bytes.fromhex(parameter.values[0]["member_hex"])
        member = decode_member(captured)
        again = encode_envelope(decode_envelope(member.envelope))
        assert encode_member(member.name, again) == captured


@settings(max_examples=cases(200), deadline=None)
@given(texts, envelopes, st.none() | texts)
def test_a_member_comes_back(name: str, envelope: Envelope, tenant: str | None) -> None:
    data = encode_envelope(envelope)
    extras = Extras(tenant=tenant)
    member = decode_member(encode_member(name, data, extras))
    assert (member.name, member.envelope) == (name, data)
    assert decode_extras(member.extras) == extras


def test_an_empty_and_a_unicode_name() -> None:
    assert encode_member("", ENVELOPE) == b"\x00\x00\x00\x00" + ENVELOPE
    assert decode_member(encode_member("発送-email", ENVELOPE)) == DelayedMember(
        "発送-email", ENVELOPE
    )


def test_the_name_does_not_change_the_envelope() -> None:
    assert encode_member("a", ENVELOPE)[5:] == encode_member("bcd", ENVELOPE)[7:] == ENVELOPE


def test_a_name_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(EncodeError, match="job name"):
        encode_member("\ud800", ENVELOPE)


POISON = {
    "nothing": b"",
    "two bytes": b"\x01\x02",
    "three bytes": b"\x00\x00\x00",
    "only a length": b"\x00\x00\x00\x00",
    "length beyond the end": bytes.fromhex("ff000000616263"),
    "length of 4 GB": b"\xff\xff\xff\xffabc",
    "nothing behind the name": b"\x03\x00\x00\x00abc",
    "name that is not UTF-8": b"\x01\x00\x00\x00\xff" + ENVELOPE,
}


@pytest.mark.parametrize("data", POISON.values(), ids=POISON)
def test_a_poison_member_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="delayed member"):
        decode_member(data)


@settings(max_examples=cases(500), deadline=None)
@given(
    st.binary(max_size=60)
    | mutated([encode_member("job", ENVELOPE), encode_member("job", ENVELOPE, Extras(tenant="a"))])
)
def test_any_bytes_are_a_member_or_refused(data: bytes) -> None:
    try:
        member = decode_member(data)
        decode_envelope(member.envelope)
    except DecodeError:
        return


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused_at_the_latest_as_an_envelope(data: bytes) -> None:
    member = decode_member(b"\x00\x00\x00\x00" + data)
    with pytest.raises(DecodeError):
        decode_envelope(member.envelope)


class TestLookingInside:
    def test_the_id_of_a_job_is_the_one_in_its_envelope(self) -> None:
        envelope = encode_envelope(Envelope("ä-1", b"\x01", 1_794_725_043_642, 0, None))
        assert id_of_member(encode_member("name", envelope)) == "ä-1"
        assert id_of_member(encode_member("name", envelope, Extras(tenant="t"))) == "ä-1"

    @pytest.mark.parametrize(
        "data", [b"", b"xy", b"\x03\0\0\0abc", b"\0\0\0\0\x94", b"\0\0\0\0\xc1"]
    )
    def test_a_malformed_member_has_no_id_and_no_deadline(self, data: bytes) -> None:
        assert id_of_member(data) is None
        assert deadline_of(data) is None

    @pytest.mark.parametrize(("by_ms", "deadline_ms"), [(500, 1500), (-400, 600), (-5000, 0)])
    def test_a_deadline_moves_and_all_else_stays(self, by_ms: int, deadline_ms: int) -> None:
        envelope = encode_envelope(Envelope("a", b"\x01", 1_794_725_043_642, 2, None))
        extras = Extras(deadline_ms=1000, tenant="t", headers={"h": "v"})
        data = encode_member("name", envelope, extras)
        assert deadline_of(data) == 1000
        moved = postpone(data, by_ms)
        assert moved == encode_member(
            "name", envelope, Extras(deadline_ms=deadline_ms, tenant="t", headers={"h": "v"})
        )

    def test_a_member_without_a_deadline_stays_as_it_is_to_the_byte(self) -> None:
        envelope = encode_envelope(Envelope("a", b"\x01", 1_794_725_043_642, 0, None))
        for data in (
            encode_member("n", envelope),
            encode_member("n", envelope, Extras(tenant="t")),
        ):
            assert deadline_of(data) is None
            assert postpone(data, 1000) == data
