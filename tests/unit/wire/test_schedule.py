"""Our settings beside a spec."""

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import RetryOverride, WireBackoff
from tampu.wire.schedule import (
    NO_SCHEDULE_EXTRAS,
    CronPattern,
    EveryPattern,
    FireAll,
    MissedPolicy,
    MissedRule,
    OverlapRule,
    Pattern,
    ScheduleExtras,
    ScheduleSpec,
    WireWindow,
    decode_count,
    decode_schedule_extras,
    digest_of_spec,
    encode_schedule_extras,
    encode_spec,
    slot_of_payload,
    spec_key,
)
from tampu.wire.schedule_reader import decode_spec
from tests.effort import cases
from tests.golden.chasquimq import golden
from tests.unit.wire.shapes import texts, uint32, uint64

PLAIN = ScheduleSpec(
    key="k", job_name="j", pattern=EveryPattern(60_000), slot=bytes.fromhex("c40481a17801")
)


def pattern_of(stated: dict[str, Any]) -> Pattern:
    if "Cron" in stated:
        return CronPattern(*stated["Cron"])
    return EveryPattern(*stated["Every"])


def missed_of(stated: Any) -> MissedPolicy:  # noqa: ANN401 - as the golden file states it
    if stated is None:
        return MissedRule.SKIP
    return FireAll(*stated["FireAll"]) if isinstance(stated, dict) else MissedRule(stated)


@pytest.mark.parametrize("record", golden("specs"))
def test_a_captured_spec_is_read_and_written_byte_for_byte(record: dict[str, Any]) -> None:
    captured = bytes.fromhex(record["spec_hex"])
    stated = ScheduleSpec(
        key=record["key"],
        job_name=record["job_name"],
        pattern=pattern_of(record["pattern"]),
        slot=bytes.fromhex(record["slot_hex"]),
        limit=record["limit"],
        start_after_ms=record["start_after_ms"],
        end_before_ms=record["end_before_ms"],
        fired=record["fired"],
        missed=missed_of(record["missed_fires"]),
    )
    assert decode_spec(captured) == stated
    assert encode_spec(stated) == captured
    assert slot_of_payload(stated.payload()) == stated.slot


@pytest.mark.parametrize("record", golden("specs"))
def test_a_captured_key_is_the_derived_or_the_explicit_one(record: dict[str, Any]) -> None:
    explicit = record["key"] if record["case"] == "repeat_native_explicit_key" else ""
    derived = spec_key(record["job_name"], pattern_of(record["pattern"]), explicit=explicit)
    assert derived == record["key"]


def test_captured_members_of_the_repeat_set_are_the_keys_of_its_specs() -> None:
    keys = {parameter.values[0]["key"] for parameter in golden("specs")}
    members = {bytes.fromhex(p.values[0]["member_hex"]).decode() for p in golden("repeat_keys")}
    assert members == keys


@pytest.mark.parametrize(
    ("name", "pattern", "key"),
    [
        ("tick", CronPattern("0 2 * * *", None), "tick::cron:0 2 * * *:UTC"),
        ("tick", CronPattern("0 2 * * *", "UTC"), "tick::cron:0 2 * * *:UTC"),
        ("tick", CronPattern("0 2 * * *", ""), "tick::cron:0 2 * * *:UTC"),
        (
            "tick",
            CronPattern(" 0  2 * * *", "Europe/Berlin"),
            "tick::cron: 0  2 * * *:Europe/Berlin",
        ),
        ("", EveryPattern(60_000), "::every:60000"),
    ],
)
def test_a_key_is_made_of_name_and_rule_text_for_text(
    name: str, pattern: Pattern, key: str
) -> None:
    assert spec_key(name, pattern) == key
    assert spec_key(name, pattern, explicit="mine") == "mine"


@pytest.mark.parametrize("record", golden("stored_spec_decode_tolerance"))
def test_captured_bytes_are_taken_or_refused_as_the_peer_does(record: dict[str, Any]) -> None:
    data, listed = bytes.fromhex(record["spec_hex"]), record["listed"]
    if record["case"] == "10 fields (future retry)":
        # A scheduler of 1.3 deletes it; we read it and keep what a later peer meant.
        assert decode_spec(data) == structs.replace(PLAIN, retry=RetryOverride(3, None))
    elif listed is None:
        with pytest.raises(DecodeError):
            decode_spec(data)
    else:
        spec = decode_spec(data)
        assert (spec.key, spec.job_name) == (listed["key"], listed["job_name"])
        assert spec.pattern == EveryPattern(listed["interval_ms"])
        assert (spec.limit, spec.start_after_ms, spec.end_before_ms) == (None, None, None)
        assert listed_missed(spec.missed) == listed["missed_fires"]


def listed_missed(missed: MissedPolicy) -> dict[str, Any] | None:
    match missed:
        case MissedRule.SKIP:
            return None
        case MissedRule.FIRE_ONCE:
            return {"kind": "fire-once", "max_catchup": None}
        case FireAll(max_catchup):
            return {"kind": "fire-all", "max_catchup": max_catchup}


def raw_spec(*, head: bytes = b"\x98", pattern: bytes, rest: bytes = b"") -> bytes:
    slot = bytes.fromhex("c406c40481a17801")
    return head + b"\xa1k\xa1j" + pattern + slot + b"\xc0\xc0\xc0\x00" + rest


EVERY = bytes.fromhex("81a5457665727991cdea60")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("8101" "91cdea60", EveryPattern(60_000)),
        ("81c404" "43726f6e" "92a3" "2a202a" "c0", CronPattern("* *", None)),
        ("8100" "92a3" "2a202a" "a3555443", CronPattern("* *", "UTC")),
        ("81a443726f6e" "81aa" "65787072657373696f6e" "a12a", CronPattern("*", None)),
    ],
)  # fmt: skip
def test_a_pattern_may_name_or_number_its_variant_and_its_fields(
    pattern: str, expected: Pattern
) -> None:
    assert decode_spec(raw_spec(pattern=bytes.fromhex(pattern))).pattern == expected


@pytest.mark.parametrize(
    "pattern",
    [
        b"\xc0",
        b"\xa5Every",
        b"\x80",
        b"\x81\x02\x91\x01",
        b"\x81\xa3Foo\x91\x01",
        b"\x81\xa5Every\x05",
        b"\x81\xa5Every\x90",
        b"\x81\xa5Every\x92\x01\x02",
        b"\x81\xa5Every\x91\xff",
        b"\x81\xa5Every\x91\x00",  # it would fire without end
        b"\x81\xa4Cron\x91\xa1*",  # a short array
        b"\x81\xa4Cron\x92\x01\xc0",
        b"\x82\xa5Every\x91\x01\xa4Cron\x91\x01",
    ],
)
def test_a_pattern_that_is_none_is_refused(pattern: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_spec(raw_spec(pattern=pattern))


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (b"\xa4Skip", MissedRule.SKIP),
        (b"\x00", MissedRule.SKIP),
        (b"\x81\xa4Skip\xc0", MissedRule.SKIP),
        (b"\xa8FireOnce", MissedRule.FIRE_ONCE),
        (b"\x81\x01\xc0", MissedRule.FIRE_ONCE),
        (b"\x81\x02\x91\x07", FireAll(7)),
        (b"\x81\xa7FireAll\x91\xce\xff\xff\xff\xff", FireAll(2**32 - 1)),
    ],
)
def test_a_missed_policy_may_be_written_in_several_ways(
    missed: bytes, expected: MissedPolicy
) -> None:
    data = raw_spec(head=b"\x99", pattern=EVERY, rest=missed)
    assert decode_spec(data).missed == expected


@pytest.mark.parametrize(
    "missed",
    [
        b"\xc0",
        b"\xa3Foo",
        b"\x03",
        b"\xa7FireAll",
        b"\x81\xa7FireAll\x05",
        b"\x81\xa7FireAll\xc0",
        b"\x81\xa7FireAll\x91\xcf\x00\x00\x00\x01\x00\x00\x00\x00",
        b"\x81\xa8FireOnce\x90",
        b"\x92\x01\x02",
    ],
)
def test_a_missed_policy_that_is_none_is_refused(missed: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_spec(raw_spec(head=b"\x99", pattern=EVERY, rest=missed))


def test_a_spec_of_seven_elements_has_not_fired() -> None:
    data = b"\x97" + raw_spec(pattern=EVERY)[1:-1]
    assert decode_spec(data) == PLAIN


def test_a_payload_as_text_is_refused() -> None:
    data = raw_spec(pattern=EVERY).replace(b"\xc4\x06\xc4\x04\x81\xa1x\x01", b"\xa5hello")
    with pytest.raises(DecodeError, match="payload"):
        decode_spec(data)


def test_a_skip_spec_has_eight_elements_and_any_other_nine() -> None:
    assert encode_spec(PLAIN)[0] == 0x98
    for missed in (MissedRule.FIRE_ONCE, FireAll(5)):
        assert encode_spec(structs.replace(PLAIN, missed=missed))[0] == 0x99


def test_a_retry_override_is_never_written() -> None:
    later = structs.replace(PLAIN, retry=RetryOverride(3, None))
    assert encode_spec(later) == encode_spec(PLAIN)


def test_a_payload_is_wrapped_twice_and_a_bare_one_is_read_as_it_is() -> None:
    assert PLAIN.payload() == bytes.fromhex("81a17801")
    assert slot_of_payload(PLAIN.payload()) == PLAIN.slot
    assert structs.replace(PLAIN, slot=b"\x81\xa1x\x01").payload() == b"\x81\xa1x\x01"
    with pytest.raises(DecodeError, match="payload"):
        structs.replace(PLAIN, slot=b"\xd4\x01a").payload()
    for broken in (b"", b"\xc4\x09ab", b"\xc4\x01a!", b"\x92\x01"):
        with pytest.raises(DecodeError, match="payload"):
            structs.replace(PLAIN, slot=broken).payload()


@pytest.mark.parametrize("spec", [{"key": "\ud800"}, {"limit": 2**64}])
def test_a_spec_that_cannot_be_encoded_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(EncodeError, match="schedule spec"):
        encode_spec(structs.replace(PLAIN, **spec))


specs = st.builds(
    ScheduleSpec,
    key=texts,
    job_name=texts,
    pattern=st.builds(CronPattern, texts, st.none() | texts)
    | st.builds(EveryPattern, st.integers(1, 2**64 - 1)),
    slot=st.binary(max_size=40),
    limit=st.none() | uint64,
    start_after_ms=st.none() | uint64,
    end_before_ms=st.none() | uint64,
    fired=uint64,
    missed=st.sampled_from(MissedRule) | st.builds(FireAll, uint32),
)


@settings(max_examples=cases(150), deadline=None)
@given(specs)
def test_a_spec_comes_back(spec: ScheduleSpec) -> None:
    assert decode_spec(encode_spec(spec)) == spec


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


def test_settings_survive_a_round_trip() -> None:
    assert decode_schedule_extras(encode_schedule_extras(FULL), SPEC) == FULL


def test_settings_are_a_map_without_defaults() -> None:
    data = encode_schedule_extras(ScheduleExtras(of=b"12345678", overlap=OverlapRule.SKIP))
    assert msgpack.unpackb(data) == {"of": b"12345678", "overlap": "skip"}


def test_settings_of_another_spec_are_ignored() -> None:
    assert decode_schedule_extras(encode_schedule_extras(FULL), b"another") == NO_SCHEDULE_EXTRAS


def test_a_peers_spec_has_no_settings() -> None:
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
def test_malformed_settings_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="schedule settings"):
        decode_schedule_extras(data, SPEC)


def test_a_number_above_64_bits_is_refused() -> None:
    with pytest.raises(EncodeError):
        encode_schedule_extras(ScheduleExtras(jitter_ms=2**64))


def test_counters_are_numbers_or_nothing() -> None:
    assert [decode_count(text) for text in (None, b"17", b"x", b"")] == [0, 17, 0, 0]
