from tampu.outbox.floor import FULL_LOOK_S, TRAIL_S, Floor

NOW = 1000.0


def test_the_first_look_begins_at_the_beginning() -> None:
    assert Floor().next_start(NOW) == 0


def test_a_look_goes_on_after_a_full_batch() -> None:
    floor = Floor()
    floor.next_start(NOW)
    floor.note(500, NOW, is_full=True)
    assert floor.next_start(NOW) == 500


def test_rows_that_are_committed_late_are_still_above_the_floor() -> None:
    floor = Floor()
    floor.next_start(NOW)
    floor.note(101, NOW, is_full=False)  # 100 is not committed yet
    assert floor.next_start(NOW + TRAIL_S / 2) == 0


def test_the_floor_rises_when_its_time_is_over() -> None:
    floor = Floor()
    floor.next_start(NOW)
    floor.note(101, NOW, is_full=False)
    floor.note(None, NOW + TRAIL_S, is_full=False)
    assert floor.next_start(NOW + TRAIL_S) == 101


def test_from_time_to_time_a_look_begins_at_the_beginning_even_in_a_long_run() -> None:
    floor = Floor()
    floor.next_start(NOW)
    floor.note(500, NOW, is_full=True)
    assert floor.next_start(NOW + FULL_LOOK_S) == 0
    assert floor.next_start(NOW + FULL_LOOK_S + 0.1) == 500


def test_rows_that_were_left_behind_are_looked_for_at_once() -> None:
    floor = Floor()
    floor.next_start(NOW)
    floor.note(500, NOW, is_full=True)
    floor.look_everywhere()
    assert floor.next_start(NOW) == 0


def test_the_floor_never_falls() -> None:
    floor = Floor()
    floor.next_start(NOW)
    floor.note(900, NOW, is_full=False)
    floor.note(100, NOW + 0.2, is_full=False)  # committed late, found by a look from the beginning
    floor.note(None, NOW + 2, is_full=False)
    assert floor.next_start(NOW + 2) == 900
