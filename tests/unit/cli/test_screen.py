"""Numbers and times as people read them."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tampu import BuryReason
from tampu.cli.output import escape_controls
from tampu.cli.screen import (
    count_of,
    format_age,
    format_due,
    format_instant,
    format_rate,
    format_span,
    iso_instant,
    shorten,
    to_json,
    to_plain,
)

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
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
def test_a_span_has_at_most_two_units(seconds: float, text: str) -> None:
    assert format_span(seconds) == text


def test_instants_are_printed_in_utc() -> None:
    at = datetime(2026, 1, 31, 10, 0, 5, 123_999, tzinfo=timezone(timedelta(hours=1)))
    assert format_instant(at) == "2026-01-31 09:00:05Z"
    assert format_instant(None) == "-"
    assert iso_instant(at) == "2026-01-31T09:00:05.123Z"
    assert iso_instant(datetime(2026, 1, 31, tzinfo=UTC)) == "2026-01-31T00:00:00.000Z"


def test_instants_are_printed_relative_to_now() -> None:
    assert format_age(NOW - timedelta(seconds=90), NOW) == "1m30s"
    assert format_age(NOW + timedelta(seconds=1), NOW) == "0s"
    assert format_due(NOW + timedelta(seconds=90), NOW) == "in 1m30s"
    assert format_due(NOW - timedelta(seconds=3), NOW) == "3s ago"
    assert (format_age(None, NOW), format_due(None, NOW)) == ("-", "-")


def test_small_rates_have_a_decimal() -> None:
    assert [format_rate(given) for given in (None, 0, 0.25, 9.94, 12.4, 100_000.6)] == [
        *("-", "0", "0.2", "9.9", "12", "100001"),
    ]


def test_a_text_is_shortened_to_one_line() -> None:
    assert shorten("a\n  b", 10) == "a b"
    assert shorten("abcdef", 4) == "abc…"


def test_a_count_uses_the_singular_only_for_one() -> None:
    assert [count_of(n, "job") for n in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
    assert [count_of(n, "process") for n in (1, 2)] == ["1 process", "2 processes"]


EVIL = "\x1b]0;mine\x07\x1b[2J\x9b31m\u2028\u202e"


def test_values_keep_their_types_and_unknown_ones_become_text() -> None:
    given = {
        "texts": ["ä", "\x00"],
        7: (1, 2.5, True, None),
        "bytes": b"\x00\xff",
        "odd": [float("nan"), float("inf")],
        "at": datetime(2026, 1, 31, tzinfo=UTC),
        "reason": BuryReason.MALFORMED,
        "else": 1 + 2j,
    }
    assert to_plain(given) == {
        "texts": ["ä", "\x00"],
        "7": [1, 2.5, True, None],
        "bytes": {"base64": "AP8="},
        "odd": ["nan", "inf"],
        "at": "2026-01-31T00:00:00.000Z",
        "reason": "malformed",
        "else": "(1+2j)",
    }


def test_a_document_is_valid_json_in_one_line_or_many() -> None:
    given = {"a": [1, {"b": float("nan")}]}
    assert json.loads(to_json(given)) == {"a": [1, {"b": "nan"}]}
    assert to_json(given, indent=None) == '{"a": [1, {"b": "nan"}]}'
    assert "\n" in to_json(given)


def test_control_characters_are_escaped_and_the_values_stay_the_same() -> None:
    text = to_json({"a": EVIL, "ä": [EVIL]})
    assert escape_controls(text) == text
    assert json.loads(text) == {"a": EVIL, "ä": [EVIL]}
    assert to_json("ä", ascii_only=True) == '"\\u00e4"'
