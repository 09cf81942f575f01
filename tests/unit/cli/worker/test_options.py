"""The options of `tampu worker` as they are typed."""

import pytest

from tampu import OptionError
from tampu.cli.worker.options import parse_size, parse_slots


def test_a_queue_can_have_a_concurrency() -> None:
    assert parse_slots(["mail=50", "rest"]) == {"mail": 50, "rest": None}


@pytest.mark.parametrize(
    "wrong", [["=5"], ["a="], ["a=x"], ["a=0"], ["a=-1"], ["a=100001"], ["a=1", "a"]]
)
def test_a_wrong_queue_is_an_error(wrong: list[str]) -> None:
    with pytest.raises(OptionError, match="Invalid queue"):
        parse_slots(wrong)


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
    assert parse_size("max_rss", typed) == size


@pytest.mark.parametrize("wrong", ["", "MB", "-5MB", "0", "1e9", "5 bytes", "5Mo"])
def test_a_wrong_size_is_an_error(wrong: str) -> None:
    with pytest.raises(OptionError, match="expected a size such as 512MB"):
        parse_size("max_rss", wrong)
