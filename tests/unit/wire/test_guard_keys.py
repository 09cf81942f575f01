"""The keys of guarded resources and of coordinated tasks."""

import pytest
from redis.crc import key_slot

from tampu.errors import OptionError
from tampu.wire.keys import TaskKeys, done_member, guard_keys, held_field, shared_task_keys


def test_a_resource_s_keys_share_its_hash_tag() -> None:
    keys = guard_keys("tampu:guard:", "häuser @ 1")
    tag = "tampu:guard:{häuser @ 1}".encode()
    assert (keys.held, keys.done) == (tag + b":held", tag + b":done")
    assert key_slot(keys.held) == key_slot(keys.done)


def test_a_task_s_course_is_beside_its_plain_state() -> None:
    keys = shared_task_keys(TaskKeys("mine:"), "t:state")
    assert (keys.course, keys.plain) == (b"mine:{t:state}:course", b"mine:{t:state}:state")
    assert key_slot(keys.course) == key_slot(keys.plain)


def test_an_occurrence_is_spelled_by_its_instant() -> None:
    assert (held_field(-5), held_field(0), held_field(None)) == (b"-5", b"0", b"*")
    assert done_member("a@1", 1_794_725_043_642) == b"a@1@1794725043642"


@pytest.mark.parametrize("name", ["", " ", "a}", "{a", "a\x00", "a" * 257, "\ud800"])
def test_names_that_would_move_the_hash_tag_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="resource"):
        guard_keys("tampu:guard:", name)
    with pytest.raises(OptionError, match="task_id"):
        shared_task_keys(TaskKeys(), name)
