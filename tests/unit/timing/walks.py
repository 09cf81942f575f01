"""A cron daemon that looks at the clock each minute or second: slow, and plainly right."""

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from random import Random
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_S = 86_400

YEARS = [  # 400 days, with what is odd about them
    ("UTC", 2026),
    ("Europe/Berlin", 2026),
    ("America/New_York", 2026),
    ("Australia/Lord_Howe", 2026),  # half an hour
    ("Africa/Casablanca", 2026),  # back for Ramadan
    ("America/Havana", 2026),  # at midnight
    ("Pacific/Apia", 2011),  # a day that never was
    ("Asia/Kathmandu", 2026),  # 05:45 ahead
]

CLOCKS_SET = [  # forwards, then back, at these instants
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("America/New_York", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-11-01T06:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),  # half an hour
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),  # at midnight, and the last ones there
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("Africa/Cairo", "2025-04-24T22:00Z"),  # at midnight
    ("Africa/Cairo", "2025-10-30T21:00Z"),
    ("Pacific/Apia", "2020-09-26T14:00Z"),  # the last ones there
    ("Pacific/Apia", "2021-04-03T14:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),  # over a day that never was
    ("America/St_Johns", "2010-11-07T02:31Z"),  # from a Sunday back to Saturday
]

WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def seconds_of(text: str) -> int:
    """The instant that a text names."""
    return int(datetime.fromisoformat(text).timestamp())


def rng_of(seed: str) -> Random:
    """The same samples each time."""
    return Random(seed)  # noqa: S311 - samples, not secrets


@cache
def spans(name: str, year: int) -> list[list[tuple[int, datetime]]]:
    """Three days minute by minute round each change, and round some other days."""
    zone, start_s = ZoneInfo(name), int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    rng = rng_of(name)
    middles = changes(zone, start_s, 400)
    middles += [start_s + rng.randrange(400) * DAY_S for _ in range(3)]
    return [
        [
            (at_s, wall_at(zone, at_s))
            for at_s in range(middle - 3 * DAY_S // 2, middle + 3 * DAY_S // 2, 60)
        ]
        for middle in middles
    ]


def wall_at(zone: ZoneInfo, at_s: int) -> datetime:
    """What the clock on the wall shows."""
    return datetime.fromtimestamp(at_s, zone).replace(tzinfo=None, fold=0)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an expression and the numbers it stands for."""

    text: str
    numbers: frozenset[int]

    @property
    def is_star(self) -> bool:
        return self.text.startswith("*")


@dataclass(frozen=True, slots=True)
class Spec:
    """An expression made of fields, so that no parser is needed to know what it means."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    weekday: Field

    @property
    def text(self) -> str:
        five = f"{self.minute.text} {self.hour.text} {self.day.text} * {self.weekday.text}"
        return five if self.second.text == "0" else f"{self.second.text} {five}"

    @property
    def is_fixed(self) -> bool:
        return not self.minute.is_star and not self.hour.is_star

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self.second.numbers
            and wall.minute in self.minute.numbers
            and wall.hour in self.hour.numbers
            and self._has_day(wall.date())
        )

    def _has_day(self, day: date) -> bool:
        by_number = day.day in self.day.numbers or (
            self.day.text == "L" and day.day == calendar.monthrange(day.year, day.month)[1]
        )
        by_name = day.isoweekday() % 7 in self.weekday.numbers
        if "#" in self.weekday.text:
            by_name = by_name and (day.day - 1) // 7 + 1 == int(self.weekday.text[-1])
        if self.day.is_star or self.weekday.is_star:
            return by_number and by_name
        return by_number or by_name


def fires(spec: Spec, walls: list[tuple[int, datetime]], step: timedelta) -> list[int]:
    """What the daemon fires, in seconds, looking at the clock once a step.

    A rule with a star just follows the clock. For the others it remembers how far the clock has
    come: minutes that were jumped over are made up for at once, those shown again are left out.
    """
    if not spec.is_fixed:
        return [at_s for at_s, wall in walls if spec.matches(wall)]
    found: list[int] = []
    come = walls[0][1] - step
    for at_s, wall in walls:
        passed = [come + step * n for n in range(1, (wall - come) // step + 1)]
        if any(spec.matches(each) for each in passed):
            found.append(at_s)
        come = max(come, wall)
    return found


def changes(zone: ZoneInfo, start_s: int, days: int) -> list[int]:
    """The hours, in seconds, in which the clock is set."""
    hours = range(start_s, start_s + days * DAY_S, 3600)
    offsets = [datetime.fromtimestamp(at_s, zone).utcoffset() for at_s in hours]
    return [
        at_s for at_s, now, then in zip(hours, offsets, offsets[1:], strict=False) if now != then
    ]


def random_spec(rng: Random) -> Spec:
    """Any expression of 5 fields, mostly about the hours in which clocks are set."""
    day = rng.choice([_star(1, 31), _star(1, 31), _one(rng, 1, 31), Field("L", frozenset())])
    weekday = rng.choice([_star(0, 6), _star(0, 6), *_weekdays(rng)])
    return Spec(
        Field("0", frozenset({0})),
        rng.choice(list(_numbers(rng, 0, 59))),
        rng.choice([*_numbers(rng, 0, 23), _span(0, 3), _span(1, 2), _one(rng, 0, 3)]),
        day,
        weekday,
    )


def _numbers(rng: Random, low: int, high: int) -> Iterator[Field]:
    step = rng.choice([2, 5, 7, 20])
    start = rng.randint(low, high // 2)
    end = rng.randint(start, high)
    several = sorted({rng.randint(low, high) for _ in range(3)})
    yield _star(low, high)
    yield Field(f"*/{step}", frozenset(range(low, high + 1, step)))
    yield Field(f"{start}-{end}/{step}", frozenset(range(start, end + 1, step)))
    yield Field(",".join(map(str, several)), frozenset(several))
    yield _one(rng, low, high)
    yield _span(start, end)


def _weekdays(rng: Random) -> Iterator[Field]:
    number = rng.randrange(7)
    yield Field(WEEKDAYS[number], frozenset({number}))
    yield Field("1-5", frozenset(range(1, 6)))
    yield Field("5-7", frozenset({5, 6, 0}))
    yield Field(f"{WEEKDAYS[number]}#{rng.randint(1, 5)}", frozenset({number}))


def _star(low: int, high: int) -> Field:
    return Field("*", frozenset(range(low, high + 1)))


def _one(rng: Random, low: int, high: int) -> Field:
    number = rng.randint(low, high)
    return Field(str(number), frozenset({number}))


def _span(low: int, high: int) -> Field:
    return Field(f"{low}-{high}", frozenset(range(low, high + 1)))
