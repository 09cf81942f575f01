import pytest

from tampu.timing import offset_ms


def test_the_same_schedule_and_instant_give_the_same_offset_in_every_process() -> None:
    # Computed once; another value would make two versions of this library fire twice.
    assert [offset_ms("digest", 1_800_000_000_000 + n, 60_000) for n in range(3)] == [
        22795,
        39878,
        5031,
    ]


def test_offsets_fill_the_spread_and_stay_inside_it() -> None:
    offsets = [offset_ms(f"key-{n}", 1_800_000_000_000, 10) for n in range(1000)]
    assert set(offsets) == set(range(10))
    assert all(60 < offsets.count(each) < 140 for each in range(10))


def test_other_instants_and_other_schedules_get_other_offsets() -> None:
    by_instant = {offset_ms("digest", at_ms, 1_000_000) for at_ms in range(100)}
    by_key = {offset_ms(f"digest-{n}", 0, 1_000_000) for n in range(100)}
    assert len(by_instant) > 95
    assert len(by_key) > 95


@pytest.mark.parametrize("spread_ms", [0, -1, 1])
def test_no_spread_is_no_offset(spread_ms: int) -> None:
    assert offset_ms("digest", 5, spread_ms) == 0
