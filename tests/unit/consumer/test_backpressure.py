"""How much a worker reads ahead of its slots."""

import pytest

from tampu.consumer.backpressure import Pace


def test_a_slot_that_was_woken_but_has_done_nothing_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("tampu.consumer.backpressure.monotonic", lambda: now)
    pace = Pace(1024)
    for done in (0, -2, 0):  # two slots were woken for one entry, and count as busy at first
        now += 0.002
        assert pace.ahead(done) == 0
    now += 0.002
    assert pace.ahead(2) == 10  # 1000 a second, averaged with 0 before, for 20 ms


def test_at_a_gate_less_is_read_ahead_of_jobs_that_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("tampu.consumer.backpressure.monotonic", lambda: now)
    for per_s, without, at_gate in ((10_000, 200, 80), (40_000, 800, 800)):
        pace, done = Pace(1024), 0
        for _ in range(40):
            now += 0.01
            done += per_s // 100
            pace.ahead(done)
        assert pace.ahead(done) == pytest.approx(without, abs=1)
        assert pace.ahead(done, has_gate=True) == pytest.approx(at_gate, abs=1)


def test_at_a_gate_slots_that_end_together_do_not_seem_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("tampu.consumer.backpressure.monotonic", lambda: now)
    pace, done, ahead = Pace(1024), 0, []
    for number in range(1000):  # a hundred jobs end in one of ten milliseconds
        now += 0.001
        done += 0 if number % 10 else 100
        ahead.append(pace.ahead(done, has_gate=True))
    assert max(ahead[100:]) < 120
    assert pace.ahead(done) < max(ahead)  # only the last moment counts, in which nothing ended


def test_at_a_gate_a_server_that_is_slow_does_not_make_the_slots_seem_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("tampu.consumer.backpressure.monotonic", lambda: now)

    def ahead_after_a_pause(*, is_starved: bool) -> int:
        nonlocal now
        pace, done = Pace(1024), 0
        for _ in range(40):  # 40 000 jobs a second
            now += 0.01
            done += 400
            pace.ahead(done)
        now += 0.015
        pace.ahead(done, has_gate=True, is_starved=is_starved)
        now += 0.001
        return pace.ahead(done, has_gate=True, is_starved=is_starved)

    assert ahead_after_a_pause(is_starved=True) > 700
    assert ahead_after_a_pause(is_starved=False) < 200
