"""Payloads as pages show them: as a tree, as one line, and as JSON that somebody edits."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tampu.dashboard.access import HIDDEN, Redaction
from tampu.dashboard.page import bad_request

_MOST_CHILDREN: Final = 200
_MOST_LEVELS: Final = 20
_MOST_TEXT: Final = 4_000
_MOST_PREVIEW: Final = 120
_JSON_LEAVES: Final = (str, bool, int, type(None))


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A value of a payload: a leaf with its text, or a list or map with what is in it."""

    label: str
    kind: str  # text, number, word, secret, other, list or map
    text: str = ""
    children: tuple["TreeNode", ...] = ()
    more: int = 0  # what is left out: children, or characters of the text

    @property
    def is_branch(self) -> bool:
        """Whether it has something in it."""
        return self.kind in {"list", "map"}


def tree(value: object, label: str = "", *, level: int = 0) -> TreeNode:
    """A value, redacted already, as a tree. Very large ones are cut, and say so."""
    if isinstance(value, dict | list | tuple) and level >= _MOST_LEVELS:
        return _leaf(label, "other", str(value))
    if isinstance(value, dict):
        pairs = [(str(key), item) for key, item in value.items()]
        return TreeNode(label, "map", *_children(pairs, level))
    if isinstance(value, list | tuple):
        pairs = [(str(at), item) for at, item in enumerate(value)]
        return TreeNode(label, "list", *_children(pairs, level))
    if isinstance(value, str):
        return _leaf(label, "secret" if value == HIDDEN else "text", value)
    if isinstance(value, bool) or value is None:
        return _leaf(label, "word", json.dumps(value))
    return _leaf(label, "number" if isinstance(value, int | float) else "other", str(value))


def _children(pairs: list[tuple[str, object]], level: int) -> tuple[str, tuple[TreeNode, ...], int]:
    """How many there are, the first of them, and how many are left out."""
    kept = tuple(tree(item, key, level=level + 1) for key, item in pairs[:_MOST_CHILDREN])
    return f"{len(pairs)}", kept, len(pairs) - len(kept)


def _leaf(label: str, kind: str, text: str) -> TreeNode:
    return TreeNode(label, kind, text[:_MOST_TEXT], more=max(0, len(text) - _MOST_TEXT))


def preview(value: object, redaction: Redaction) -> str:
    """A value on one line, cut."""
    if value is None:
        return ""
    shown = redaction.apply(value)
    if isinstance(shown, dict):
        text = ", ".join(f"{key}: {_short(item)}" for key, item in list(shown.items())[:20])
    else:
        text = _short(shown)
    return text if len(text) <= _MOST_PREVIEW else text[: _MOST_PREVIEW - 1] + "…"


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{len(value)}]"
    return str(value)[:_MOST_PREVIEW] if value is not None else "null"


def trace_id(headers: Mapping[str, str]) -> str:
    """The id of the trace in a job's headers; "" if there is none."""
    parts = headers.get("traceparent", "").split("-")
    is_one = len(parts) >= 4 and len(parts[1]) == 32 and set(parts[1]) <= set("0123456789abcdef")
    return parts[1] if is_one else ""


# --- editing ------------------------------------------------------------------------------------


def is_editable(value: object) -> bool:
    """Whether JSON can hold the value without loss."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if not all(isinstance(key, str) for key in each):
                return False
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, float):
            if not math.isfinite(each):
                return False
        elif not isinstance(each, _JSON_LEAVES):
            return False
    return True


def to_json(value: object, redaction: Redaction) -> str:
    """A value to edit; what is hidden stands there as `HIDDEN`."""
    return json.dumps(redaction.apply(value), indent=2, ensure_ascii=False)


def from_json(text: str, original: object, redaction: Redaction) -> object:
    """The edited value, with what was hidden put back; 400 if it is no JSON, or mixes up those."""
    try:
        edited = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_pairs)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise bad_request(f"This is not valid JSON: {error.msg} ({place}).") from None
    except RecursionError:
        raise bad_request("This is nested too deep.") from None
    except ValueError:
        raise bad_request("This is not valid JSON: a number is too long.") from None
    return _restore(edited, redaction.apply(original), original)


def _refuse_constant(name: str) -> None:
    raise bad_request(f"This is not valid JSON: {name} is no number.")


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise bad_request("A key appears twice in the same object.")
    return found


def _restore(edited: Any, shown: Any, original: Any) -> object:  # noqa: ANN401 - any JSON
    """The edited value, where what was hidden and stayed in its place is as it was."""
    if _is_same(edited, shown):
        return original
    if edited == HIDDEN:
        raise bad_request(f"A hidden value ({HIDDEN}) cannot be moved. Type the value instead.")
    if isinstance(edited, dict):
        was, had = (shown, original) if isinstance(shown, dict) else ({}, {})
        return {key: _restore(item, was.get(key), had.get(key)) for key, item in edited.items()}
    if isinstance(edited, list):
        seen, kept = (shown, original) if isinstance(shown, list) else ([], [])
        return [
            # An entry that was changed or moved: nobody can tell which hidden value belongs to it.
            kept[at] if at < len(seen) and _is_same(item, seen[at]) else _restore(item, None, None)
            for at, item in enumerate(edited)
        ]
    return edited


def _is_same(one: object, other: object) -> bool:
    """Whether two values are the same JSON: True is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
