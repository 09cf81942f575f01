from datetime import timedelta

import pytest

from tampu.errors import OptionError
from tampu.util.clock import (
    MAX_MS,
    Duration,
    freeze_clock,
    frozen_ms,
    now_ms,
    to_ms,
    to_positive_ms,
    to_s,
)


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        (0, 0),
        (1, 1000),
        (1.5, 1500),
        (0.0004, 0),
        (0.0006, 1),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("2m5ms", 120_005),
        ("30d", 30 * 86_400_000),
        (timedelta(minutes=2), 120_000),
        (timedelta(microseconds=1499), 1),
        (MAX_MS / 1000, MAX_MS),
    ],
)
def test_every_form_becomes_whole_milliseconds(given: Duration, ms: int) -> None:
    assert to_ms("delay", given) == ms


@pytest.mark.parametrize(
    "given",
    [
        -1,
        -0.1,
        float("nan"),
        float("inf"),
        float("-inf"),
        timedelta(seconds=-1),
        timedelta.max,
        MAX_MS / 1000 + 1,
        10**30,
        10**400,
        "",
        " ",
        "1",
        "h",
        "-1s",
        "1h30",
        "1 hour",
        "1H",
        "٣s1x",
        "1e3s",
        True,
        None,
        b"1s",
        [1],
    ],
)
def test_an_invalid_duration_is_refused_with_the_name_of_its_option(given: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid delay ") as refused:
        to_ms("delay", given)  # type: ignore[arg-type]
    assert refused.value.option == "delay"


def test_the_error_says_what_was_expected() -> None:
    with pytest.raises(OptionError) as refused:
        to_ms("delay", "soon")
    assert str(refused.value) == (
        'Invalid delay \'soon\': expected numbers with units, such as "90s" or "1h30m", '
        "from 0 to 10 years."
    )


def test_a_positive_duration_must_not_round_to_zero() -> None:
    assert to_positive_ms("timeout", 0.001) == 1
    for given in (0, "0s", 0.0004):
        with pytest.raises(OptionError, match="must be at least one millisecond"):
            to_positive_ms("timeout", given)


def test_seconds_are_rounded_to_milliseconds() -> None:
    assert to_s("timeout", "1s1ms") == 1.001


def test_the_clock_can_stand_still_and_runs_again() -> None:
    before = now_ms()
    freeze_clock(5)
    try:
        assert (now_ms(), frozen_ms()) == (5, 5)
    finally:
        freeze_clock(None)
    assert now_ms() >= before
    assert frozen_ms() is None
