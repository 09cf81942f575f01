from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError
from tampu.wire.event import (
    MAX_TEXT_BYTES,
    Event,
    EventFields,
    EventKind,
    decode_event,
    encode_active,
    encode_completed,
    encode_event,
    pack_events,
)
from tests.effort import cases
from tests.golden.chasquimq import fields_of, golden
from tests.unit.wire.shapes import texts, uint64


def sent(told: EventFields) -> list[bytes]:
    """The fields as the server gets them."""
    return [text.encode() for text in told]


@pytest.mark.parametrize("record", golden("events") + golden("commands", command="XADD events"))
def test_a_captured_event_is_read_and_written_field_by_field(record: dict[str, Any]) -> None:
    captured = fields_of(record)
    event = decode_event(captured)
    assert isinstance(event.kind, EventKind)
    assert isinstance(event.ts, int)
    again = encode_event(
        event.kind, job_id=event.job_id, ts_ms=event.ts, name=event.name, **event.fields
    )
    assert sent(again) == captured


def test_the_order_of_fields_does_not_depend_on_the_caller() -> None:
    flat = encode_event(
        EventKind.FAILED, job_id="i", ts_ms=1, name="job", duration_us=3, reason="no", attempt=2
    )
    assert flat[::2] == ["e", "id", "ts", "n", "attempt", "reason", "duration_us"]
    assert flat[1::2] == ["failed", "i", "1", "job", "2", "no", "3"]


@pytest.mark.parametrize(
    ("kind", "fields", "order"),
    [
        (EventKind.ACTIVE, {"attempt": 1}, ["attempt"]),
        (EventKind.COMPLETED, {"duration_us": 2, "attempt": 1}, ["attempt", "duration_us"]),
        (EventKind.RETRY_SCHEDULED, {"backoff_ms": 5, "attempt": 2}, ["attempt", "backoff_ms"]),
        (EventKind.DEAD, {"reason": "r", "attempt": 2}, ["attempt", "reason"]),
        (EventKind.DELAYED, {"delay_ms": 60_000}, ["delay_ms"]),
        (EventKind.PROGRESS, {"progress": 40, "attempt": 1}, ["attempt", "progress"]),
    ],
)
def test_each_kind_has_its_fields_in_the_peers_order(
    kind: EventKind, fields: dict[str, int | str], order: list[str]
) -> None:
    flat = encode_event(kind, job_id="i", ts_ms=1, name="", **fields)
    assert flat[6::2] == order
    assert decode_event(sent(flat)) == Event(kind, "i", 1, "", fields)


def test_the_kinds_are_spelled_as_at_the_peer() -> None:
    assert [kind.value for kind in EventKind] == [
        *("waiting", "active", "completed", "failed", "retry-scheduled", "dlq", "drained"),
        *("delayed", "added", "cancelled", "fired", "replayed", "progress", "dropped"),
    ]


def test_an_empty_name_is_not_written() -> None:
    assert "n" not in encode_event(EventKind.ACTIVE, job_id="i", ts_ms=1)
    assert "n" in encode_event(EventKind.WAITING, job_id="i", ts_ms=1, name="job")


def test_an_event_accepts_any_id_and_name() -> None:
    flat = encode_event(EventKind.ACTIVE, job_id="\ud800", ts_ms=1, name="\ud800")
    assert (flat[3], flat[7]) == ("?", "?")


def test_drained_has_an_empty_id() -> None:
    assert encode_event(EventKind.DRAINED, job_id="", ts_ms=7) == [
        *("e", "drained", "id", "", "ts", "7")
    ]


def test_an_event_accepts_a_reason_of_any_length_and_content() -> None:
    flat = encode_event(EventKind.FAILED, job_id="i", ts_ms=1, reason="\ud800" + "発" * 9_000)
    reason = flat[-1]
    assert len(reason.encode()) <= MAX_TEXT_BYTES
    assert reason.startswith("?発")


def test_an_unknown_kind_and_further_fields_stay_readable() -> None:
    event = decode_event([b"e", b"stalled", b"id", b"i", b"ts", b"5", b"prev", b"active"])
    assert event == Event("stalled", "i", 5, "", {"prev": "active"})


@pytest.mark.parametrize("text", ["", "soon", "1.5", "+5", "1_0", " 5", "٣", "9" * 50])
def test_a_number_that_is_none_stays_text(text: str) -> None:
    event = decode_event([b"e", b"active", b"ts", text.encode(), b"attempt", text.encode()])
    assert (event.ts, event.fields) == (text, {"attempt": text})


def test_only_the_numeric_fields_become_numbers() -> None:
    event = decode_event([b"e", b"failed", b"reason", b"404", b"attempt", b"3", b"id", b"17"])
    assert event.fields == {"reason": "404", "attempt": 3}
    assert event.job_id == "17"


@settings(max_examples=cases(200), deadline=None)
@given(st.sampled_from(EventKind), texts, uint64, texts, texts, uint64)
def test_an_event_comes_back(
    kind: EventKind, job_id: str, ts_ms: int, name: str, reason: str, attempt: int
) -> None:
    flat = encode_event(kind, job_id=job_id, ts_ms=ts_ms, name=name, reason=reason, attempt=attempt)
    fields: dict[str, int | str] = {"attempt": attempt, "reason": reason}
    assert decode_event(sent(flat)) == Event(kind, job_id, ts_ms, name, fields)


@settings(max_examples=cases(300), deadline=None)
@given(
    st.lists(st.sampled_from([b"e", b"id", b"ts", b"attempt"]) | st.binary(max_size=30), max_size=9)
)
def test_any_fields_are_an_event_or_refused(flat: list[bytes]) -> None:
    try:
        decode_event(flat)
    except DecodeError:
        assert len(flat) % 2


@settings(max_examples=cases(200), deadline=None)
@given(texts, uint64, texts, uint64, uint64)
def test_the_fast_builders_write_the_same_fields(
    job_id: str, ts_ms: int, name: str, attempt: int, duration_us: int
) -> None:
    assert encode_active(job_id, str(ts_ms), name, attempt) == encode_event(
        EventKind.ACTIVE, job_id=job_id, ts_ms=ts_ms, name=name, attempt=attempt
    )
    assert encode_completed(job_id, str(ts_ms), name, attempt, duration_us) == encode_event(
        EventKind.COMPLETED,
        job_id=job_id,
        ts_ms=ts_ms,
        name=name,
        attempt=attempt,
        duration_us=duration_us,
    )


@pytest.mark.parametrize("name", ["", "job"])
def test_the_quick_builders_write_or_leave_out_the_name(name: str) -> None:
    flat = encode_active("i", "1", name, 2)
    assert decode_event(sent(flat)) == Event(EventKind.ACTIVE, "i", 1, name, {"attempt": 2})
    assert ("n" in flat[::2]) is bool(name)
    flat = encode_completed("i", "1", name, 2, 17)
    fields: dict[str, int | str] = {"attempt": 2, "duration_us": 17}
    assert decode_event(sent(flat)) == Event(EventKind.COMPLETED, "i", 1, name, fields)
    assert ("n" in flat[::2]) is bool(name)


def test_packed_events_are_texts() -> None:
    batch = [encode_active("i", "1", "job", 2), encode_completed("i", "1", "", 2, 17)]
    assert msgpack.unpackb(pack_events(batch)) == batch
