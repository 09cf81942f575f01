import math
from random import Random
from typing import Any

import pytest

from tampu.backoff import DEFAULT_BACKOFF, Backoff
from tampu.errors import OptionError
from tampu.util.clock import MAX_MS
from tampu.wire.envelope import BackoffKind, WireBackoff


def draw(seed: int = 1) -> Random:
    return Random(seed)  # noqa: S311 - jitter, not secrets


def waits(backoff: Backoff, attempts: int = 6) -> list[int]:
    return [backoff.wait_ms(failed, draw()) for failed in range(1, attempts + 1)]


def test_a_fixed_wait_is_the_same_each_time() -> None:
    assert waits(Backoff.fixed(0.25), 3) == [250, 250, 250]


def test_an_exponential_wait_grows_by_its_multiplier_up_to_its_cap() -> None:
    assert waits(Backoff.exponential(0.1, max=1, multiplier=3)) == [100, 300, 900, 1000, 1000, 1000]


def test_jitter_is_added_after_the_cap_and_stays_below_its_bound() -> None:
    backoff = Backoff.exponential(1, max=1, jitter=0.1)
    drawn = {backoff.wait_ms(9, draw(seed)) for seed in range(300)}
    assert min(drawn) >= 1000
    assert max(drawn) < 1100
    assert len(drawn) > 50


def test_the_wait_before_the_first_failure_is_that_after_it() -> None:
    assert Backoff.exponential(0.1).wait_ms(0, draw()) == 100


@pytest.mark.parametrize("failed", [1, 50, 5000, 2**32 - 1])
def test_a_wait_is_never_longer_than_ten_years(failed: int) -> None:
    endless = Backoff(BackoffKind.EXPONENTIAL, 2**63, 2**64 - 1, 1e300, 0)
    assert endless.wait_ms(failed, draw()) == MAX_MS


@pytest.mark.parametrize("multiplier", [math.nan, math.inf, -math.inf, -2.0, 0.0])
def test_any_number_of_another_program_gives_a_valid_wait(multiplier: float) -> None:
    backoff = Backoff(BackoffKind.EXPONENTIAL, 100, 30_000, multiplier, 10)
    for failed in (1, 2, 3, 100):
        assert 0 <= backoff.wait_ms(failed, draw()) <= MAX_MS


def test_the_workers_backoff_fills_missing_fields() -> None:
    ours = Backoff.exponential(1, max=9, multiplier=4, jitter=0.5)
    theirs = ours.with_override(WireBackoff("exponential", 200, None, None, None))
    assert theirs == Backoff(BackoffKind.EXPONENTIAL, 200, 9000, 4.0, 500)
    named = ours.with_override(WireBackoff("fixed", 5, 7, 1.5, 0))
    assert named == Backoff(BackoffKind.FIXED, 5, 7, 1.5, 0)


def test_a_backoff_survives_the_wire() -> None:
    for backoff in (Backoff.fixed(3, jitter=1), Backoff.exponential(1, max=9, multiplier=1.5)):
        assert DEFAULT_BACKOFF.with_override(backoff.to_wire()) == backoff


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"delay": -1}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay": 1, "max": math.nan}, "max"),
        ({"delay": 1, "jitter": -1}, "jitter"),
        ({"delay": 1, "multiplier": 0.5}, "multiplier"),
        ({"delay": 1, "multiplier": math.inf}, "multiplier"),
        ({"delay": 1, "multiplier": math.nan}, "multiplier"),
        ({"delay": 1, "multiplier": "2"}, "multiplier"),
    ],
)
def test_an_invalid_option_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=rf"^Invalid {named} "):
        Backoff.exponential(**options)
