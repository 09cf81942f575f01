"""Any value can be printed as JSON."""

import json
from datetime import UTC, datetime

from tampu import BuryReason
from tampu.cli.output import escape_controls
from tampu.cli.screen import to_json, to_plain

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
