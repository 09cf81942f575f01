"""Adding jobs: the `add` script, called once for a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from tampu.errors import OptionError
from tampu.server.errors import ScriptUnknown
from tampu.server.lane import Lane
from tampu.server.scripts.script import Script, as_flags

# How long a silent producer's last answers are kept: far longer than any resend may take.
PRODUCER_MEMORY_MS = 600_000
_ADD = Script("add")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddKeys:
    """Where one producer adds: the queue's stream, delayed set and bell, and its own memory."""

    stream: bytes
    delayed: bytes
    memory: bytes
    bell: bytes


class PlainJobs(Struct, frozen=True):
    """Jobs that run as soon as they can and have no id of the user's: envelope, name, ..."""

    flat: Sequence[bytes]


class FullJobs(Struct, frozen=True):
    """Jobs with options: envelope or delayed member, name, extras, due, marker s, index s, ...

    `keys` are the marker and the index of each job that has them, in the order of the jobs.
    """

    flat: Sequence[bytes]
    keys: Sequence[bytes]


class AddCall(Struct, frozen=True, kw_only=True):
    """One call of a producer: its number, and how long the stream may get (0: any).

    Numbers go up by one from call to call, and at most 16 calls are in flight: the script remembers
    that many. Of an older one it cannot tell, and says so with `ConnectionLost`.
    """

    number: int
    max_len: int = 0
    limit_s: float | None = None

    def __post_init__(self) -> None:
        if self.limit_s is not None and self.limit_s * 1000 > PRODUCER_MEMORY_MS:
            accepted = f"must be at most {PRODUCER_MEMORY_MS // 1000} seconds"
            raise OptionError("limit_s", self.limit_s, accepted)


class Adding:
    """An `add` that has been sent: who waits for `sent` need not be a task."""

    __slots__ = ("_call", "_lane", "_limit_s", "sent")

    def __init__(
        self, lane: Lane, keys: AddKeys, jobs: PlainJobs | FullJobs, *, call: AddCall
    ) -> None:
        more: Sequence[bytes] = ()
        shape = b"plain"
        if isinstance(jobs, FullJobs):
            more, shape = (keys.bell, *jobs.keys), b"full"
        self._lane, self._limit_s = lane, call.limit_s
        self._call = _ADD.call(
            lane,
            (keys.stream, keys.delayed, keys.memory, *more),
            (call.number, PRODUCER_MEMORY_MS, call.max_len, shape, *jobs.flat),
        )
        self.sent = lane.send(self._call.by_digest, repeatable=True, limit_s=call.limit_s)

    async def reply(self) -> bytes:
        """What the script answered, loading it first where the server does not know it."""
        try:
            reply = await self.sent
        except ScriptUnknown as forgotten:
            reply = await _ADD.run_forgotten(
                self._lane, self._call, forgotten, repeatable=True, limit_s=self._limit_s
            )
        return as_flags(reply)


async def add(
    lane: Lane,
    keys: AddKeys,
    jobs: PlainJobs | FullJobs,
    *,
    number: int,
    max_len: int = 0,
    limit_s: float | None = None,
) -> bytes:
    """Add jobs in one step; a repeated `number` of the same producer adds nothing again.

    Returns b"" if all were added, else one letter a job: b"0" where its id was taken.
    Raises `QueueFull`, and adds nothing, if the stream would grow past `max_len`.
    """
    call = AddCall(number=number, max_len=max_len, limit_s=limit_s)
    return await Adding(lane, keys, jobs, call=call).reply()


def load_add(lane: Lane) -> None:
    """Have the server know the script, so that the first calls in flight keep their order."""
    _ADD.load(lane)
