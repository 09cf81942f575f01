"""How much a worker reads ahead of its slots."""

import pytest

from tampu.consumer.reader import _Pace


def test_a_slot_that_was_woken_and_has_done_nothing_yet_is_no_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("tampu.consumer.reader.monotonic", lambda: now)
    pace = _Pace()
    for done in (0, -2, 0):  # two were woken for one entry, and look busy while it still waits
        now += 0.002
        assert pace.ahead(done) == 0
    now += 0.002
    assert pace.ahead(2) == 10  # 1000 a second, half believed, for 20 ms
