"""Placeholders in arguments, the payloads that contain them, and the values of nodes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.msgpack import Ext, decode, encode

from tampu.errors import DecodeError, EncodeError
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.envelope import RetryOverride, decode_envelope
from tampu.wire.flow import NewMember, StepId
from tampu.wire.payload import OWN_PAYLOAD, decode_payload, is_own_payload
from tampu.wire.placeholders import (
    ITEM,
    PREVIOUS,
    ChainStep,
    Expected,
    FlowValues,
    Inputs,
    ItemTemplate,
    MapDefinition,
    Placeholder,
    StepPayload,
    decode_map,
    decode_shown,
    encode_inputs,
    encode_steps,
    fill_template,
    join_list,
    next_step,
    placeholders_of,
    read_own_payload,
    split_list,
    split_value,
)
from tampu.wire.result import encode_failure

FLOW = "01M7T0SVQ4001YS9ESWYMX2CS5"
VALUE = Placeholder(Expected.VALUE, 3)
SPREAD = Placeholder(Expected.VALUE, 4, is_map=True, spreads=True)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


def template(**arguments: object) -> bytes:
    return encode(
        {
            name: value.to_ext() if isinstance(value, Placeholder) else value
            for name, value in arguments.items()
        }
    )


class TestTemplates:
    def test_placeholders_are_found_wherever_they_are(self) -> None:
        made = template(a=VALUE, b={"c": [1, ITEM.to_ext(), [SPREAD.to_ext()]]}, d=1)
        assert placeholders_of(made) == [VALUE, ITEM, SPREAD]
        assert placeholders_of(template(a=1)) == []

    @given(VALUES, VALUES)
    def test_values_stand_where_the_placeholders_were(self, value: object, other: object) -> None:
        made = template(a=VALUE, b=[other, VALUE.to_ext()], c=other)
        filled = fill_template(made, lambda _: Raw(encode(value)))
        assert decode(filled) == {"a": value, "b": [other, value], "c": other}

    def test_items_of_a_value_stand_in_a_list(self) -> None:
        made = template(a=[0, SPREAD.to_ext(), 3])
        assert decode(fill_template(made, lambda _: Raw(encode([1, 2])))) == {"a": [0, 1, 2, 3]}
        with pytest.raises(DecodeError, match="a list"):
            fill_template(made, lambda _: Raw(encode({"no": "list"})))

    def test_placeholders_without_a_value_stay(self) -> None:
        made = template(a=VALUE, b=[SPREAD.to_ext()], c=ITEM)
        filled = fill_template(made, lambda each: Raw(b"\x07") if each == ITEM else None)
        assert placeholders_of(filled) == [VALUE, SPREAD]
        assert decode(filled)["c"] == 7

    def test_a_value_is_never_looked_at_again(self) -> None:
        hostile = encode([VALUE.to_ext(), SPREAD.to_ext()])
        filled = fill_template(template(a=VALUE, b=ITEM), lambda _: Raw(hostile))
        assert filled.count(hostile) == 2

    @pytest.mark.parametrize("data", [b"", b"x", b"\x93\x09\x01\x02", b"\x80", b"\x91\x63"])
    def test_extensions_of_users_that_are_no_placeholders_stay_what_they_are(
        self, data: bytes
    ) -> None:
        made = template(a=Ext(85, data), b=Ext(84, data), c=Ext(1, data), d=VALUE)
        assert placeholders_of(made) == [VALUE]
        filled = decode(fill_template(made, lambda _: Raw(b"\x07")))
        assert [(filled[name].code, filled[name].data) for name in "abc"] == [
            (85, data),
            (84, data),
            (1, data),
        ]


class TestItems:
    @given(VALUES)
    def test_each_job_gets_its_item(self, item: object) -> None:
        filled = ItemTemplate(template(a=ITEM, b=1)).fill(Raw(encode(item)))
        assert decode(filled) == {"a": item, "b": 1}

    def test_an_argument_may_contain_the_bytes_of_a_placeholder(self) -> None:
        looks_so = encode(ITEM.to_ext())
        filled = ItemTemplate(template(a=ITEM, b=looks_so)).fill(Raw(looks_so))
        assert decode(filled)["b"] == looks_so

    def test_a_job_that_also_waits_for_a_node_gets_its_item_first(self) -> None:
        filled = ItemTemplate(template(a=ITEM, b=VALUE)).fill(Raw(b"\x07"))
        own = read_own_payload(filled)
        assert isinstance(own, Inputs)
        assert placeholders_of(own.template) == [VALUE]

    def test_a_definition_is_read_as_it_was_made(self) -> None:
        job = NewMember(name="n", extras=b"x", retry=RetryOverride(3, None), created_at_ms=5)
        definition = MapDefinition(
            job=job, template=b"\x80", items=b"\x90", source=VALUE, extras=[b"a", b""]
        )
        assert decode_map(definition.encode()) == definition

    @pytest.mark.parametrize("data", [b"", b"\xc0", b"\x80", b"\xff"])
    def test_what_is_no_definition_is_refused(self, data: bytes) -> None:
        with pytest.raises(DecodeError):
            decode_map(data)

    @given(st.lists(VALUES, max_size=5))
    def test_items_are_joined_to_a_list_that_can_be_split(self, items: list[object]) -> None:
        encoded = [encode(each) for each in items]
        joined = join_list(encoded, max_bytes=10_000)
        assert decode(joined) == items
        assert [bytes(each) for each in split_list(joined)] == encoded

    def test_too_many_items_are_refused(self) -> None:
        assert join_list([b"\x01"] * 10, max_bytes=10)
        with pytest.raises(EncodeError, match="they take 11 bytes; the limit is 10"):
            join_list([b"\x01"] * 11, max_bytes=10)

    def test_a_list_is_split_without_being_decoded(self) -> None:
        assert [bytes(each) for each in split_list(encode([1, "a", [2]]))] == [
            b"\x01",
            b"\xa1a",
            b"\x91\x02",
        ]
        for data in (b"\x01", b"\x80", b"\x92\x01", b"", b"\x91\x01\x01"):
            with pytest.raises(DecodeError):
                split_list(data)


class TestOwnPayloads:
    def test_arguments_that_wait_are_read_as_they_were_written(self) -> None:
        payload = encode_inputs(template(a=VALUE))
        assert is_own_payload(payload)
        assert read_own_payload(payload) == Inputs(template(a=VALUE))

    def test_steps_are_read_as_they_were_written(self) -> None:
        steps = [ChainStep("n", Raw(template(a=PREVIOUS)), b"x", RetryOverride(2, None))]
        payload = encode_steps(template(b=1), steps)
        own = read_own_payload(payload)
        assert isinstance(own, StepPayload)
        assert bytes(own.arguments) == template(b=1)
        assert [each.name for each in own.steps] == ["n"]

    def test_arguments_without_steps_are_plain(self) -> None:
        assert encode_steps(template(a=1), []) == template(a=1)

    @given(VALUES)
    def test_values_of_users_are_none_of_ours(self, value: object) -> None:
        assert not is_own_payload(encode(value))
        assert read_own_payload(encode(value)) is None

    @pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 8, 16, 17, 300, 70_000])
    def test_an_extension_of_any_size_is_known_by_its_type(self, size: int) -> None:
        assert is_own_payload(encode(Ext(OWN_PAYLOAD, b"i" * size)))
        assert not is_own_payload(encode(Ext(1, b"i" * size)))

    @pytest.mark.parametrize(
        "payload",
        [
            encode(Ext(OWN_PAYLOAD, b"")),
            encode(Ext(OWN_PAYLOAD, b"z")),
            encode(Ext(OWN_PAYLOAD, b"s")),
            encode(Ext(OWN_PAYLOAD, b"s\x80")),
            encode(Ext(OWN_PAYLOAD, b"i")) + b"\x01",
            bytes((0xC7, 200, OWN_PAYLOAD)),
            bytes((0xD4, OWN_PAYLOAD)),
        ],
    )
    def test_what_looks_like_one_and_is_none_is_refused(self, payload: bytes) -> None:
        with pytest.raises(DecodeError):
            read_own_payload(payload)

    def test_people_see_what_is_known(self) -> None:
        shown = decode_shown(encode_inputs(template(a=VALUE, b=1)))
        assert shown == {"a": "<result of node 3>", "b": 1}
        steps = [ChainStep("n", Raw(template(a=PREVIOUS)))]
        assert decode_shown(encode_steps(template(b=1), steps)) == {"b": 1}
        assert decode_shown(template(c=1)) == {"c": 1}


class TestChains:
    def test_the_next_step_gets_the_result_and_the_steps_that_are_left(self) -> None:
        retry = RetryOverride(2, None)
        steps = [
            ChainStep("second", Raw(template(a=PREVIOUS, b=[PREVIOUS.to_ext()])), b"x", retry),
            ChainStep("third", Raw(template(c=PREVIOUS))),
        ]
        own = read_own_payload(encode_steps(template(), steps))
        assert isinstance(own, StepPayload)
        entry = next_step(StepId(FLOW, 1, 3), own, encode({"x": 1}), created_at_ms=9)
        envelope = decode_envelope(entry.envelope)
        assert (entry.name, entry.extras) == (b"second", b"x")
        assert (envelope.id, envelope.created_at_ms) == (f"{FLOW}~2/3", 9)
        assert envelope.retry == retry
        second = read_own_payload(envelope.payload)
        assert isinstance(second, StepPayload)
        assert decode(second.arguments) == {"a": {"x": 1}, "b": [{"x": 1}]}
        third = next_step(StepId(FLOW, 2, 3), second, b"\x07", created_at_ms=9)
        assert decode_payload(decode_envelope(third.envelope).payload) == {"c": 7}

    def test_a_result_that_looks_like_a_placeholder_stays_what_it_is(self) -> None:
        own = StepPayload(Raw(template()), [ChainStep("n", Raw(template(a=PREVIOUS)))])
        hostile = encode(VALUE.to_ext())
        entry = next_step(StepId(FLOW, 1, 2), own, hostile, created_at_ms=9)
        assert hostile in decode_envelope(entry.envelope).payload


class TestValues:
    @pytest.fixture
    def values(self) -> FlowValues:
        failure = encode_failure(BuryReason.RETRIES_EXHAUSTED, Failure("E", "no"))
        found = FlowValues(FLOW, "home")
        found.note(0, encode(5))
        found.note(1, b"\xc1" + failure)
        found.note_many(2, {10: encode("c"), 2: encode("b"), 0: b"\xc1" + failure})
        found.note_many(4, {})
        return found

    @pytest.mark.parametrize(
        ("placeholder", "value"),
        [
            (Placeholder(Expected.VALUE, 0), 5),
            (Placeholder(Expected.DEFAULT, 0, default=6), 5),
            (Placeholder(Expected.DEFAULT, 1, default=[6]), [6]),
            (Placeholder(Expected.OUTCOME, 0), {"type": "ok", "value": 5}),
            (Placeholder(Expected.VALUE, 2, is_map=True), ["b", "c"]),
            (Placeholder(Expected.DEFAULT, 2, is_map=True, default=1), ["b", "c"]),
            (Placeholder(Expected.VALUE, 4, is_map=True), []),
            (Placeholder(Expected.OUTCOME, 4, is_map=True), []),
            (
                Placeholder(Expected.REFERENCE, 2, is_map=True),
                {"flow": FLOW, "node": 2, "queue": "home"},
            ),
        ],
    )
    def test_each_kind_has_its_value(
        self, values: FlowValues, placeholder: Placeholder, value: object
    ) -> None:
        assert decode(values.value_of(placeholder)) == value

    def test_a_failure_is_an_outcome(self, values: FlowValues) -> None:
        failed = {
            "type": "failed",
            "reason": "retries_exhausted",
            "error_type": "E",
            "message": "no",
        }
        assert decode(values.value_of(Placeholder(Expected.OUTCOME, 1))) == failed
        many: Any = decode(values.value_of(Placeholder(Expected.OUTCOME, 2, is_map=True)))
        assert many == [
            failed,
            {"type": "ok", "value": "b"},
            {"type": "ok", "value": "c"},
        ]

    def test_a_map_that_has_failed_has_its_default(self, values: FlowValues) -> None:
        values.note_failed(2)
        default = Placeholder(Expected.DEFAULT, 2, is_map=True, default="none")
        assert decode(values.value_of(default)) == "none"

    @pytest.mark.parametrize(
        "placeholder",
        [
            Placeholder(Expected.VALUE, 1),
            Placeholder(Expected.VALUE, 9),
            Placeholder(Expected.OUTCOME, 9),
            Placeholder(Expected.DEFAULT, 9, default=1),
            Placeholder(Expected.VALUE, 9, is_map=True),
        ],
    )
    def test_what_is_missing_is_an_error(
        self, values: FlowValues, placeholder: Placeholder
    ) -> None:
        with pytest.raises(DecodeError, match="node"):
            values.value_of(placeholder)

    def test_arguments_are_filled(self, values: FlowValues) -> None:
        made = template(a=Placeholder(Expected.VALUE, 0), b=2)
        assert decode(values.fill(made)) == {"a": 5, "b": 2}

    def test_a_stored_failure_is_told_from_a_result_by_its_first_byte(self) -> None:
        assert split_value(b"\xc1\x90") == (b"\x90", False)
        assert split_value(b"\xc0") == (b"\xc0", True)
