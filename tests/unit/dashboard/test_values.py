"""Payloads as trees, lines and JSON to edit."""

import json
from datetime import UTC, datetime

import pytest

from tampu.dashboard.access import HIDDEN, Redaction
from tampu.dashboard.page import RequestRefused
from tampu.dashboard.values import from_json, is_editable, preview, to_json, trace_id, tree

PAYLOAD = {
    "to": "ada",
    "n": 1,
    "yes": True,
    "password": "hunter2",
    "lines": [{"sku": "A", "token": "t-1"}, {"sku": "B", "token": "t-2"}],
}
PLAIN = Redaction()


def test_a_tree_has_the_kind_and_text_of_every_value() -> None:
    root = tree({"a": "x", "b": 1.5, "c": None, "d": [True], "e": b"\x00", "f": HIDDEN, "g": {}})
    assert (root.kind, root.text) == ("map", "7")
    kinds = {node.label: (node.kind, node.text) for node in root.children}
    assert kinds == {
        "a": ("text", "x"),
        "b": ("number", "1.5"),
        "c": ("word", "null"),
        "d": ("list", "1"),
        "e": ("other", "b'\\x00'"),
        "f": ("secret", HIDDEN),
        "g": ("map", "0"),
    }
    assert root.children[3].children[0].text == "true"


def test_large_and_deep_values_are_cut_and_say_so() -> None:
    root = tree(list(range(1000)))
    assert (len(root.children), root.more, root.text) == (200, 800, "1000")
    assert tree("x" * 5000).more == 1000
    deep: object = "end"
    for _ in range(60):
        deep = [deep]
    levels, node = 0, tree(deep)
    while node.children:
        levels, node = levels + 1, node.children[0]
    assert (levels, node.kind) == (20, "other")


def test_a_preview_fits_on_a_line_and_hides_secrets() -> None:
    assert preview(PAYLOAD, PLAIN) == f"to: ada, n: 1, yes: True, password: {HIDDEN}, lines: [2]"
    assert len(preview({"x": "y" * 1000}, PLAIN)) == 120
    assert preview(None, PLAIN) == ""
    assert preview([1, 2], PLAIN) == "[2]"


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "0af7651916cd43dd8448eb211c80319c",
        ),
        ("00-<script>-b7-01", ""),
        ("", ""),
        ("00-" + "Z" * 32 + "-b7-01", ""),
    ],
)
def test_the_trace_of_a_job_is_read_from_its_header(header: str, trace: str) -> None:
    assert trace_id({"traceparent": header}) == trace
    assert trace_id({}) == ""


@pytest.mark.parametrize(
    ("value", "can"),
    [
        (PAYLOAD, True),
        (None, True),
        (b"x", False),
        ({1: "x"}, False),
        ({"at": datetime.now(UTC)}, False),
        ([float("nan")], False),
    ],
)
def test_only_what_json_holds_without_loss_is_edited(value: object, can: bool) -> None:  # noqa: FBT001
    assert is_editable(value) is can


def test_hidden_values_that_stay_in_their_place_are_put_back() -> None:
    text = to_json(PAYLOAD, PLAIN)
    assert "hunter2" not in text
    assert from_json(text, PAYLOAD, PLAIN) == PAYLOAD
    changed = text.replace('"ada"', '"bob"')
    assert from_json(changed, PAYLOAD, PLAIN) == {**PAYLOAD, "to": "bob"}
    edited = json.loads(text)
    del edited["password"]
    edited["lines"].append({"sku": "C"})
    back = from_json(json.dumps(edited), PAYLOAD, PLAIN)
    assert isinstance(back, dict)
    assert "password" not in back
    assert back["lines"] == [*PAYLOAD["lines"], {"sku": "C"}]  # type: ignore[misc]


@pytest.mark.parametrize(
    "edited",
    [
        {"other": HIDDEN},
        {"lines": [{"sku": "B", "token": HIDDEN}]},
        {"lines": [{"sku": "A", "token": HIDDEN}, {"sku": "changed", "token": HIDDEN}]},
        [HIDDEN],
        HIDDEN,
    ],
)
def test_a_hidden_value_cannot_be_moved(edited: object) -> None:
    with pytest.raises(RequestRefused, match="cannot be moved"):
        from_json(json.dumps(edited), PAYLOAD, PLAIN)


def test_true_is_not_taken_for_one() -> None:
    back = from_json('{"n": true, "yes": 1}', {"n": 1, "yes": True}, PLAIN)
    assert json.dumps(back) == '{"n": true, "yes": 1}'
