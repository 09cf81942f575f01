"""Celery's schedules, and the rules of tampu that they become."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeAlias

from tampu.compat.celery.exceptions import NotSupported
from tampu.timing import Cron, Every, Rule, TimeWindow

__all__ = ["crontab", "schedule"]

Field: TypeAlias = int | str | Iterable[int]
_NAMES: Final = {
    **{each: each[:3] for each in ("monday", "tuesday", "wednesday", "thursday", "friday")},
    **{each: each[:3] for each in ("saturday", "sunday", "january", "february", "march", "april")},
    **{each: each[:3] for each in ("june", "july", "august", "september", "october")},
    **{each: each[:3] for each in ("november", "december")},
}
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class Placed:
    """A rule, and the days of the week that its instants must also be on."""

    rule: Rule
    window: TimeWindow | None = None


class BaseSchedule:
    """When a task of `beat_schedule` runs."""

    def place(self, zone: str) -> Placed:
        """The same as a rule of tampu, in a time zone."""
        raise NotImplementedError


class Schedule(BaseSchedule):
    """A fixed interval, in seconds or as a timedelta."""

    def __init__(
        self,
        run_every: float | timedelta | None = None,
        relative: bool = False,
        nowfun: object = None,
        app: object = None,
    ) -> None:
        _refuse_clock(nowfun, app)
        if relative:
            advice = "a schedule follows a fixed grid; use crontab for times of day"
            raise NotSupported("schedule(relative=True)", advice)
        self.run_every = (
            run_every if isinstance(run_every, timedelta) else timedelta(0, run_every or 0)
        )

    def __repr__(self) -> str:
        return f"<freq: {self.run_every}>"

    def place(self, zone: str) -> Placed:
        """The interval; it knows no time zone."""
        del zone
        return Placed(Every(self.run_every))


class Crontab(BaseSchedule):
    """Times of day, by the setting `timezone`. All of its fields must match, as in Celery."""

    def __init__(
        self,
        minute: Field = "*",
        hour: Field = "*",
        day_of_week: Field = "*",
        day_of_month: Field = "*",
        month_of_year: Field = "*",
        nowfun: object = None,
        app: object = None,
    ) -> None:
        _refuse_clock(nowfun, app)
        self._minute, self._hour = _text(minute), _text(hour)
        self._day_of_week, self._day_of_month = _text(day_of_week), _text(day_of_month)
        self._month_of_year = _text(month_of_year)
        self.place("UTC")  # refuses what can never match

    @classmethod
    def from_string(cls, crontab: str) -> "Crontab":
        """From an expression with five fields, as in a crontab file."""
        minute, hour, day_of_month, month, day_of_week = crontab.split()
        return cls(minute, hour, day_of_week, day_of_month, month)

    def __repr__(self) -> str:
        return f"<crontab: {self._expression(self._day_of_week)} (m/h/dM/MY/d)>"

    def place(self, zone: str) -> Placed:
        """The cron rule. If both days are restricted, the weekdays become a window: both count."""
        week, month = self._day_of_week, self._day_of_month
        if "*" in (week, month):
            return Placed(Cron(self._expression(week), tz=zone))
        window = TimeWindow(tz=zone, days=_weekdays(week))
        return Placed(Cron(self._expression("*"), tz=zone), window)

    def _expression(self, day_of_week: str) -> str:
        days = f"{self._day_of_month} {self._month_of_year} {day_of_week}"
        return f"{self._minute} {self._hour} {days}"


def _text(field: Any) -> str:
    if isinstance(field, str):
        text = field.lower().replace(" ", "")
        for name, short in _NAMES.items():
            text = text.replace(name, short)
        return text
    return ",".join(map(str, [field] if isinstance(field, int) else sorted(field)))


def _weekdays(field: str) -> list[str]:
    """The days that a field of the week names: "mon-fri", "1,3", "*/2"."""
    found: list[str] = []
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = 0 if span == "*" else _weekday(first)
        end = 6 if span == "*" else _weekday(last or first)
        days = range(start, end + 1) if start <= end else [*range(start, 7), *range(end + 1)]
        found += [_DAYS[day] for day in days[:: int(step or 1)]]
    return list(dict.fromkeys(found))


def _weekday(text: str) -> int:
    return int(text) % 7 if text.isdigit() else _DAYS.index(text)


def _refuse_clock(nowfun: object, app: object) -> None:
    if nowfun is not None or app is not None:
        advice = "the server's clock and the setting timezone decide; leave out nowfun and app"
        raise NotSupported("a clock of a schedule", advice)


def rule_of(given: object) -> BaseSchedule:
    """The schedule of an entry: a number of seconds, a timedelta, `crontab` or `schedule`."""
    if isinstance(given, BaseSchedule):
        return given
    if isinstance(given, int | float | timedelta):
        return Schedule(given)
    advice = "give crontab(...), a timedelta, or a number of seconds"
    raise NotSupported(f"a schedule of type {type(given).__name__}", advice)


crontab = Crontab
schedule = Schedule


def __getattr__(name: str) -> NoReturn:
    if name in {"solar", "remote_rrule"}:
        advice = "compute the instants and give them to @app.tampu.schedule(At([...]))"
        raise NotSupported(name, advice)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
