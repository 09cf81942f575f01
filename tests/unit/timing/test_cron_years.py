"""Cron rules with a seventh field: the years."""

from datetime import UTC, datetime

import pytest

from tampu.timing import Cron


class TestYears:
    @pytest.mark.parametrize(
        ("years", "found"),
        [
            ("2030", ["2030"]),
            ("2030,2028", ["2028", "2030"]),
            ("2030-2033", ["2030", "2031", "2032", "2033"]),
            ("2030-2034/2", ["2030", "2032", "2034"]),
            ("2070/2", ["2070", "2072", "2074", "2076", "2078"]),
            ("*", ["2028", "2029", "2030", "2031", "2032"]),
            ("?", ["2028", "2029", "2030", "2031", "2032"]),
        ],
    )
    def test_a_seventh_field_has_the_years(self, years: str, found: list[str]) -> None:
        """Asked from 2027."""
        instants = Cron(f"0 30 9 1 1 * {years}").next_n(5, datetime(2027, 6, 1, tzinfo=UTC))
        assert [f"{each:%Y}" for each in instants] == found

    def test_past_years_have_a_previous_instant_and_no_next_one(self) -> None:
        rule = Cron("0 0 12 24 12 * 2020-2021", tz="Europe/Berlin")
        now_ms = 1_800_000_000_000
        assert rule.next_ms(now_ms) is None
        previous = datetime(2021, 12, 24, 11, tzinfo=UTC)
        assert rule.previous_ms(now_ms) == previous.timestamp() * 1000
        assert rule.count_between(0, now_ms) == 2

    def test_a_year_ends_and_begins_by_the_clock_of_the_zone(self) -> None:
        rule = Cron("0 59 23 31 12 * 2030", tz="Pacific/Auckland")
        (only,) = rule.next_n(3, datetime(2027, 1, 1, tzinfo=UTC))
        assert only == datetime(2030, 12, 31, 10, 59, tzinfo=UTC)

    def test_the_29th_of_february_is_found_among_years(self) -> None:
        rule = Cron("0 0 0 29 2 * 2029-2040")
        found = rule.next_n(5, datetime(2027, 1, 1, tzinfo=UTC))
        assert [each.year for each in found] == [2032, 2036, 2040]

    @pytest.mark.parametrize("text", ["0 30 2 28W 3 * 2027-2029", "0 */20 2 31W 3,10 * 2027,2028"])
    def test_instants_agree_forwards_backwards_and_counted_when_clocks_change(
        self, text: str
    ) -> None:
        rule = Cron(text, tz="Europe/Berlin")  # its clocks change in March and October
        start, end = 1_798_761_600_000, 1_924_992_000_000  # 2027 to 2030
        forward, at = [], rule.next_ms(start)
        while at is not None and at <= end:
            forward.append(at)
            at = rule.next_ms(at)
        backward, at = [], rule.previous_ms(end + 1)
        while at is not None and at > start:
            backward.append(at)
            at = rule.previous_ms(at)
        assert forward == backward[::-1]
        assert forward
        assert rule.count_between(start, end) == len(forward)
