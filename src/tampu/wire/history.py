"""The bytes of a queue's history: counts and times of tasks, gauges, failures, processes.

The scripts that merge these values unpack them as Lua tables. So all of them are arrays: an empty
or dense Lua table with numbers as keys would come back as an array and not as a map.
"""

from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from tampu.wire.msgpack import decode_as

GAUGES_FIELD: Final = b"gauges"
UNKNOWN_FIELD: Final = b"unknown"
MISSED_FIELD: Final = b"missed"
"""Missed instants of schedules: their number in the totals, those of each schedule in a minute."""
FIRES_FIELD: Final = b"fires"
"""How often each schedule fired in a minute."""
DEAD_PREFIX: Final = b"dead:"
"""What the field of a reason begins with, before its name: how many jobs were buried for it."""
TASK_PREFIX: Final = b":"
"""What the field of a task begins with, before its name."""


class PackedFigures(Struct, frozen=True, array_like=True):
    """What happened to the jobs of one task in one stretch of time.

    `run` and `wait` are histograms: a bucket and its count in turns.
    """

    done: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    snoozed: int = 0
    cancelled: int = 0
    run_us: int = 0
    wait_us: int = 0
    run: list[int] = []
    wait: list[int] = []


class PackedTimes(Struct, frozen=True, array_like=True):
    """How long the attempts of one task ran and waited; histograms as in `PackedFigures`."""

    run_us: int
    wait_us: int
    run: list[int]
    wait: list[int]


class Gauges(Struct, frozen=True, array_like=True):
    """The state of a queue at one moment."""

    waiting: int = 0
    active: int = 0
    delayed: int = 0
    dead: int = 0
    oldest_ms: int = 0  # how long the oldest waiting job has waited
    workers: int = 0
    slots: int = 0  # of all workers together
    busy: int = 0  # slots with a running job
    memory_bytes: int = 0  # of the server
    in_lines: int = 0  # of the waiting jobs, those that flow control holds

    def with_memory(self, memory_bytes: int) -> "Gauges":
        """The same with the memory of the server."""
        return replace(self, memory_bytes=memory_bytes)


class PackedGauges(Struct, frozen=True, array_like=True):
    """The last gauges of a stretch of time, and the highest value of each."""

    last: Gauges
    highest: Gauges


class PackedFailures(Struct, frozen=True, array_like=True):
    """Failed attempts with the same error at the same place, and the latest of them."""

    error_type: str
    message: str
    count: int
    first_ms: int
    last_ms: int
    task: str
    job_id: str
    traceback: str


class PackedRun(Struct, frozen=True, array_like=True):
    """A job that runs now."""

    id: str
    name: str
    attempt: int
    started_ms: int


class PackedProcess(Struct, frozen=True, array_like=True):
    """How the process of a worker is doing."""

    at_ms: int
    host: str
    pid: int
    rss_bytes: int
    cpu: float  # of one core, since the last report
    lag_ms: float  # the longest delay of the event loop since the last report
    slots: int
    running: list[PackedRun]  # the oldest, at most some of them
    busy: int
    version: str
    python: str
    app_version: str


_encode: Final = Encoder().encode
_figures: Final = Decoder(PackedFigures)
_gauges: Final = Decoder(PackedGauges)
_failures: Final = Decoder(PackedFailures)
_process: Final = Decoder(PackedProcess)
_instants: Final = Decoder(list[str | int])


def encode_history(value: PackedTimes | Gauges | PackedFailures | PackedProcess) -> bytes:
    """A value as a script takes it, or as a key holds it."""
    return _encode(value)


def decode_figures(data: bytes) -> PackedFigures:
    """The figures of one task."""
    return decode_as(_figures, data, what="history", expected="a list of counts and times")


def decode_gauges(data: bytes) -> PackedGauges:
    """The gauges of a stretch of time."""
    return decode_as(_gauges, data, what="gauges", expected="two lists of numbers")


def decode_failures(data: bytes) -> PackedFailures:
    """A group of failures."""
    return decode_as(_failures, data, what="failures", expected="a list of eight values")


def decode_instants(data: bytes) -> dict[str, int]:
    """Instants by the key of the schedule; those of further schedules under ""."""
    flat = decode_as(_instants, data, what="history", expected="a list of keys and counts")
    pairs = zip(flat[::2], flat[1::2], strict=False)
    return {str(key): count for key, count in pairs if isinstance(count, int)}


def decode_process(data: bytes) -> PackedProcess:
    """The report of a process."""
    return decode_as(_process, data, what="process", expected="a list of twelve values")
