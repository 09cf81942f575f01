"""The keys of a task of the scheduler in a process.

All that is ours begins with a prefix and the task's id as a hash tag, so that a cluster keeps what
belongs to one task in one slot.
"""

from dataclasses import dataclass, field
from typing import Final

from tampu.wire.keys import check_prefix

DEFAULT_TASK_PREFIX: Final = "tampu:task:"

# Where cloudiful-scheduler keeps its states, and where it kept them before.
_PEER_PREFIXES: Final = (b"scheduler:valkey:job-state:", b"scheduler:job-state:")


@dataclass(frozen=True, slots=True)
class TaskKeys:
    """Every key of the tasks under one prefix, as bytes."""

    prefix: str = DEFAULT_TASK_PREFIX
    _begin: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_begin", check_prefix(self.prefix).encode() + b"{")

    @property
    def peer_prefixes(self) -> tuple[bytes, ...]:
        """Where a peer's states may be, the newest first; a prefix of one's own has no peers."""
        return _PEER_PREFIXES if self.prefix == DEFAULT_TASK_PREFIX else ()

    def state(self, task_id: str) -> bytes:
        """Holds the JSON of a task's state."""
        return b"%b%b}:state" % (self._begin, task_id.encode())

    def peer_states(self, task_id: str) -> list[bytes]:
        """Keys in which a peer may have left the task's state, in slots of their own."""
        return [prefix + task_id.encode() for prefix in self.peer_prefixes]
