"""What users type becomes values, or an error that says what can be typed."""

import pytest

from tampu import OptionError
from tampu.cli.given import bytes_of, event_before, instant_of, named_values, slots_of


def test_instants_need_an_offset() -> None:
    assert instant_of("start", "2026-01-31T09:00Z").isoformat() == "2026-01-31T09:00:00+00:00"
    for wrong in ("2026-01-31T09:00", "tomorrow", ""):
        with pytest.raises(OptionError, match="takes an instant with its offset"):
            instant_of("start", wrong)


@pytest.mark.parametrize(
    ("typed", "after"), [("0", "0"), ("17-3", "17-3"), ("10s", "990000"), ("1d", "0")]
)
def test_events_begin_behind_an_id_or_so_long_ago(typed: str, after: str) -> None:
    assert event_before(typed, now_ms=1_000_000) == after


@pytest.mark.parametrize("wrong", ["$", "-5s", "1-2-3"])
def test_what_is_neither_is_an_error(wrong: str) -> None:
    with pytest.raises(OptionError, match="takes an event's id, a duration such as 10m, or 0"):
        event_before(wrong, now_ms=1_000_000)


def test_queues_may_say_how_many_runs_they_have() -> None:
    assert slots_of(["mail=50", "rest"]) == {"mail": 50, "rest": None}
    for wrong in (["=5"], ["a="], ["a=x"], ["a=0"], ["a=-1"], ["a=100001"], ["a=1", "a"]):
        with pytest.raises(OptionError, match="queue="):
            slots_of(wrong)


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("1000000", 1_000_000),
        ("5B", 5),
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("1.5GiB", 1_610_612_736),
        ("2kb", 2000),
        ("5M", 5_000_000),
        ("5Gi", 5 << 30),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes_have_units(typed: str, size: int) -> None:
    assert bytes_of("max_rss", typed) == size


@pytest.mark.parametrize("wrong", ["", "MB", "-5MB", "0", "1e9", "5 bytes", "5Mo"])
def test_what_is_no_size_is_an_error(wrong: str) -> None:
    with pytest.raises(OptionError, match="takes a size such as 512MB"):
        bytes_of("max_rss", wrong)


def test_values_are_json_if_they_can_be_and_else_text() -> None:
    given = ["a=1", "b=[1, 2]", "c=ada", 'd="1"', "e=null", "f=x=y", "g="]
    found = {"a": 1, "b": [1, 2], "c": "ada", "d": "1", "e": None, "f": "x=y", "g": ""}
    assert named_values("arg", given) == found
    for wrong in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(OptionError, match="arg="):
            named_values("arg", wrong)
