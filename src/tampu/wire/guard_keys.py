"""The keys of a resource that is guarded, and of a task whose schedulers are coordinated.

Each family begins with a prefix and one hash tag, so that a cluster keeps it in one slot.
"""

from typing import Final

from msgspec import Struct

from tampu.wire.keys import check_prefix, check_task_id
from tampu.wire.task_keys import TaskKeys

DEFAULT_GUARD_PREFIX: Final = "tampu:guard:"

_WHOLE_RESOURCE: Final = b"*"


class GuardKeys(Struct, frozen=True):
    """The keys of one resource."""

    held: bytes  # who holds what of it
    done: bytes  # which occurrences have been run


class CourseKeys(Struct, frozen=True):
    """The keys of one task."""

    course: bytes  # its state, its version and its run in flight
    plain: bytes  # its state as a plain store keeps it


def guard_keys(prefix: str, resource: str) -> GuardKeys:
    """The keys of a resource under a prefix."""
    begin = b"%b{%b}:" % (
        check_prefix(prefix).encode(),
        check_task_id("resource", resource).encode(),
    )
    return GuardKeys(held=begin + b"held", done=begin + b"done")


def course_keys(keys: TaskKeys, task_id: str) -> CourseKeys:
    """The keys of a task, beside those that a plain store has for it."""
    plain = keys.state(check_task_id("task_id", task_id))
    return CourseKeys(course=plain.removesuffix(b"state") + b"course", plain=plain)


def held_field(at_ms: int | None) -> bytes:
    """The field of `held` of one occurrence, or of the whole resource."""
    return _WHOLE_RESOURCE if at_ms is None else b"%d" % at_ms


def done_member(task_id: str, at_ms: int) -> bytes:
    """An occurrence as a member of `done`."""
    return b"%b@%d" % (task_id.encode(), at_ms)
