from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode
from msgspec.structs import fields

from tampu.errors import DecodeError
from tampu.wire.task_state import (
    TaskState,
    Waiting,
    decode_peer_state,
    decode_task_state,
    encode_task_state,
    try_decode,
)
from tests.stores import FULL

PEER = b"""{"job_id":"t","trigger_count":7,"last_run_at":"2026-03-08T02:29:59.000000001Z",
"last_success_at":"2026-03-08T02:30:00.123456789Z","next_run_at":"2026-03-08T03:30:00.999000000Z",
"last_error":null}"""

text = st.text(st.characters(exclude_categories=["Cs"]))
counts = st.integers(0, 2**63 - 1)
instants = st.integers(-62_135_596_800_000, 253_402_300_799_999)
waiting = st.builds(Waiting, instants, st.booleans(), st.booleans())
states = st.builds(
    TaskState,
    task_id=text,
    fingerprint=text,
    last_error=st.none() | text,
    **dict.fromkeys(("fired", "ran", "failed", "skipped"), counts),
    **dict.fromkeys(("queued", "asked"), st.none() | waiting),
    **{
        field.name: st.none() | instants
        for field in fields(TaskState)
        if field.name.endswith("_ms")
    },
)


class TestOurOwn:
    @given(states)
    def test_every_state_comes_back_from_its_json(self, state: TaskState) -> None:
        assert decode_task_state(encode_task_state(state)) == state

    @given(states)
    def test_decoded_instants_are_datetimes(self, state: TaskState) -> None:
        for ms, moment in (
            (state.next_ms, state.next_at),
            (state.last_run_ms, state.last_run_at),
            (state.last_success_ms, state.last_success_at),
        ):
            assert (ms is None) == (moment is None)

    def test_the_json_leaves_out_defaults(self) -> None:
        assert encode_task_state(TaskState(task_id="t", fired=2)) == b'{"task_id":"t","fired":2}'

    def test_every_field_is_written(self) -> None:
        body = encode_task_state(FULL).decode()
        assert all(f'"{field.name}":' in body for field in fields(TaskState))

    def test_a_field_of_a_later_version_is_passed_over(self) -> None:
        body = b'{"task_id":"t","later":{"a":[1]},"fired":1}'
        assert decode_task_state(body) == TaskState(task_id="t", fired=1)

    def test_an_error_s_text_that_is_no_unicode_can_be_written(self) -> None:
        state = TaskState(task_id="t", last_error="no file \udcff here", fired=1)
        again = decode_task_state(encode_task_state(state))
        assert again == TaskState(task_id="t", last_error="no file ? here", fired=1)

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b"\xff", "not JSON"),
            (b'{"task_id":"t","last_error":"\xff"}', "not JSON"),
            (b'{"task_id":"t"} secret', "not JSON"),
            (b'{"task_id":"t","later":' + b"[" * 100_000, "not JSON"),
            (b"[]", "object"),
            (b"{}", "task_id"),
            (b'{"task_id":5}', "task_id"),
            (b'{"task_id":"t","fired":-1}', "fired"),
            (b'{"task_id":"t","fired":1.5}', "fired"),
            (b'{"task_id":"t","fired":"secret"}', "fired"),
            (b'{"task_id":"t","fired":%d}' % 10**30, "fired"),
            (b'{"task_id":"t","next_ms":253402300800000}', "next_ms"),
            (b'{"task_id":"t","next_ms":-62135596800001}', "next_ms"),
            (b'{"task_id":"t","queued":{}}', "at_ms"),
        ],
    )
    def test_a_malformed_state_is_reported_without_quoting_it(
        self, body: bytes, problem: str
    ) -> None:
        with pytest.raises(DecodeError, match=problem) as caught:
            decode_task_state(body)
        assert "secret" not in str(caught.value)

    @given(st.binary())
    def test_no_bytes_raise_anything_else(self, body: bytes) -> None:
        assert isinstance(try_decode(body, "t"), DecodeError)


class TestThePeersOwn:
    def test_a_state_of_the_peer_is_read_to_the_millisecond(self) -> None:
        assert decode_peer_state(PEER) == TaskState(
            task_id="t",
            fired=7,
            last_run_ms=_ms(datetime(2026, 3, 8, 2, 29, 59, tzinfo=UTC)),
            last_success_ms=_ms(datetime(2026, 3, 8, 2, 30, 0, 123_000, tzinfo=UTC)),
            next_ms=_ms(datetime(2026, 3, 8, 3, 30, 0, 999_000, tzinfo=UTC)),
        )

    def test_fields_that_the_peer_has_not_set_are_none(self) -> None:
        body = encode({"job_id": "t", "trigger_count": 0, "next_run_at": None, "last_error": "no"})
        assert decode_peer_state(body) == TaskState(task_id="t", last_error="no")

    def test_an_offset_counts(self) -> None:
        body = encode(
            {"job_id": "t", "trigger_count": 0, "next_run_at": "2026-01-01T08:00:00+08:00"}
        )
        assert decode_peer_state(body).next_at == datetime(2026, 1, 1, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (b"no", "not JSON"),
            (b'{"job_id":"t","later":' + b"[" * 100_000, "not JSON"),
            (b'{"job_id":"t"}', "trigger_count"),
            (b'{"job_id":"t","trigger_count":-1}', "trigger_count"),
            (b'{"job_id":"t","trigger_count":1,"next_run_at":"soon"}', "next_run_at"),
            (
                b'{"job_id":"t","trigger_count":1,"next_run_at":"2026-01-01T00:00:00"}',
                "no time zone",
            ),
            (
                b'{"job_id":"t","trigger_count":1,"next_run_at":"0001-01-01T00:00:00+05:00"}',
                "out of range",
            ),
        ],
    )
    def test_a_malformed_peer_state_is_reported(self, body: bytes, problem: str) -> None:
        with pytest.raises(DecodeError, match=problem):
            decode_peer_state(body)


class TestOfATask:
    def test_a_state_of_the_task_is_given(self) -> None:
        assert try_decode(encode_task_state(FULL), FULL.task_id) == FULL

    def test_a_state_of_another_task_is_no_state_of_this_one(self) -> None:
        found = try_decode(encode_task_state(FULL), "another")
        assert isinstance(found, DecodeError)
        assert "another task" in str(found)

    def test_the_peer_s_are_read_by_its_own_rules(self) -> None:
        state = try_decode(PEER, "t", decode=decode_peer_state)
        assert isinstance(state, TaskState)
        assert state.fired == 7


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
