"""What users type, as values."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from tampu.errors import OptionError
from tampu.util.clock import instant_ms, to_ms

MOST_SLOTS: Final = 100_000
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_POWERS: Final = "KMGT"
_EVENT_ID: Final = re.compile(r"[0-9]{1,20}(?:-[0-9]{1,20})?")


def instant_of(option: str, text: str) -> datetime:
    """An aware instant, as ISO 8601 writes it."""
    try:
        found = datetime.fromisoformat(text)
        instant_ms(option, found)
    except ValueError:
        accepted = "expected an instant with its offset, such as 2026-01-31T09:00Z"
        raise OptionError(option, text, accepted) from None
    return found


def event_before(text: str, *, now_ms: int) -> str:
    """The id of an event to begin behind: itself, or one of so long ago."""
    if _EVENT_ID.fullmatch(text):
        return text
    try:
        ago_ms = to_ms("from", text)
    except OptionError:
        accepted = "expected an event's id, a duration such as 10m, or 0"
        raise OptionError("from", text, accepted) from None
    return str(max(0, now_ms - ago_ms))


def slots_of(given: Sequence[str]) -> dict[str, int | None]:
    """Queues and how many runs each has, from texts such as emails=50; None: not said."""
    found: dict[str, int | None] = {}
    for text in given:
        name, equals, number = text.partition("=")
        valid = not equals or (number.isdecimal() and 1 <= int(number) <= MOST_SLOTS)
        if not name or not valid:
            accepted = f"expected NAME or NAME=CONCURRENCY, such as emails=50, up to {MOST_SLOTS}"
            raise OptionError("queue", text, accepted)
        if name in found:
            raise OptionError("queue", text, "is given twice")
        found[name] = int(number) if equals else None
    return found


def bytes_of(option: str, text: str) -> int:
    """A number of bytes, from a text such as 512MB or 1.5GiB; above 0."""
    found = _SIZE.fullmatch(text.strip())
    size = 0
    if found:
        unit = (found[2] or "").upper()
        base = 1024 if unit.endswith("I") else 1000
        size = int(float(found[1]) * base ** (_POWERS.index(unit[0]) + 1 if unit else 0))
    if size <= 0:
        raise OptionError(option, text, "expected a size such as 512MB, 1.5GiB or 1000000")
    return size


def json_of(option: str, text: str) -> object:
    """A JSON document; the text itself is not quoted in the error, it may be a secret."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(option, "...", f"expected JSON; this is none ({error})") from None


def named_values(option: str, given: Sequence[str]) -> dict[str, object]:
    """Names and values from texts such as to=ada; a value is JSON if it can be, else text."""
    found: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OptionError(option, name, "expected NAME=VALUE, such as to=ada or count=3")
        if name in found:
            raise OptionError(option, name, "is given twice")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
