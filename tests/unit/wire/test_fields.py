import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError
from tampu.wire.fields import clip_text, clip_text_front, decode_number, pair_fields
from tests.effort import cases
from tests.unit.wire.shapes import texts


def test_a_field_without_a_value_is_refused() -> None:
    with pytest.raises(DecodeError, match="entry"):
        pair_fields([b"a"], what="entry")


@settings(max_examples=cases(200), deadline=None)
@given(texts, st.integers(0, 30))
def test_a_clipped_text_is_a_whole_part_of_the_text(text: str, max_bytes: int) -> None:
    head, tail = clip_text(text, max_bytes), clip_text_front(text, max_bytes)
    assert text.startswith(head.decode())
    assert text.endswith(tail.decode())
    for part in (head, tail):
        assert len(part) <= max_bytes
        assert len(part) > max_bytes - 4 or part == text.encode()


def test_numbers_may_be_negative() -> None:
    assert decode_number(b"-5") == -5
    assert decode_number(b"--5") == "--5"
    assert decode_number(b"-") == "-"
