import re
from unittest.mock import patch

import pytest

from tampu.util import ids
from tampu.util.clock import freeze_clock
from tampu.util.ids import new_id, new_ids, time_of_id

NOW_MS = 1_794_725_043_642
OURS = "01M7EZ5QDT00W4AB2GNQWWWXVM"


def test_an_id_is_a_ulid_with_its_time() -> None:
    made = new_id(NOW_MS)
    assert re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", made)
    letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    stamp = 0
    for letter in made[:10]:
        stamp = stamp * 32 + letters.index(letter)
    assert stamp == NOW_MS


def test_the_pair_after_the_time_is_kept_for_a_partition() -> None:
    assert {each[10:12] for each in (new_id(NOW_MS), *new_ids(5000, NOW_MS))} == {"00"}


@pytest.mark.parametrize("count", [0, 1, 2, 1023, 1024, 1025, 5000])
def test_the_ids_of_a_batch_are_distinct_and_ascending(count: int) -> None:
    made = new_ids(count, NOW_MS)
    assert len(made) == count
    assert len(set(made)) == count
    assert made == sorted(made)
    assert {len(each) for each in made} <= {26}


def test_a_later_batch_sorts_after_an_earlier_one() -> None:
    assert new_ids(100, NOW_MS)[-1] < new_ids(100, NOW_MS + 1)[0]


def test_batches_of_the_same_millisecond_share_no_id() -> None:
    made = [each for _ in range(200) for each in new_ids(50, NOW_MS)]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("drawn", [b"\xff" * 9, b"\x00" * 9, b"\x00" * 4 + b"\x00\x00\x00\x07\xff"])
def test_the_counter_never_overflows(drawn: bytes) -> None:
    with patch.object(ids, "urandom", return_value=drawn):
        made = new_ids(3000, NOW_MS)
    assert made == sorted(made)
    assert len({each[:18] for each in made}) == 1
    assert len(set(made)) == 3000


@pytest.mark.parametrize("made_ms", [0, 1, NOW_MS, 2**48 - 1])
def test_the_time_of_an_id_can_be_read(made_ms: int) -> None:
    assert time_of_id(new_id(made_ms)) == made_ms
    assert {time_of_id(each) for each in new_ids(100, made_ms)} == {made_ms}


@pytest.mark.parametrize(
    "chosen",
    [
        "",
        "order:17",
        OURS.lower(),
        OURS[:-1],
        OURS + "0",
        "I" + OURS[1:],  # not a letter of ours
        "\u0665" * 26,
    ],
)
def test_an_id_that_a_user_chose_has_no_time(chosen: str) -> None:
    assert time_of_id(chosen) is None


def test_while_the_clock_stands_still_ids_are_in_the_order_in_which_they_are_made() -> None:
    freeze_clock(NOW_MS)
    try:
        made = [new_id(NOW_MS), *new_ids(1500, NOW_MS), new_id(NOW_MS), *new_ids(2, NOW_MS)]
    finally:
        freeze_clock(None)
    assert made == sorted(set(made))
