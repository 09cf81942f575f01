"""Time windows, against a walk through the minutes."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from tampu.errors import OptionError
from tampu.timing import TimeWindow
from tampu.timing.window import DAYS
from tests.effort import cases
from tests.unit.timing.daemon import (
    CLOCK_CHANGES,
    DAY_S,
    YEARS,
    day_spans,
    make_rng,
    parse_s,
    wall_at,
)

OFFICE = TimeWindow(tz="Europe/Berlin", days="mon-fri", segments=[("09:00", "17:00")])


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _ms(text: str) -> int:
    return parse_s(text) * 1000


class TestContains:
    @pytest.mark.parametrize(
        ("at", "inside"),
        [
            ("2026-11-16T08:59:59.999+01:00", False),
            ("2026-11-16T09:00:00+01:00", True),
            ("2026-11-16T16:59:59.999+01:00", True),
            ("2026-11-16T17:00:00+01:00", False),
            ("2026-11-15T12:00:00+01:00", False),  # a Sunday
            ("2026-11-16T08:30:00+00:00", True),  # 09:30 in Berlin
        ],
    )
    def test_a_segment_includes_its_start_and_excludes_its_end(
        self, at: str, *, inside: bool
    ) -> None:
        assert OFFICE.contains(_at(at)) is inside

    @pytest.mark.parametrize(
        ("at", "inside"),
        [
            ("2026-11-20T21:59:59+00:00", False),
            ("2026-11-20T22:00:00+00:00", True),  # Friday evening
            ("2026-11-21T05:59:59+00:00", True),  # still Friday's segment
            ("2026-11-21T06:00:00+00:00", False),
            ("2026-11-21T23:00:00+00:00", False),  # no segment on Saturday
            ("2026-11-20T03:00:00+00:00", False),  # no segment on Thursday
        ],
    )
    def test_a_segment_past_midnight_belongs_to_the_day_it_starts_on(
        self, at: str, *, inside: bool
    ) -> None:
        night = TimeWindow(days=["fri"], segments=[("22:00", "06:00")])
        assert night.contains(_at(at)) is inside

    def test_a_window_without_days_and_segments_is_always_open(self) -> None:
        always = TimeWindow()
        assert always.contains(_at("2026-11-15T00:00:00+00:00"))
        assert always.contains(_at("2026-11-15T23:59:59.999+00:00"))

    def test_a_day_without_segments_is_open_from_midnight_to_midnight(self) -> None:
        sunday = TimeWindow(days="sun")
        assert not sunday.contains(_at("2026-11-14T23:59:59+00:00"))
        assert sunday.contains(_at("2026-11-15T00:00:00+00:00"))
        assert sunday.contains(_at("2026-11-15T23:59:59+00:00"))
        assert not sunday.contains(_at("2026-11-16T00:00:00+00:00"))

    def test_an_hour_that_occurs_twice_is_inside_twice(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("01:00", "02:00")])
        assert window.contains(_at("2026-11-01T05:30:00+00:00"))
        assert window.contains(_at("2026-11-01T06:30:00+00:00"))
        assert not window.contains(_at("2026-11-01T07:00:00+00:00"))


class TestNextOpen:
    def test_an_open_window_opens_now(self) -> None:
        at = _at("2026-11-16T09:00:00.001+01:00")
        assert OFFICE.next_open(at) == at

    def test_the_next_opening_may_be_after_a_weekend(self) -> None:
        found = OFFICE.next_open(_at("2026-11-20T17:00:00+01:00"))
        assert found == _at("2026-11-23T09:00:00+01:00")

    def test_a_skipped_start_opens_right_after_the_gap(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("02:30", "04:00")])
        found = window.next_open(_at("2026-03-08T06:00:00+00:00"))
        assert found == _at("2026-03-08T07:00:00+00:00")

    def test_a_skipped_segment_does_not_open_that_day(self) -> None:
        window = TimeWindow(tz="America/New_York", days="sun", segments=[("02:10", "02:50")])
        found = window.next_open(_at("2026-03-08T06:00:00+00:00"))
        assert found == _at("2026-03-15T02:10:00-04:00")

    def test_a_clock_set_back_opens_a_closed_window(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("00:30", "01:30")])
        found = window.next_open(_at("2026-11-01T05:40:00+00:00"))
        assert found == _at("2026-11-01T06:00:00+00:00")

    def test_a_clock_set_back_before_midnight_repeats_yesterdays_opening(self) -> None:
        window = TimeWindow(tz="America/St_Johns", days="sat", segments=[("23:30", "24:00")])
        found = window.next_open(_at("2010-11-07T02:30:30+00:00"))  # Sunday, 00:00:30
        assert found == _at("2010-11-07T03:00:00+00:00")

    def test_there_is_no_opening_after_the_calendar(self) -> None:
        window = TimeWindow(segments=[("09:00", "10:00")])
        assert window.next_open(datetime(9999, 12, 31, 20, tzinfo=UTC)) is None
        assert window.next_open_ms(10**18) is None


class TestNextClose:
    def test_a_closed_window_is_closed_now(self) -> None:
        at = _at("2026-11-16T17:00:00.001+01:00")
        assert OFFICE.next_close(at) == at

    def test_an_open_window_closes_at_the_end_of_its_segment(self) -> None:
        found = OFFICE.next_close(_at("2026-11-16T16:59:59.999+01:00"))
        assert found == _at("2026-11-16T17:00:00+01:00")

    def test_adjacent_segments_close_at_the_end_of_the_last(self) -> None:
        window = TimeWindow(days="mon,tue", segments=[("12:00", "24:00"), ("00:00", "12:00")])
        found = window.next_close(_at("2026-11-16T03:00:00+00:00"))
        assert found == _at("2026-11-18T00:00:00+00:00")

    @pytest.mark.parametrize(
        "segments", [None, [("00:00", "24:00")], [("22:00", "10:00"), ("10:00", "22:00")]]
    )
    def test_a_window_without_closed_hours_never_closes(
        self, segments: list[tuple[str, str]] | None
    ) -> None:
        always = TimeWindow(tz="Europe/Berlin", segments=segments)
        assert always.next_close(_at("2026-10-24T03:00:00+00:00")) is None

    def test_a_skipped_end_closes_right_after_the_gap(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("01:00", "02:30")])
        found = window.next_close(_at("2026-03-08T06:00:00+00:00"))
        assert found == _at("2026-03-08T07:00:00+00:00")

    def test_skipped_closed_hours_do_not_close_it_that_day(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("02:50", "02:10")])
        found = window.next_close(_at("2026-03-08T06:00:00+00:00"))
        assert found == _at("2026-03-09T02:10:00-04:00")

    def test_a_clock_set_back_closes_an_open_window(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("01:30", "05:00")])
        found = window.next_close(_at("2026-11-01T05:40:00+00:00"))
        assert found == _at("2026-11-01T06:00:00+00:00")

    def test_a_clock_set_back_before_midnight_repeats_yesterdays_closing(self) -> None:
        window = TimeWindow(
            tz="America/St_Johns", segments=[("00:00", "00:01"), ("23:00", "23:30")]
        )
        found = window.next_close(_at("2010-11-07T02:30:30+00:00"))  # 00:00:30, soon 23:01
        assert found == _at("2010-11-07T03:00:00+00:00")

    def test_there_is_no_closing_after_the_calendar(self) -> None:
        assert TimeWindow(segments=[("09:00", "10:00")]).next_close_ms(10**18) is None


class TestClosedSince:
    def test_it_is_the_start_of_the_closed_stretch(self) -> None:
        for hour in ("2026-11-20T17:00:00+01:00", "2026-11-23T08:59:59+01:00"):
            closed_ms = OFFICE.closed_since_ms(_ms(hour))
            assert closed_ms == _ms("2026-11-20T17:00:00+01:00")

    def test_a_clock_change_may_close_a_window(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("01:30", "05:00")])
        closed_ms = window.closed_since_ms(_ms("2026-11-01T06:20:00+00:00"))
        assert closed_ms == _ms("2026-11-01T06:00:00+00:00")

    def test_a_window_that_never_closes_has_no_end(self) -> None:
        assert TimeWindow().closed_since_ms(_ms("2026-11-20T17:00:00+01:00")) is None

    def test_there_is_no_closing_before_the_calendar(self) -> None:
        assert OFFICE.closed_since_ms(-62_135_596_800_000) is None


def _model(days: Collection[int], segments: list[tuple[int, int]], wall: datetime) -> bool:
    """Open if one of yesterday's or today's segments contains the wall time."""
    midnight = wall.replace(hour=0, minute=0)
    for day in (midnight - timedelta(days=1), midnight):
        if day.weekday() in days:
            for start, end in segments:
                length = (end - start) % 1440
                opens = day + timedelta(minutes=start)
                if opens <= wall < opens + timedelta(minutes=length):
                    return True
    return False


@pytest.mark.parametrize(("name", "year"), YEARS)
def test_contains_agrees_with_a_walk_through_the_minutes(name: str, year: int) -> None:
    rng = make_rng(f"window {name}")
    for _ in range(cases(4)):
        days = rng.sample(range(7), rng.randint(1, 7))
        minutes = rng.sample(range(0, 1440, 5), 4) + rng.sample(range(0, 200, 5), 2)
        segments = list(zip(minutes[::2], minutes[1::2], strict=True))
        segments = [(start, end) for start, end in segments if start != end]
        clock = [(f"{a // 60:02}:{a % 60:02}", f"{b // 60:02}:{b % 60:02}") for a, b in segments]
        window = TimeWindow(tz=name, days=[DAYS[day] for day in days], segments=clock)
        for walls in day_spans(name, year):
            inside = [at_s for at_s, wall in walls if _model(days, segments, wall)]
            assert [at_s for at_s, _ in walls if window.contains_ms(at_s * 1000)] == inside
            for at_s, _ in rng.sample(walls, 15):
                later = [each for each in inside if each >= at_s]
                if later:
                    assert window.next_open_ms(at_s * 1000) == later[0] * 1000


@pytest.mark.parametrize(("name", "at"), CLOCK_CHANGES)
def test_openings_and_closings_agree_with_a_walk_through_the_minutes(name: str, at: str) -> None:
    rng, zone, middle_s = make_rng(f"edges {name} {at}"), ZoneInfo(name), parse_s(at)
    week = range(middle_s - 7 * DAY_S // 2, middle_s + 7 * DAY_S // 2, 60)
    walls = [wall_at(zone, at_s) for at_s in week]
    changed = walls[len(week) // 2 - 1], walls[len(week) // 2]  # before and after the change
    for _ in range(cases(6)):
        days = rng.sample(range(7), rng.randint(3, 7))
        near = [(wall.hour * 60 + wall.minute + rng.randint(-70, 70)) % 1440 for wall in changed]
        minutes = [*near, *rng.sample(range(1440), 2)]
        rng.shuffle(minutes)
        segments = [pair for pair in (minutes[:2], minutes[2:]) if pair[0] != pair[1]]
        clock = [(f"{a // 60:02}:{a % 60:02}", f"{b // 60:02}:{b % 60:02}") for a, b in segments]
        window = TimeWindow(tz=name, days=[DAYS[day] for day in days], segments=clock)
        is_open = [_model(days, [(a, b) for a, b in segments], wall) for wall in walls]
        _check_edges(window, week, is_open)


def _check_edges(window: TimeWindow, week: range, is_open: list[bool]) -> None:
    """Assert that the window finds the next edges, half a second after minutes of each stretch."""
    closed_s: int | None = None  # the start of the last closed stretch
    edges = [index for index in range(1, len(week)) if is_open[index] != is_open[index - 1]]
    for edge, after in pairwise(edges):
        for index in {edge, (edge + after) // 2, after - 1}:
            at_ms, after_ms = week[index] * 1000 + 500, week[after] * 1000
            expected = (at_ms, after_ms) if is_open[index] else (after_ms, at_ms)
            assert (window.next_open_ms(at_ms), window.next_close_ms(at_ms)) == expected
            closed_s = closed_s if is_open[index] else week[edge]
            if closed_s is not None:
                assert window.closed_since_ms(at_ms) == closed_s * 1000


class TestValues:
    def test_days_are_names_or_ranges_in_upper_or_lower_case(self) -> None:
        assert TimeWindow(days="Mon-Wed, sat").days == ("mon", "tue", "wed", "sat")
        assert TimeWindow(days={"SUN", "sat"}).days == ("sat", "sun")
        assert TimeWindow(days="fri-mon").days == ("mon", "fri", "sat", "sun")

    def test_equal_windows_compare_equal(self) -> None:
        same = TimeWindow(
            tz="Europe/Berlin",
            days=["mon", "tue", "wed", "thu", "fri"],
            segments=(("09:00", "17:00"),),
        )
        assert same == OFFICE
        assert hash(same) == hash(OFFICE)
        assert TimeWindow(days="mon") != TimeWindow(days="tue")

    def test_repr(self) -> None:
        assert repr(OFFICE) == (
            "TimeWindow(tz='Europe/Berlin', days='mon,tue,wed,thu,fri', "
            "segments=[('09:00', '17:00')])"
        )
        assert repr(TimeWindow()) == "TimeWindow(tz='UTC')"

    @pytest.mark.parametrize(
        ("window", "words"),
        [
            (TimeWindow(), "every day all day (UTC)"),
            (TimeWindow(days="sat,sun", tz=""), "sat, sun all day (UTC)"),
            (
                TimeWindow(segments=[("09:00", "12:00"), ("13:00", "24:00")], tz="+02:00"),
                "every day from 09:00 to 12:00 and from 13:00 to 24:00 (+02:00)",
            ),
        ],
    )
    def test_explanation(self, window: TimeWindow, words: str) -> None:
        assert window.explain() == words

    @pytest.mark.parametrize("days", ["", [], "monday", "mon-", "-mon", 1, [0], b"mon", [None]])
    def test_invalid_days_are_refused_by_name(self, days: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid days "):
            TimeWindow(days=days)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "segments",
        [
            [],
            "09:00-17:00",
            [("09:00", "09:00")],
            [("9:00", "17:00")],
            [("09:00", "25:00")],
            [("24:00", "06:00")],
            [("09:60", "17:00")],
            [("09:00",)],
            ["09:00"],
            [(9, 17)],
            [("\u0660\u0669:00", "17:00")],
            5,
        ],
    )
    def test_invalid_segments_are_refused_by_name(self, segments: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid segments "):
            TimeWindow(segments=segments)  # type: ignore[arg-type]

    def test_an_invalid_zone_is_refused_by_name(self) -> None:
        with pytest.raises(OptionError, match=r"^Invalid tz 'Mars/Olympus'"):
            TimeWindow(tz="Mars/Olympus")

    def test_with_zone_changes_only_a_window_without_one(self) -> None:
        window = TimeWindow(days="mon-fri", segments=[("09:00", "17:00")])
        assert window.tz == "UTC"
        assert window.with_zone("Europe/Berlin") == OFFICE
        assert window.with_zone("Europe/Berlin").with_zone("Asia/Tokyo") == OFFICE
        assert TimeWindow(tz="UTC").with_zone("Europe/Berlin").tz == "UTC"

    def test_a_naive_datetime_is_refused_by_name(self) -> None:
        naive = datetime(2026, 1, 1)  # noqa: DTZ001
        for ask in (OFFICE.contains, OFFICE.next_open, OFFICE.next_close):
            with pytest.raises(OptionError, match=r"^Invalid at "):
                ask(naive)


def test_segments_may_be_any_sequence() -> None:
    pairs: Sequence[tuple[str, str]] = (("22:00", "24:00"),)
    assert TimeWindow(segments=pairs).segments == (("22:00", "24:00"),)
