"""Whose turn it is."""

from dataclasses import dataclass

from tampu.scheduler.clock import Agenda


@dataclass(eq=False)
class One:
    turn_ms: int | None = None


def test_only_the_last_turn_that_was_set_counts() -> None:
    agenda: Agenda[One] = Agenda()
    one, other = One(), One()
    for at_ms in (5, 1, 9):
        agenda.set(one, at_ms)
    agenda.set(other, 7)
    assert agenda.next_ms() == 7
    assert agenda.due(8, 10) == [other]
    assert agenda.due(9, 10) == [one]
    agenda.set(one, 10)
    agenda.set(one, None)
    assert agenda.next_ms() is None


def test_turns_that_were_set_over_and_over_take_no_room() -> None:
    agenda: Agenda[One] = Agenda()
    ones = [One() for _ in range(10)]
    for _ in range(1000):
        for number, one in enumerate(ones):
            agenda.set(one, 0)
            assert agenda.due(0, 10) == [one]
            agenda.set(one, 1000 + number)
    assert len(agenda._turns) < 5000
    assert agenda.due(2000, 100) == ones
    assert agenda.next_ms() is None
