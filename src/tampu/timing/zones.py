"""Time zones, and the moments at which their clocks change.

A wall time is a naive datetime in whole seconds. It may not exist (a gap) or occur twice (an
overlap). `zoneinfo` does not list the changes of a zone, so a binary search finds them.
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
_EXPECTED: Final = (
    'expected an IANA name such as "Europe/Berlin", "UTC", or an offset such as "+05:30"'
)


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A moment at which a zone changes its offset from UTC."""

    at_s: int
    before_s: int
    after_s: int

    @property
    def is_gap(self) -> bool:
        """Whether the wall times from `start` to `end` are skipped; otherwise they occur twice."""
        return self.after_s > self.before_s

    @property
    def start(self) -> datetime:
        """The first wall time that is skipped or occurs twice."""
        return _WALL_EPOCH + timedelta(seconds=self.at_s + min(self.before_s, self.after_s))

    @property
    def end(self) -> datetime:
        """The first wall time after those."""
        return _WALL_EPOCH + timedelta(seconds=self.at_s + max(self.before_s, self.after_s))


def parse_zone(option: str, text: str) -> tzinfo:
    """The time zone with this name or offset; `OptionError` names the option if there is none."""
    given: object = text
    if not isinstance(given, str):
        raise OptionError(option, text, _EXPECTED)
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
            pass  # unknown, a path out of the database, a directory, or a name that is too long
    raise OptionError(option, text, _EXPECTED)


def wall_time(zone: tzinfo, at_s: int) -> datetime:
    """The wall time of an instant; `fold` is 1 in the second pass of an overlap."""
    return (_EPOCH + timedelta(seconds=at_s)).astimezone(zone).replace(tzinfo=None)


def wall_instant_s(zone: tzinfo, wall: datetime, *, fold: int = 0) -> int:
    """The instant of a wall time, in seconds; `fold` picks the pass of an overlap."""
    return (wall.replace(tzinfo=zone, fold=fold) - _EPOCH) // SECOND


def find_change(zone: tzinfo, wall: datetime) -> ClockChange | None:
    """The change that makes this wall time be skipped or occur twice; usually None."""
    first_s, second_s = wall_instant_s(zone, wall), wall_instant_s(zone, wall, fold=1)
    if first_s == second_s:
        return None
    return _search_change(zone, min(first_s, second_s), max(first_s, second_s))


def changes_between(zone: tzinfo, after_s: int, upto_s: int) -> list[ClockChange]:
    """The changes after `after_s` and up to `upto_s`; no zone has two on one day."""
    if isinstance(zone, timezone):
        return []
    found = []
    while after_s < upto_s:
        end_s = min(after_s + _DAY_S, upto_s)
        if _offset_s(zone, after_s) != _offset_s(zone, end_s):
            found.append(_search_change(zone, after_s, end_s))
        after_s = end_s
    return found


def _search_change(zone: tzinfo, low_s: int, high_s: int) -> ClockChange:
    """The one change after `low_s` and up to `high_s`."""
    before_s, after_s = _offset_s(zone, low_s), _offset_s(zone, high_s)
    while high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        if _offset_s(zone, middle_s) == before_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return ClockChange(high_s, before_s, after_s)


def _offset_s(zone: tzinfo, at_s: int) -> int:
    return (wall_time(zone, at_s) - _WALL_EPOCH) // SECOND - at_s
