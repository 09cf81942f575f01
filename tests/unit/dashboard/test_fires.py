"""When a schedule fired and missed, by the half hour and by the minute."""

from tampu.dashboard.fires import sum_up


def test_minutes_are_added_up_to_half_hours_and_the_last_with_any_are_listed() -> None:
    minutes = dict.fromkeys(range(60, 180), (0, 0))
    minutes |= {61: (1, 0), 75: (2, 1), 120: (0, 3), 179: (4, 0)}
    history = sum_up(minutes)
    assert [(each.fired, each.missed) for each in history.bars] == [(3, 1), (0, 0), (0, 3), (4, 0)]
    assert [each.at.timestamp() for each in history.bars] == [3600, 5400, 7200, 9000]
    assert [each.at.timestamp() // 60 for each in history.recent] == [179, 120, 75, 61]
    assert (history.fired, history.missed) == (7, 4)


def test_at_most_ten_minutes_are_listed() -> None:
    assert len(sum_up(dict.fromkeys(range(100), (1, 0))).recent) == 10
