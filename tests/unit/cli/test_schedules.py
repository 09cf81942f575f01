"""The table of schedules, and instants as they are typed."""

from datetime import timedelta

import pytest

from tampu import Cron, Every, OptionError, Schedule
from tampu.cli.schedules import schedules_table
from tampu.cli.screen import parse_instant
from tests.unit.cli.tables import print_view
from tests.unit.cli.test_dead import NOW


def test_the_key_of_a_schedule_is_printed_to_its_last_character() -> None:
    key = "a-report-with-a-long-name::cron:0 9 * * 1-5:Europe/Berlin"
    schedules = [
        Schedule(key=key, raw_key=b"", name="report", rule=Cron("0 9 * * 1-5"), next_at=NOW),
        Schedule(key="t", raw_key=b"t", name="t", rule=Every(90), next_at=NOW, paused=True),
        Schedule(key="bad", raw_key=b"bad", problem="spec cannot be decoded: it is too short."),
    ]
    lines = print_view(schedules_table(schedules, NOW - timedelta(seconds=30)))
    assert lines[0].split() == ["Key", "Job", "Next", "Fired", "Rule"]
    shown = "".join(line[:40].split("  ")[0] for line in lines[1:-2])
    assert shown.replace(" ", "") == key.replace(" ", "")
    assert lines[-2].split() == ["t", "t", "paused", "0", "every", "1m30s"]
    assert "spec cannot be" in lines[-1]


def test_an_instant_needs_an_offset() -> None:
    assert parse_instant("start", "2026-01-31T09:00Z").isoformat() == "2026-01-31T09:00:00+00:00"
    for wrong in ("2026-01-31T09:00", "tomorrow", ""):
        with pytest.raises(OptionError, match="expected a date and time with its offset"):
            parse_instant("start", wrong)
