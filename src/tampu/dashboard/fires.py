"""When a schedule fired and missed in the last day, for its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tampu.admin.history import read_fires
from tampu.dashboard.charts import Frame, Series, stacked_bars
from tampu.metrics.history import DAY_S
from tampu.server.streams import server_time_ms
from tampu.timing.rule import interval_words
from tampu.util.clock import instant

if TYPE_CHECKING:
    from datetime import datetime

    from tampu.dashboard.source import DataSource
    from tampu.wire.keys import QueueKeys

_MINUTES: Final = DAY_S // 60
_MINUTES_A_BAR: Final = 30
_MINUTES_A_CALL: Final = 240
_STILL_CHANGING: Final = 2  # minutes, counted from the last, that workers may still add to
_FRESH_S: Final = 4.0
_MOST_ROWS: Final = 10
Minute = tuple[Mapping[str, int], Mapping[str, int]]
"""How often each schedule of a queue fired, and how often it missed."""


@dataclass(frozen=True, slots=True)
class Fires:
    """A minute, or several, of one schedule."""

    at: datetime
    fired: int
    missed: int


@dataclass(frozen=True, slots=True)
class FireHistory:
    """The last day of one schedule."""

    bars: Sequence[Fires]  # oldest first, at equal distances
    recent: Sequence[Fires]  # the last minutes with any, the newest first

    @property
    def fired(self) -> int:
        """How often it fired."""
        return sum(each.fired for each in self.bars)

    @property
    def missed(self) -> int:
        """How often it missed."""
        return sum(each.missed for each in self.bars)

    @property
    def chart(self) -> object:
        """Both over time."""
        frame = Frame(times=[each.at for each in self.bars])
        return stacked_bars(
            f"Fires per {interval_words(_MINUTES_A_BAR * 60_000)}",
            frame,
            [
                Series("Fired", "blue", [each.fired for each in self.bars]),
                Series("Missed", "amber", [each.missed for each in self.bars]),
            ],
        )


async def read_history(source: DataSource, keys: QueueKeys, schedule: str) -> FireHistory:
    """What was recorded of a schedule in the last day."""

    async def read() -> dict[int, Minute]:
        return await _read_minutes(source, keys)

    minutes = await source.cache(("fires", keys.name), _FRESH_S, read)
    return sum_up({number: _of(minute, schedule) for number, minute in minutes.items()})


def sum_up(minutes: Mapping[int, tuple[int, int]]) -> FireHistory:
    """The history of a schedule from its minutes, which are neighbours."""
    bars: dict[int, tuple[int, int]] = {}
    for number, (fired, missed) in minutes.items():
        before = bars.get(number // _MINUTES_A_BAR, (0, 0))
        bars[number // _MINUTES_A_BAR] = before[0] + fired, before[1] + missed
    recent = [number for number in sorted(minutes, reverse=True) if any(minutes[number])]
    return FireHistory(
        [Fires(instant(bar * _MINUTES_A_BAR * 60_000), *bars[bar]) for bar in sorted(bars)],
        [Fires(instant(number * 60_000), *minutes[number]) for number in recent[:_MOST_ROWS]],
    )


def _of(minute: Minute, schedule: str) -> tuple[int, int]:
    fired, missed = minute
    return fired.get(schedule, 0), missed.get(schedule, 0)


async def _read_minutes(source: DataSource, keys: QueueKeys) -> dict[int, Minute]:
    """The minutes of a day. Those that no longer change are read once and remembered."""
    lane = await source.lane(keys)
    last = await server_time_ms(lane) // 60_000
    wanted = range(last - _MINUTES + 1, last + 1)
    final: dict[int, Minute] = source.memory("fires", keys.name)
    for number in [number for number in final if number not in wanted]:
        del final[number]
    found = dict(final)
    missing = [number for number in wanted if number not in found]
    for start in range(0, len(missing), _MINUTES_A_CALL):
        part = missing[start : start + _MINUTES_A_CALL]
        found.update(zip(part, await read_fires(lane, keys, part), strict=True))
    final.update((each, found[each]) for each in missing if each <= last - _STILL_CHANGING)
    return {number: found[number] for number in wanted}
