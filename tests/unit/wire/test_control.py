"""Messages on the control stream, and requests to cancel as they are kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError
from tampu.wire.control import (
    CancelRequest,
    DrainRequest,
    PauseRequest,
    decode_control,
    decode_request,
    encode_drain,
)
from tests.effort import cases

NOW_MS = 1_794_725_043_642


def flat(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("op", "cancel", "id", "order:17", "latest", "5"), CancelRequest("order:17", 5)),
        (("latest", "5", "id", "ä", "op", "cancel", "later", "x"), CancelRequest("ä", 5)),
        (("op", "pause"), PauseRequest(paused=True)),
        (("op", "resume"), PauseRequest(paused=False)),
        (("op", "drain", "worker", "t-1"), DrainRequest("t-1")),
    ],
)
def test_each_kind_of_message_is_read(fields: tuple[str, ...], message: object) -> None:
    assert decode_control(flat(*fields)) == message


def test_a_request_to_drain_is_read_as_it_was_written() -> None:
    request = DrainRequest("t-web-01ABC")
    assert decode_control(flat(*encode_drain(request))) == request


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("op",),
        ("op", "limit", "queue", "5"),  # a later version may send what this one does not know
        ("id", "x", "latest", "5"),
        ("op", "cancel", "latest", "5"),
        ("op", "cancel", "id", "x"),
        ("op", "cancel", "id", "x", "latest", "soon"),
    ],
)
def test_other_messages_are_refused(fields: tuple[str, ...]) -> None:
    with pytest.raises(DecodeError):
        decode_control(flat(*fields))


def test_a_message_that_is_no_text_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_control([b"op", b"\xff\xfe"])


@pytest.mark.parametrize("job_id", ["x", "order:17", "a:b:c", "5:6", "ä b"])
def test_a_request_is_kept_with_its_time_whatever_the_id_contains(job_id: str) -> None:
    request = CancelRequest(job_id, NOW_MS)
    assert request.member == f"{NOW_MS}:{job_id}".encode()
    assert decode_request(request.member) == request


@settings(max_examples=cases(100), deadline=None)
@given(st.text(min_size=1).filter(lambda text: text.isprintable()), st.integers(0, 2**53))
def test_any_request_survives_being_kept(job_id: str, latest_ms: int) -> None:
    request = CancelRequest(job_id, latest_ms)
    assert decode_request(request.member) == request


@pytest.mark.parametrize("member", [b"", b":", b"5:", b":x", b"x", b"soon:x", b"\xff:x"])
def test_what_is_no_request_is_refused(member: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request(member)
