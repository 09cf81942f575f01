"""What workers are told while they run: messages on a queue's control stream, in plain text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from tampu.errors import DecodeError
from tampu.wire.fields import decode_number, decode_text, encode_text, pair_fields

KEPT_MS: Final = 86_400_000
"""How long requests to cancel, and the control stream itself, are kept after the last message."""


class CancelRequest(Struct, frozen=True):
    """Cancel a job that was added at `latest_ms` or before: a later one may have the same id."""

    job_id: str
    latest_ms: int

    @property
    def member(self) -> bytes:
        """The request as a member of the set of requests."""
        return f"{self.latest_ms}:{self.job_id}".encode()


class FlowsNotice(Struct, frozen=True):
    """Flows of the queue have something to bring to other queues, or jobs to add."""


class PauseRequest(Struct, frozen=True):
    """Start no more jobs, or start jobs again."""

    paused: bool


class DrainRequest(Struct, frozen=True):
    """Stop the worker with this id."""

    worker: str


class GateNotice(Struct, frozen=True):
    """The queue has flow control, or no longer has."""

    is_open: bool


class HoldNotice(Struct, frozen=True):
    """Jobs of a task, a key, or both are held in their lines, for that long.

    `what` is an escaped name, `/` and an escaped key, or one after the other; or the resource of a
    breaker, or `|` and another resource, for jobs that need it. Jobs that passed the gate at
    `until_ms` or later, by the server's clock, are not held.
    """

    what: str
    left_ms: int | None  # None: until somebody resumes it
    until_ms: int | None = None


class ReleaseNotice(Struct, frozen=True):
    """What was held may pass again."""

    what: str


ControlMessage: TypeAlias = (
    CancelRequest
    | PauseRequest
    | DrainRequest
    | GateNotice
    | FlowsNotice
    | HoldNotice
    | ReleaseNotice
)


def decode_control(flat: Sequence[bytes]) -> ControlMessage:
    """The message in an entry of the control stream, or `DecodeError`."""
    fields = {name: decode_text(value) for name, value in pair_fields(flat, what="message").items()}
    read = _READERS.get(fields.get(b"op", ""))
    if read is None:
        raise DecodeError("control message", "this version does not know its kind")
    return read(fields)


def _read_hold(fields: Mapping[bytes, str]) -> HoldNotice:
    left_ms = decode_number(encode_text(fields.get(b"left", "")))
    until_ms = decode_number(encode_text(fields.get(b"till", "")))
    return HoldNotice(fields.get(b"what", ""), _whole(left_ms), _whole(until_ms))


def _whole(given: int | str) -> int | None:
    return given if isinstance(given, int) else None


_READERS: Final[dict[str, Callable[[Mapping[bytes, str]], ControlMessage]]] = {
    "cancel": lambda fields: _request(fields.get(b"id", ""), fields.get(b"latest", "")),
    "pause": lambda _: PauseRequest(paused=True),
    "resume": lambda _: PauseRequest(paused=False),
    "gate": lambda _: GateNotice(is_open=True),
    "no_gate": lambda _: GateNotice(is_open=False),
    "flows": lambda _: FlowsNotice(),
    "hold": _read_hold,
    "unhold": lambda fields: ReleaseNotice(fields.get(b"what", "")),
    "drain": lambda fields: DrainRequest(fields.get(b"worker", "")),
}


def encode_drain(request: DrainRequest) -> list[str]:
    """The fields of a request to drain."""
    return ["op", "drain", "worker", request.worker]


def decode_request(member: bytes) -> CancelRequest:
    """The request in a member of the set of requests, or `DecodeError`."""
    latest, _, job_id = decode_text(member).partition(":")
    return _request(job_id, latest)


def _request(job_id: str, latest: str) -> CancelRequest:
    latest_ms = decode_number(encode_text(latest))
    if not job_id or not isinstance(latest_ms, int):
        raise DecodeError("request to cancel", "it has no id or no time")
    return CancelRequest(job_id, latest_ms)
