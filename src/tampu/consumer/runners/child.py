"""A child process: takes one job after the other from its parent and runs the handler.

Runs in the child, but for the messages, which both sides know. They are MessagePack, each behind
its length in four bytes, on a socket of their own: a handler may print and read what it likes.

    parent → child   ChildRequest
    child → parent   Ready | NotReady once, then for each job: Progress ... and one ending
"""

import asyncio
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable
from types import FrameType
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError, EncodeError, WrongContext
from tampu.job import Job, enter_job
from tampu.outcome import (
    Done,
    Failed,
    Outcome,
    Released,
    Snoozed,
    UnrecoverableFailure,
    failure_of,
    outcome_of_error,
    outcome_of_value,
)
from tampu.util.clock import Duration
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.extras import decode_extras
from tampu.wire.payload import decode_payload, encode_payload

T = TypeVar("T")
LENGTH_BYTES: Final = 4
READ_BYTES: Final = 256 * 1024
MAX_RESULT_BYTES: Final = 64 * 1024 * 1024
LEFT_TO_PARENT: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""A terminal and a service manager send these to every process; what follows, the parent says."""


class ChildRequest(Struct, frozen=True, kw_only=True):
    """One job to run; `payload` is the MessagePack of its data."""

    job_id: str
    name: str
    payload: bytes
    attempt: int
    created_at_ms: int
    extras: bytes | None = None


class Ready(Struct, frozen=True, tag=True):
    """The handler is there; requests may come."""


class NotReady(Struct, frozen=True, tag=True):
    """The handler could not be imported."""

    failure: Failure


class Progress(Struct, frozen=True, tag=True):
    """How far the running job is."""

    percent: int


class ChildDone(Struct, frozen=True, tag=True):
    """`Done`, with the value as MessagePack."""

    payload: bytes


class ChildFailed(Struct, frozen=True, tag=True):
    """`Failed`."""

    failure: Failure
    after_ms: int | None


class ChildSnoozed(Struct, frozen=True, tag=True):
    """`Snoozed`."""

    after_ms: int


class ChildUnrecoverable(Struct, frozen=True, tag=True):
    """`UnrecoverableFailure`."""

    failure: Failure
    reason: BuryReason


Ending: TypeAlias = ChildDone | ChildFailed | ChildSnoozed | ChildUnrecoverable
Start: TypeAlias = Ready | NotReady
Report: TypeAlias = Progress | Ending
_encode: Final = Encoder().encode
_request: Final = Decoder(ChildRequest)
START: Final[Decoder[Start]] = Decoder(Start)
REPORT: Final[Decoder[Report]] = Decoder(Report)


def frame(message: ChildRequest | Start | Report) -> bytes:
    """The message as it goes over the socket."""
    data = _encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def outcome_of(ending: Ending) -> Outcome:
    """What the job ended in, as the parent sees it."""
    match ending:
        case ChildDone(payload):
            return Done(decode_payload(payload, what="result"))
        case ChildFailed(failure, after_ms):
            return Failed(failure, after_ms)
        case ChildSnoozed(after_ms):
            return Snoozed(after_ms)
        case ChildUnrecoverable(failure, reason):
            return UnrecoverableFailure(failure, reason)


def main(reference: bytes, pipe: socket.socket) -> None:
    """Serve the parent at the other end of the pipe until it says that no more will come.

    The process ends at once when the parent does. `reference` is the pickled handler: its name.
    """
    _leave_signals_to_parent()
    pipe.settimeout(None)
    pipe.set_inheritable(False)
    os.register_at_fork(after_in_child=pipe.close)  # a fork that kept it would hide our end
    threading.Thread(target=_end_with_parent, args=(pipe.fileno(),), daemon=True).start()
    link = _ChildPipe(pipe)
    try:
        function = pickle.loads(reference)  # noqa: S301 - from our own parent
    except BaseException as error:  # noqa: BLE001 - importing a user's module may raise anything
        link.send(NotReady(failure_of(error)))
        return
    with suppress(ConnectionError), asyncio.Runner() as runner:
        link.send(Ready())
        while (request := link.receive()) is not None:
            link.send(_ChildRun(function, runner, link).end(request))


class _ChildPipe:
    """The child's end of the pipe."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()

    def send(self, report: Start | Report) -> None:
        """Write one message whole, from whatever thread."""
        data = frame(report)
        with self._sending:
            self._pipe.sendall(data)

    def receive(self) -> ChildRequest | None:
        """The next request; None when no more will come."""
        head = self._read(LENGTH_BYTES)
        if len(head) < LENGTH_BYTES:
            return None
        return _request.decode(self._read(int.from_bytes(head, "big")))

    def _read(self, size: int) -> bytearray:
        """So many bytes; fewer at the end. A file object would do it, but not close in a fork."""
        data = bytearray()
        while (missing := size - len(data)) and (part := self._pipe.recv(min(READ_BYTES, missing))):
            data += part
        return data


class _ChildRun:
    """One run of the handler, and the host of its job."""

    def __init__(
        self, function: Callable[[Job[Any]], object], runner: asyncio.Runner, link: _ChildPipe
    ) -> None:
        self._function = function
        self._runner = runner
        self._link = link
        self._reporting = threading.Lock()
        self._over = False

    def end(self, request: ChildRequest) -> Ending:
        """Run it for one job; nothing that it raises gets past this."""
        try:
            job = self._job(request)
        except DecodeError as error:
            return ChildUnrecoverable(failure_of(error), BuryReason.DECODE_FAILED)
        try:
            outcome = outcome_of_value(self._call(job))
        except BaseException as error:  # noqa: BLE001 - SystemExit ends the job, not the process
            outcome = outcome_of_error(error)
        with self._reporting:
            self._over = True
        return _ending_of(outcome)

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """A handler makes the result; it cannot wait for it."""
        raise WrongContext("call job.result() in a handler", "the result does not exist yet")

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Tell the parent; after the end nobody wants to know."""
        report = Progress(percent)
        with self._reporting:
            if not self._over:
                self._link.send(report)

    def _job(self, request: ChildRequest) -> Job[Any]:
        return Job(
            id=request.job_id,
            name=request.name,
            data=decode_payload(request.payload),
            attempt=request.attempt,
            created_at_ms=request.created_at_ms,
            host=self,
            extras=decode_extras(request.extras),
        )

    def _call(self, job: Job[Any]) -> object:
        """Each job has a context of its own: what one sets, the next does not see."""
        context = copy_context()
        context.run(enter_job, job)
        value = context.run(self._function, job)
        return self._runner.run(_awaited(value), context=context) if isawaitable(value) else value


async def _awaited(value: Awaitable[T]) -> T:
    return await value


def _ending_of(outcome: Outcome) -> Ending:
    match outcome:
        case Done(value):
            return _returned(value)
        case Failed(failure, after_ms):
            return ChildFailed(failure, after_ms)
        case Snoozed(after_ms):
            return ChildSnoozed(after_ms)
        case UnrecoverableFailure(failure, reason):
            return ChildUnrecoverable(failure, reason)
        case Released():
            raise AssertionError(outcome)  # only a worker that stops can say so


def _returned(value: object) -> Ending:
    try:
        return ChildDone(encode_payload(value, max_bytes=MAX_RESULT_BYTES, what="result"))
    except EncodeError as error:  # running it again would make the same
        return ChildUnrecoverable(failure_of(error), BuryReason.UNRECOVERABLE)
    except BaseException as error:  # noqa: BLE001 - it looks into the user's objects
        return ChildFailed(failure_of(error), None)


def _leave_signals_to_parent() -> None:
    for number in LEFT_TO_PARENT:
        # SIG_IGN would be passed on to the programs that a handler starts; this is not.
        signal.signal(number, _do_nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEFT_TO_PARENT)  # the parent started us without


def _do_nothing(number: int, where: FrameType | None) -> None:
    pass


def _end_with_parent(pipe: int) -> NoReturn:
    """Wait until the parent's end is closed in both directions, which only its death does."""
    hangup = select.poll()
    hangup.register(pipe, 0)  # asks for no event: the end of the peer is told anyway
    hangup.poll()
    os._exit(1)
