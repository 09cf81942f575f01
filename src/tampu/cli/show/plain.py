"""Any value as JSON can carry it. A job's data is whatever its producer gave."""

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from enum import Enum

from tampu.cli.show.text import stamp
from tampu.cli.visible import visible


def plain(value: object) -> object:
    """The value of JSON's own kinds; bytes become {"base64": ...}, what is left over its text."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return _other(value)


def _other(value: object) -> object:
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, datetime):
        return stamp(value)
    return str(value)


def as_json(value: object, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """One JSON document; without an indent in one line."""
    return visible(json.dumps(plain(value), indent=indent, ensure_ascii=ascii_only))
