"""Zones, and the moments at which their clocks change.

A wall time is a naive datetime in whole seconds. It may not exist (a gap) or exist twice (an
overlap); `Change` says where. `zoneinfo` names no changes, so they are found by halving.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from tampu.errors import OptionError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WALL_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall time has no zone
_DAY_S: Final = 86_400
SECOND: Final = timedelta(seconds=1)

_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):?(\d{2})", re.ASCII)
_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_+/-]*")  # "localtime" differs between machines
_ACCEPTED: Final = (
    'expected an IANA name such as "Europe/Berlin", "UTC", or an offset such as "+05:30"'
)


@dataclass(frozen=True, slots=True)
class Change:
    """A moment at which a clock is set: from one offset to UTC to another."""

    at_s: int
    before_s: int
    after_s: int

    @property
    def is_gap(self) -> bool:
        """Wall times from `start` up to `end` are left out; otherwise they come twice."""
        return self.after_s > self.before_s

    @property
    def start(self) -> datetime:
        """The first wall time that is left out, or comes twice."""
        return _WALL_EPOCH + timedelta(seconds=self.at_s + min(self.before_s, self.after_s))

    @property
    def end(self) -> datetime:
        """The first wall time behind those."""
        return _WALL_EPOCH + timedelta(seconds=self.at_s + max(self.before_s, self.after_s))


def zone_of(option: str, text: str) -> tzinfo:
    """The zone that a text names; `OptionError` names the option if there is none."""
    given: object = text
    if not isinstance(given, str):
        raise OptionError(option, text, _ACCEPTED)
    name = given.strip()
    if name in {"", "Z"} or name.upper() == "UTC":
        return UTC
    if offset := _OFFSET.fullmatch(name):
        hours, minutes = int(offset[2]), int(offset[3])
        if hours < 24 and minutes < 60:
            delta = timedelta(hours=hours, minutes=minutes)
            return timezone(delta if offset[1] == "+" else -delta)
    elif _NAME.fullmatch(name):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass  # unknown, a path that leads elsewhere, a directory, or a name too long
    raise OptionError(option, text, _ACCEPTED)


def wall_of(zone: tzinfo, at_s: int) -> datetime:
    """The wall time of an instant; `fold` is 1 in the second pass of an overlap."""
    return (_EPOCH + timedelta(seconds=at_s)).astimezone(zone).replace(tzinfo=None)


def instant_of(zone: tzinfo, wall: datetime, *, fold: int = 0) -> int:
    """The instant of a wall time that exists, in seconds; `fold` picks the pass of an overlap."""
    return (wall.replace(tzinfo=zone, fold=fold) - _EPOCH) // SECOND


def change_of(zone: tzinfo, wall: datetime) -> Change | None:
    """The change because of which a wall time is missing or comes twice."""
    first_s, second_s = instant_of(zone, wall), instant_of(zone, wall, fold=1)
    if first_s == second_s:
        return None
    return _change_within(zone, min(first_s, second_s), max(first_s, second_s))


def changes_between(zone: tzinfo, after_s: int, upto_s: int) -> list[Change]:
    """The changes after the first instant and up to the second; no two come on one day."""
    if isinstance(zone, timezone):
        return []
    found = []
    while after_s < upto_s:
        end_s = min(after_s + _DAY_S, upto_s)
        if _offset_s(zone, after_s) != _offset_s(zone, end_s):
            found.append(_change_within(zone, after_s, end_s))
        after_s = end_s
    return found


def _change_within(zone: tzinfo, low_s: int, high_s: int) -> Change:
    """The one change after the first instant and up to the second."""
    before_s, after_s = _offset_s(zone, low_s), _offset_s(zone, high_s)
    while high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        if _offset_s(zone, middle_s) == before_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return Change(high_s, before_s, after_s)


def _offset_s(zone: tzinfo, at_s: int) -> int:
    return (wall_of(zone, at_s) - _WALL_EPOCH) // SECOND - at_s
