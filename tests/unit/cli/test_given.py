"""What users type becomes values, or an error that says what can be typed."""

import pytest

from tampu import OptionError
from tampu.cli.given import event_before, instant_of


def test_instants_need_an_offset() -> None:
    assert instant_of("start", "2026-01-31T09:00Z").isoformat() == "2026-01-31T09:00:00+00:00"
    for wrong in ("2026-01-31T09:00", "tomorrow", ""):
        with pytest.raises(OptionError, match="takes an instant with its offset"):
            instant_of("start", wrong)


@pytest.mark.parametrize(
    ("typed", "after"), [("0", "0"), ("17-3", "17-3"), ("10s", "990000"), ("1d", "0")]
)
def test_events_begin_behind_an_id_or_so_long_ago(typed: str, after: str) -> None:
    assert event_before(typed, now_ms=1_000_000) == after


@pytest.mark.parametrize("wrong", ["$", "-5s", "1-2-3"])
def test_what_is_neither_is_an_error(wrong: str) -> None:
    with pytest.raises(OptionError, match="takes an event's id, a duration such as 10m, or 0"):
        event_before(wrong, now_ms=1_000_000)
