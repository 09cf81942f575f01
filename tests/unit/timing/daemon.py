"""Models to test rules against, such as a cron daemon that checks the clock each minute."""

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from random import Random
from zoneinfo import ZoneInfo

from tampu.timing import Rule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_S = 86_400

YEARS = [  # 400 days of each
    ("UTC", 2026),
    ("Europe/Berlin", 2026),
    ("America/New_York", 2026),
    ("Australia/Lord_Howe", 2026),  # changes by half an hour
    ("Africa/Casablanca", 2026),  # sets the clock back for Ramadan
    ("America/Havana", 2026),  # changes at midnight
    ("Pacific/Apia", 2011),  # skipped a day
    ("Asia/Kathmandu", 2026),  # 05:45 ahead
]

CLOCK_CHANGES = [  # instants at which the clock is set forwards or back
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("America/New_York", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-11-01T06:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),  # half an hour
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),  # at midnight; the last changes there
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("Africa/Cairo", "2025-04-24T22:00Z"),  # at midnight
    ("Africa/Cairo", "2025-10-30T21:00Z"),
    ("Pacific/Apia", "2020-09-26T14:00Z"),  # the last changes there
    ("Pacific/Apia", "2021-04-03T14:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),  # skips a day
    ("America/St_Johns", "2010-11-07T02:31Z"),  # from a Sunday back to Saturday
]

WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class CountingRule(Rule):
    """Another rule that counts how often it is asked."""

    def __init__(self, rule: Rule, calls: list[str] | None = None) -> None:
        self.rule = rule
        self.calls = [] if calls is None else calls

    def next_ms(self, after_ms: int) -> int | None:
        self.calls.append("next_ms")
        return self.rule.next_ms(after_ms)

    def previous_ms(self, before_ms: int) -> int | None:
        self.calls.append("previous_ms")
        return self.rule.previous_ms(before_ms)

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        self.calls.append("count_between")
        return self.rule.count_between(after_ms, upto_ms)

    def explain(self) -> str:
        return self.rule.explain()

    def with_anchor(self, at_ms: int) -> "CountingRule":
        return CountingRule(self.rule.with_anchor(at_ms), self.calls)


def parse_s(text: str) -> int:
    """The instant of an ISO text, in seconds."""
    return int(datetime.fromisoformat(text).timestamp())


def make_rng(seed: str) -> Random:
    """A generator that gives the same samples each time."""
    return Random(seed)  # noqa: S311 - samples, not secrets


@cache
def day_spans(name: str, year: int) -> list[list[tuple[int, datetime]]]:
    """Three days, minute by minute, around each clock change and around some other days."""
    zone, start_s = ZoneInfo(name), int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    rng = make_rng(name)
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
    """The wall time of an instant."""
    return datetime.fromtimestamp(at_s, zone).replace(tzinfo=None, fold=0)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an expression, and the numbers that it matches."""

    text: str
    numbers: frozenset[int]

    @property
    def is_star(self) -> bool:
        return self.text.startswith("*")


@dataclass(frozen=True, slots=True)
class Spec:
    """An expression made from fields, so that no parser is needed to match it."""

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
    """The fires of a daemon, in seconds, if it checks the clock once per step.

    A rule with a star follows the clock. For other rules, the daemon remembers the latest wall time
    that it has handled: skipped minutes fire at once, and repeated minutes do not fire again.
    """
    if not spec.is_fixed:
        return [at_s for at_s, wall in walls if spec.matches(wall)]
    found: list[int] = []
    handled = walls[0][1] - step
    for at_s, wall in walls:
        new = [handled + step * n for n in range(1, (wall - handled) // step + 1)]
        if any(spec.matches(each) for each in new):
            found.append(at_s)
        handled = max(handled, wall)
    return found


def changes(zone: ZoneInfo, start_s: int, days: int) -> list[int]:
    """The hours, in seconds, in which the clock changes."""
    hours = range(start_s, start_s + days * DAY_S, 3600)
    offsets = [datetime.fromtimestamp(at_s, zone).utcoffset() for at_s in hours]
    return [
        at_s for at_s, now, then in zip(hours, offsets, offsets[1:], strict=False) if now != then
    ]


def random_spec(rng: Random) -> Spec:
    """Any expression of 5 fields, mostly in the hours in which clocks change."""
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
