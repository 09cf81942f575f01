"""Cron expressions, their zones, and clock changes."""

import pickle
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.timing import Cron, zones
from tampu.timing import cron as cron_module
from tampu.timing.expression import MAX_LENGTH
from tampu.timing.zones import ClockChange

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


def _next(expression: str, n: int = 1, tz: str = "UTC", after: datetime = NEW_YEAR) -> list[str]:
    """The next instants, as wall times of the zone."""
    rule = Cron(expression, tz=tz)
    zone = None if tz == "UTC" else ZoneInfo(tz)
    return [at.astimezone(zone or UTC).isoformat(" ") for at in rule.next_n(n, after)]


def _days(expression: str, n: int) -> list[str]:
    return [text[5:10] for text in _next(f"0 0 {expression}", n)]


class TestDialect:
    @pytest.mark.parametrize(
        ("expression", "days"),
        [
            ("15 * *", ["01-15", "02-15"]),
            ("L * *", ["01-31", "02-28", "03-31"]),
            ("LW * *", ["01-29", "02-26", "03-31"]),
            ("15W * *", ["01-15", "02-15", "03-15", "04-15", "05-14", "06-15"]),
            ("16W * *", ["01-15", "02-16", "03-16", "04-16", "05-17", "06-16"]),
            ("1W * *", ["02-01", "03-01", "04-01", "05-03", "06-01"]),
            ("31W * *", ["01-29", "03-31", "05-31", "07-30", "08-31", "10-29"]),
            ("28w 2 *", ["02-26", "02-28"]),
            ("1,15W,LW * *", ["01-15", "01-29", "02-01"]),
            ("15W * MON", ["01-04", "01-11", "01-15"]),  # either
            ("1,L * *", ["01-31", "02-01", "02-28"]),
            ("* * FRI#2", ["01-08", "02-12"]),
            ("* * 5#5", ["01-29", "04-30"]),
            ("* * 5L", ["01-29", "02-26"]),
            ("* * FRIL", ["01-29", "02-26"]),
            ("* * fril,monl", ["01-25", "01-29", "02-22"]),
            ("* * 0", ["01-03", "01-10"]),
            ("* * 7", ["01-03", "01-10"]),
            ("* * sun", ["01-03", "01-10"]),
            ("* * 5-7", ["01-02", "01-03", "01-08"]),
            ("? * MON", ["01-04", "01-11"]),
            ("13 * ?", ["01-13", "02-13"]),
            ("13 * FRI", ["01-08", "01-13", "01-15"]),  # either
            ("*/2 * MON", ["01-11", "01-25", "02-01"]),  # both
            ("* feb,Dec *", ["02-01", "02-02"]),
            ("29 2 *", ["02-29", "02-29"]),
            ("30 2 1", ["02-01", "02-08"]),  # there is no 30th of February, but there are Mondays
            ("9-9/2 * *", ["01-09", "02-09"]),
            ("9/10 * *", ["01-09", "01-19", "01-29"]),
            ("5-20/7 * *", ["01-05", "01-12", "01-19"]),
        ],
    )
    def test_days_of_month_and_week(self, expression: str, days: list[str]) -> None:
        assert _days(expression, len(days)) == days

    @pytest.mark.parametrize(
        ("name", "first"),
        [
            ("@yearly", "2028-01-01 00:00"),
            ("@annually", "2028-01-01 00:00"),
            ("@monthly", "2027-02-01 00:00"),
            ("@weekly", "2027-01-03 00:00"),
            ("@daily", "2027-01-02 00:00"),
            ("@midnight", "2027-01-02 00:00"),
            ("@hourly", "2027-01-01 01:00"),
            (" @Hourly ", "2027-01-01 01:00"),
        ],
    )
    def test_nicknames(self, name: str, first: str) -> None:
        assert _next(name) == [f"{first}:00+00:00"]

    def test_six_fields_start_with_seconds(self) -> None:
        assert _next("*/25 1 * * * *", 4) == [
            "2027-01-01 00:01:00+00:00",
            "2027-01-01 00:01:25+00:00",
            "2027-01-01 00:01:50+00:00",
            "2027-01-01 01:01:00+00:00",
        ]

    def test_instants_are_whole_seconds(self) -> None:
        rule = Cron("* * * * * *")
        assert rule.next_ms(1_800_000_000_999) == 1_800_000_001_000
        assert rule.next_ms(1_800_000_001_000) == 1_800_000_002_000
        assert rule.previous_ms(1_800_000_001_001) == 1_800_000_001_000
        assert rule.previous_ms(1_800_000_001_000) == 1_800_000_000_000

    def test_a_29th_of_february_on_a_sunday_is_found_forty_years_ahead(self) -> None:
        after = datetime(2088, 3, 1, tzinfo=UTC)
        assert _next("0 0 29 2 */7", after=after) == ["2128-02-29 00:00:00+00:00"]

    def test_there_is_no_instant_outside_the_calendar(self) -> None:
        rule = Cron("0 0 1 1 *", tz="Europe/Berlin")
        assert rule.next(datetime(9999, 6, 1, tzinfo=UTC)) is None
        assert rule.previous(datetime(1, 1, 1, tzinfo=UTC)) is None


class TestZones:
    @pytest.mark.parametrize(
        ("tz", "offset"),
        [
            ("UTC", 0),
            ("utc", 0),
            ("Z", 0),
            ("", 0),
            (" UTC ", 0),
            ("GMT", 0),
            ("+05:30", 330),
            ("+0530", 330),
            ("+5:30", 330),
            ("-08:00", -480),
            ("-0800", -480),
            ("+23:59", 1439),
            ("Etc/GMT+5", -300),
            ("EST", -300),
            ("US/Eastern", -300),
            ("Asia/Kathmandu", 345),
        ],
    )
    def test_a_zone_is_a_name_or_an_offset(self, tz: str, offset: int) -> None:
        found = Cron("0 12 1 2 *", tz=tz).next(NEW_YEAR)
        assert found == datetime(2027, 2, 1, 12, tzinfo=UTC) - timedelta(minutes=offset)

    @pytest.mark.parametrize(
        "tz",
        [
            "z",
            "+05",
            "+24:00",
            "+05:60",
            "0530",
            "europe/berlin",
            "Europe",
            "Mars/Olympus",
            "../etc/passwd",
            "/etc/localtime",
            "localtime",
            "A" * 5000,
            "Europe/Berlin\0",
            "\u0660",
            5,
            UTC,
        ],
    )
    def test_an_invalid_zone_is_refused_by_name(self, tz: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid tz ") as refused:
            Cron("* * * * *", tz=tz)  # type: ignore[arg-type]
        assert refused.value.option == "tz"


class TestClockChanges:
    """New York: 2026-03-08 02:00 to 03:00 is skipped, 2026-11-01 01:00 to 02:00 occurs twice."""

    SPRING = datetime(2026, 3, 8, 5, tzinfo=UTC)  # local midnight
    AUTUMN = datetime(2026, 11, 1, 4, tzinfo=UTC)

    def _wall_times(self, expression: str, day: datetime, hours: int) -> list[str]:
        rule = Cron(expression, tz="America/New_York")
        count = rule.count_between(
            int(day.timestamp() * 1000) - 1, int(day.timestamp() * 1000) + hours * 3_600_000 - 1
        )
        before = day - timedelta(milliseconds=1)
        return [text[11:] for text in _next(expression, count, "America/New_York", before)]

    @pytest.mark.parametrize(
        ("expression", "spring"),
        [
            ("30 2 * * *", ["03:00:00-04:00"]),
            ("0 30 2 * * *", ["03:00:00-04:00"]),
            ("15,45 2 * * *", ["03:00:00-04:00"]),
            ("30 1,2 * * *", ["01:30:00-05:00", "03:00:00-04:00"]),
            ("0 2,3 * * *", ["03:00:00-04:00"]),
            ("*/30 2 * * *", []),
            (
                "*/30 1-3 * * *",
                ["01:00:00-05:00", "01:30:00-05:00", "03:00:00-04:00", "03:30:00-04:00"],
            ),
        ],
    )
    def test_a_time_that_is_skipped(self, expression: str, spring: list[str]) -> None:
        assert self._wall_times(expression, self.SPRING, 23) == spring

    @pytest.mark.parametrize(
        ("expression", "autumn"),
        [
            ("30 1 * * *", ["01:30:00-04:00"]),
            ("0 30 1 * * *", ["01:30:00-04:00"]),
            ("0,30 1 * * *", ["01:00:00-04:00", "01:30:00-04:00"]),
            (
                "*/30 1 * * *",
                ["01:00:00-04:00", "01:30:00-04:00", "01:00:00-05:00", "01:30:00-05:00"],
            ),
        ],
    )
    def test_a_time_that_occurs_twice(self, expression: str, autumn: list[str]) -> None:
        assert self._wall_times(expression, self.AUTUMN, 25) == autumn

    @pytest.mark.parametrize(("expression", "an_hour"), [("0 * * * *", 1), ("*/20 * * * *", 3)])
    def test_a_rule_with_a_star_follows_elapsed_time(self, expression: str, an_hour: int) -> None:
        assert len(self._wall_times(expression, self.SPRING, 23)) == 23 * an_hour
        assert len(self._wall_times(expression, self.AUTUMN, 25)) == 25 * an_hour

    def test_a_fixed_time_does_not_fire_in_the_second_pass(self) -> None:
        rule, second = Cron("30 1 * * *", tz="America/New_York"), self.AUTUMN + timedelta(hours=2.2)
        assert rule.next(second) == self.AUTUMN + timedelta(hours=26.5)
        assert rule.previous(second) == self.AUTUMN + timedelta(hours=1.5)


class TestBadInput:
    @pytest.mark.parametrize(
        ("expression", "reason"),
        [
            ("", "number of fields"),
            ("* * * *", "number of fields"),
            ("* * * * * * * *", "number of fields"),
            ("@reboot", "number of fields"),
            ("@every 5m", "number of fields"),
            ("60 * * * *", "bad minute"),
            ("*/0 * * * *", "bad minute"),
            ("9-9/0 * * * *", "bad minute"),
            ("1,2, * * * *", "bad minute"),
            ("-1 * * * *", "bad minute"),
            ("60 * * * * *", "bad second"),
            ("0 24 * * *", "bad hour"),
            ("0 22-2 * * *", "bad hour"),
            ("0 0 0 * *", "bad day-of-month"),
            ("0 0 0W * *", "bad day-of-month"),
            ("0 0 32W * *", "bad day-of-month"),
            ("0 0 W * *", "bad day-of-month"),
            ("0 0 1-15W * *", "bad day-of-month"),
            ("0 0 30W 2 *", "never matches"),
            ("0 0 0 1 1 * 27", "bad year"),
            ("0 0 0 1 1 * 1969", "bad year"),
            ("0 0 0 1 1 * 2030-2027", "bad year"),
            ("0 0 0 1 1 * 2030/0", "bad year"),
            ("0 0 0 1 1 * 2030,", "bad year"),
            ("0 0 0 1 1 * L", "bad year"),
            ("0 0 0 29 2 * 2027/2", "never matches"),
            ("0 0 L-2 * *", "bad day-of-month"),
            ("0 0 31 4,6 *", "bad day-of-month"),
            ("0 0 30 2 *", "bad day-of-month"),
            ("0 0 1 13 *", "bad month"),
            ("0 0 1 JANUARY *", "bad month"),
            ("0 0 * * 8", "bad day-of-week"),
            ("0 0 * * FRI-MON", "bad day-of-week"),
            ("0 0 * * FRI#6", "bad day-of-week"),
            ("0 0 13 * +FRI", "bad day-of-week"),
            ("0 0 * * L", "bad day-of-week"),
            ("* * */20 * 1L", "never matches"),
            ("\u0661 * * * *", "5 fields"),
            ("0 0 * * FR\u0131", "5 fields"),
            (b"* * * * *", "5 fields"),
            (None, "5 fields"),
            ("0," * 200 + "0 * * * *", "at most 256 characters"),
        ],
    )
    def test_an_invalid_expression_is_refused_with_the_name_of_its_field(
        self, expression: str, reason: str
    ) -> None:
        with pytest.raises(OptionError, match=reason) as refused:
            Cron(expression)
        assert refused.value.option == "expression"

    def test_a_rule_whose_times_are_always_skipped_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Cron("*/5 2 * 3 0#2", tz="UTC")
        searched: list[datetime] = []

        def find_change(zone: tzinfo, wall: datetime) -> ClockChange | None:
            searched.append(wall)
            return zones.find_change(zone, wall)

        monkeypatch.setattr(cron_module, "find_change", find_change)
        with pytest.raises(OptionError, match="never matches"):
            Cron("*/5 2 * 3 0#2", tz="America/New_York")
        assert max(searched).year < 2100, "it searched to the end of the calendar"

    def test_the_longest_allowed_expression_is_accepted(self) -> None:
        longest = ("0," * 123 + "0 * * * *").ljust(MAX_LENGTH)
        assert Cron(longest).text == longest
        with pytest.raises(OptionError, match="at most"):
            Cron(longest + " ")


PIECES = st.sampled_from(
    ["*", "?", "L", "LW", "#", "-", "/", ",", "1", "7", "31", "99", "FRI", "@"]
)
FIELDS = st.one_of(st.just("*"), st.lists(PIECES, min_size=1, max_size=4).map("".join))


@given(fields=st.lists(FIELDS, min_size=1, max_size=7))
def test_any_text_is_a_rule_with_an_explanation_or_is_refused(fields: list[str]) -> None:
    try:
        rule = Cron(" ".join(fields), tz="Australia/Lord_Howe")
    except OptionError as refused:
        assert refused.option == "expression"
        return
    assert rule.explain()
    found = rule.next(NEW_YEAR)
    assert found is not None
    assert rule.previous(found + timedelta(milliseconds=1)) == found


class TestValues:
    def test_text_and_zone_are_kept_as_given(self) -> None:
        rule = Cron(" 0  9 * * mon ", tz="utc")
        assert (rule.text, rule.tz) == (" 0  9 * * mon ", "utc")
        assert repr(rule) == "Cron(' 0  9 * * mon ', tz='utc')"

    def test_rules_with_the_same_text_are_equal(self) -> None:
        assert Cron("0 9 * * *") == Cron("0 9 * * *", tz="UTC")
        assert hash(Cron("0 9 * * *")) == hash(Cron("0 9 * * *"))
        assert Cron("0 9 * * *") != Cron("0 9 * * *", tz="Z")
        assert Cron("0 9 * * *") != Cron("0  9 * * *")

    def test_a_rule_can_be_pickled(self) -> None:
        rule = Cron("0 9 * * *", tz="Europe/Berlin")
        copy = pickle.loads(pickle.dumps(rule))  # noqa: S301
        assert copy == rule
        assert copy.next(NEW_YEAR) == rule.next(NEW_YEAR)

    def test_a_rule_is_immutable(self) -> None:
        with pytest.raises(AttributeError):
            Cron("* * * * *").text = "x"  # type: ignore[misc]

    @pytest.mark.parametrize(
        ("expression", "words"),
        [
            ("* * * * *", "Every minute"),
            ("* * * * * *", "Every second"),
            ("*/5 * * * *", "Every fifth minute of every hour"),
            ("*/15 * * * * *", "Every 15th second of every minute"),
            ("@hourly", "At the start of every hour"),
            ("@daily", "At 00:00 every day"),
            ("@weekly", "At 00:00 on Sunday"),
            ("@yearly", "At 00:00 on January 1"),
            ("0 9 * * 1-5", "At 09:00 on Monday through Friday"),
            ("30 0 9 * * *", "At 09:00:30 every day"),
            (
                "*/5 9-17 * * 1-5",
                "Every fifth minute from 09:00 through 17:59 on Monday through Friday",
            ),
            ("0 0 L * ?", "At 00:00 on the last day of every month"),
            ("0 0 LW * *", "At 00:00 on the last weekday of every month"),
            ("0 0 15W * *", "At 00:00 on the weekday nearest to day 15 of every month"),
            ("0 0 9 * * * 2030", "At 09:00 every day in 2030"),
            ("0 0 9 * * * 2030-2032", "At 09:00 every day in 2030 through 2032"),
            ("0 0 9 * * * 2030/3", "At 09:00 every day in 2030, 2033, 2036 and later years"),
            ("0 0 9 * * * *", "At 09:00 every day"),
            ("0 0 * * FRI#2", "At 00:00 on the second Friday of the month"),
            ("0 0 * * fril", "At 00:00 on the last Friday of the month"),
            ("0 0 13 * FRI", "At 00:00 on the 13th day of month and on Friday"),
            ("0 0 */2 * MON", "At 00:00 on every second day of month if it's on Monday"),
            ("0 9,17 * JAN *", "At 09:00 and 17:00 every day in January"),
        ],
    )
    def test_explanation(self, expression: str, words: str) -> None:
        assert Cron(expression).explain() == f"{words} (UTC)"

    def test_the_explanation_includes_the_zone(self) -> None:
        assert Cron("@daily", tz="Europe/Berlin").explain().endswith(" (Europe/Berlin)")
        assert Cron("@daily", tz="").explain().endswith(" (UTC)")
