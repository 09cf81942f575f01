"""What users type, as values."""

import re
from datetime import datetime
from typing import Final

from tampu.clock import instant_ms
from tampu.duration import to_ms
from tampu.errors import OptionError

_EVENT_ID: Final = re.compile(r"[0-9]{1,20}(?:-[0-9]{1,20})?")


def instant_of(option: str, text: str) -> datetime:
    """An aware instant, as ISO 8601 writes it."""
    try:
        found = datetime.fromisoformat(text)
        instant_ms(option, found)
    except ValueError:
        accepted = "takes an instant with its offset, such as 2026-01-31T09:00Z"
        raise OptionError(option, text, accepted) from None
    return found


def event_before(text: str, *, now_ms: int) -> str:
    """The id of an event to begin behind: itself, or one of so long ago."""
    if _EVENT_ID.fullmatch(text):
        return text
    try:
        ago_ms = to_ms("from", text)
    except OptionError:
        accepted = "takes an event's id, a duration such as 10m, or 0"
        raise OptionError("from", text, accepted) from None
    return str(max(0, now_ms - ago_ms))
