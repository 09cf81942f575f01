"""The manual clock, and the queue of due items."""

from dataclasses import dataclass

from tampu.scheduler.clock import DueQueue, ManualClock
from tampu.util.clock import instant
from tests.unit.scheduler.plans import HOUR, START, START_MS, ms


@dataclass(eq=False)
class Item:
    due_ms: int | None = None


class TestDueQueue:
    def test_only_the_last_instant_of_an_item_counts(self) -> None:
        queue: DueQueue[Item] = DueQueue()
        one, other = Item(), Item()
        for at_ms in (5, 1, 9):
            queue.set(one, at_ms)
        queue.set(other, 7)
        assert queue.next_ms() == 7
        assert queue.pop_due(8, 10) == [other]
        assert queue.pop_due(9, 10) == [one]
        queue.set(one, 10)
        queue.set(one, None)
        assert queue.next_ms() is None

    def test_outdated_entries_are_removed(self) -> None:
        queue: DueQueue[Item] = DueQueue()
        items = [Item() for _ in range(10)]
        for _ in range(1000):
            for number, item in enumerate(items):
                queue.set(item, 0)
                assert queue.pop_due(0, 10) == [item]
                queue.set(item, 1000 + number)
        assert len(queue._heap) < 5000
        assert queue.pop_due(2000, 100) == items
        assert queue.next_ms() is None


def test_a_manual_clock_stands_still_until_advanced() -> None:
    calls: list[str] = []
    clock = ManualClock(START)
    clock.call_at(START_MS + 10, lambda: calls.append("late"))
    cancelled = clock.call_at(START_MS + 5, lambda: calls.append("early"))
    assert clock.next_alarm_ms == START_MS + 5
    cancelled.cancel()
    assert clock.next_alarm_ms == START_MS + 10
    clock.turn(ms(9))
    assert (calls, clock.now_ms(), clock.steady_ms()) == ([], START_MS + 9, 9)
    clock.set(instant(clock.now_ms() + HOUR))
    assert calls == []
    clock.turn(ms(1))
    assert calls == ["late"]
    assert [clock.next_alarm_ms, clock.steady_ms()] == [None, 10]
    assert clock.now_ms() == START_MS + HOUR + 10
