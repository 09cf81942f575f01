"""Cursors of pages of jobs."""

import pytest

from tampu.admin.browsing import JobPlace, check_cursor, is_entry_id, step_back
from tampu.errors import OptionError


@pytest.mark.parametrize(
    ("given", "is_one"),
    [
        ("1-0", True),
        ("1700000000000-5", True),
        ("0-1", False),
        ("9" * 20 + "-1", False),
        ("1", False),
    ],
)
def test_ids_that_a_server_would_refuse_are_refused_before(given: str, is_one: bool) -> None:  # noqa: FBT001
    assert is_entry_id(given) is is_one
    if not is_one:
        with pytest.raises(OptionError, match="cursor"):
            check_cursor(JobPlace.DEAD, given)


def test_a_cursor_of_delayed_jobs_steps_back_over_removed_ones() -> None:
    assert step_back("5:10", 4) == "5:6"
    assert step_back("5:2", 4) == "5:0"


def test_a_cursor_belongs_to_a_place() -> None:
    check_cursor(JobPlace.DELAYED, "5:10")
    check_cursor(JobPlace.WAITING, "5-10")
    for place, given in ((JobPlace.DELAYED, "5-10"), (JobPlace.DEAD, "5:10")):
        with pytest.raises(OptionError, match="cursor"):
            check_cursor(place, given)
