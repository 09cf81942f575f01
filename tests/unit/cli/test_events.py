"""Events in lines, and where they start."""

from datetime import UTC, datetime

import pytest

from tampu import OptionError
from tampu.cli.events import event_line, start_id
from tampu.cli.output import escape_controls
from tampu.job import JobEvent

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
EVIL = "\x1b]0;mine\x07\x1b[2J\x9b31m\u2028\u202e"


def test_an_event_is_one_line_with_its_fields_by_name() -> None:
    event = JobEvent("5-0", "odd", "", "", NOW, None, {"reason": "a\nb" + "x" * 100, "attempt": 2})
    line = event_line(event)
    assert line.startswith("2026-11-15T12:00:00.000Z 5-0 odd id=- name=- attempt=2 reason=a bxxx")
    assert line.endswith("x…")


def test_nothing_in_an_event_can_control_the_terminal() -> None:
    line = event_line(JobEvent("1-0", EVIL, f"a\n{EVIL}", EVIL, NOW, None, {"reason": EVIL}))
    assert escape_controls(line) == line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("typed", "after"), [("0", "0"), ("17-3", "17-3"), ("10s", "990000"), ("1d", "0")]
)
def test_events_start_after_an_id_or_some_time_ago(typed: str, after: str) -> None:
    assert start_id(typed, now_ms=1_000_000) == after


@pytest.mark.parametrize("wrong", ["$", "-5s", "1-2-3"])
def test_any_other_start_is_an_error(wrong: str) -> None:
    with pytest.raises(OptionError, match="expected the id of an event, a duration such as 10m"):
        start_id(wrong, now_ms=1_000_000)
