"""Numbers and times as people read them, and links."""

from datetime import UTC, datetime, timedelta

import pytest

from tampu.dashboard.page import link
from tampu.dashboard.render import (
    age_s,
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
    format_short,
    time_tag,
)

NOTHING = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, NOTHING),
        (0, "0s"),
        (-1, "0s"),
        (0.0000005, "0µs"),
        (0.00085, "850µs"),
        (0.00099999, "1ms"),
        (0.0063, "6.3ms"),
        (0.05, "50ms"),
        (0.9999, "1s"),
        (1.5, "1.5s"),
        (9.96, "10s"),
        (59.6, "1m"),
        (130, "2m10s"),
        (3600, "1h"),
        (86_400 * 3 + 4 * 3600 + 5, "3d4h"),
    ],
)
def test_lengths_of_time(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, NOTHING),
        (0, "0"),
        (0.04, "0.04"),
        (0.4, "0.4"),
        (2.0, "2"),
        (9.96, "10"),
        (950, "950"),
        (999.6, "1k"),
        (1234, "1.2k"),
        (34_000_000, "34M"),
        (5e9, "5G"),
    ],
)
def test_short_numbers(number: float | None, text: str) -> None:
    assert format_short(number) == text


def test_counts_shares_and_sizes() -> None:
    assert format_count(1_234_567) == "1\u202f234\u202f567"
    assert [format_percent(share) for share in (None, 0, 0.0004, 0.021, 0.4, 1)] == [
        NOTHING,
        "0%",
        "<0.1%",
        "2.1%",
        "40%",
        "100%",
    ]
    assert [format_bytes(size) for size in (None, 950, 1_200_000)] == [NOTHING, "950 B", "1.2 MB"]


def test_ages_are_never_negative() -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    assert age_s(None, now) is None
    assert age_s(now - timedelta(seconds=5), now) == 5
    assert age_s(now + timedelta(seconds=5), now) == 0


def test_an_instant_is_machine_readable_and_in_utc() -> None:
    at = datetime.fromisoformat("2026-01-31T10:30:00+02:00")
    assert time_tag(at) == (
        '<time datetime="2026-01-31T08:30:00.000+00:00" data-time="full">'
        "2026-01-31 08:30:00 UTC</time>"
    )
    assert ">08:30<" in time_tag(at, "clock")
    assert ">Jan 31<" in time_tag(at, "day")
    assert time_tag(None) == NOTHING


def test_links_are_relative_and_leave_out_what_is_empty() -> None:
    assert link("") == "./"
    assert link("", span="24h") == "./?span=24h"
    assert link("queue", name="a/b&c ?", span=None, cursor="") == "queue?name=a%2Fb%26c+%3F"
    assert link("queue", name="\ud800") == "queue?name=%ED%A0%80"
