"""When a worker believes that readers of streams are gone."""

from tampu.consumer.output import SteadyWatch


def test_readers_that_are_silent_are_believed_to_be_gone_after_a_while() -> None:
    watch = SteadyWatch(100.0)
    assert [second for second in range(101, 120) if watch.look(second)] == [115, 116, 117, 118, 119]


def test_after_a_gap_they_are_given_the_time_again() -> None:
    watch = SteadyWatch(0.0)
    assert any(watch.look(second) for second in range(20))
    assert [second for second in range(60, 80) if watch.look(second)] == [75, 76, 77, 78, 79]
