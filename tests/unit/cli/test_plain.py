"""Any value becomes JSON."""

import json
from datetime import UTC, datetime

from tampu import BuryReason
from tampu.cli.show.plain import as_json, plain


def test_values_keep_their_kind_and_others_become_texts() -> None:
    given = {
        "texts": ["ä", "\x00"],
        7: (1, 2.5, True, None),
        "bytes": b"\x00\xff",
        "odd": [float("nan"), float("inf")],
        "at": datetime(2026, 1, 31, tzinfo=UTC),
        "reason": BuryReason.MALFORMED,
        "else": 1 + 2j,
    }
    assert plain(given) == {
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
    assert json.loads(as_json(given)) == {"a": [1, {"b": "nan"}]}
    assert as_json(given, indent=None) == '{"a": [1, {"b": "nan"}]}'
    assert "\n" in as_json(given)
