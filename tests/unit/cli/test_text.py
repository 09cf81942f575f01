"""Numbers and times as people read them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tampu.cli.show.text import clock, counted, rate, shortened, span, stamp


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (0.04, "0s"),
        (1.5, "1.5s"),
        (9.94, "9.9s"),
        (10, "10s"),
        (59.6, "1m"),
        (130, "2m10s"),
        (3600, "1h"),
        (3725, "1h2m"),
        (86_400, "1d"),
        (273_600, "3d4h"),
        (-130, "-2m10s"),
    ],
)
def test_a_span_has_at_most_two_units(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_instants_are_told_in_utc() -> None:
    at = datetime(2026, 1, 31, 10, 0, 5, 123_999, tzinfo=timezone(timedelta(hours=1)))
    assert clock(at) == "2026-01-31 09:00:05Z"
    assert stamp(at) == "2026-01-31T09:00:05.123Z"
    assert (clock(None), stamp(None)) == ("-", None)
    assert stamp(datetime(2026, 1, 31, tzinfo=UTC)) == "2026-01-31T00:00:00.000Z"


def test_rates_are_exact_where_they_are_small() -> None:
    assert [rate(given) for given in (None, 0, 0.25, 9.94, 12.4, 100_000.6)] == [
        *("-", "0", "0.2", "9.9", "12", "100001"),
    ]


def test_a_text_is_shortened_to_one_line() -> None:
    assert shortened("a\n  b", 10) == "a b"
    assert shortened("abcdef", 4) == "abc…"


def test_one_is_not_many() -> None:
    assert [counted(n, "job") for n in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
