"""A child process: takes jobs from its parent, one at a time, and runs the handler.

This code runs in the child, but both sides use the messages. They are MessagePack, each after its
length in four bytes, on a socket of their own, so a handler can use standard input and output.

    parent → child   ChildRequest, then ChunkTaken for each ChildChunk
    child → parent   Ready | NotReady once, then for each job: Progress, ChildOutput, ChildChunk ...
                     and one outcome; ChildLog at any time
"""

import asyncio
import os
import pickle
import select
import signal
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable
from types import FrameType
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.consumer.runners.child_logs import ChildLog, LogLevels, send_logs
from tampu.errors import DecodeError, EncodeError, WrongContext
from tampu.job import Job, JobActions, enter_job
from tampu.outcome import (
    MAX_RESULT_BYTES,
    Done,
    Failed,
    Outcome,
    Snoozed,
    Throttled,
    UnrecoverableFailure,
    failure_of,
    outcome_of_error,
    outcome_of_value,
)
from tampu.util.clock import Duration
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.extras import decode_extras
from tampu.wire.output import JobOutput, OutputRules, encode_chunk
from tampu.wire.payload import decode_payload, encode_payload
from tampu.wire.result import NodeResults

T = TypeVar("T")
LENGTH_BYTES: Final = 4
READ_BYTES: Final = 64 * 1024
_MOST_UNTAKEN: Final = 100
"""Chunks that the parent has not taken yet. Then the handler waits."""
LEFT_TO_PARENT: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""Terminals and service managers send these to every process; the parent decides what to do."""


class ChildRequest(Struct, frozen=True, kw_only=True, tag=True):
    """One job to run; `payload` is the MessagePack of its data."""

    job_id: str
    name: str
    payload: bytes
    attempt: int
    created_at_ms: int
    extras: bytes | None = None


class ChunkTaken(Struct, frozen=True, tag=True):
    """The handler may go on: the parent has taken one of its chunks."""


class Ready(Struct, frozen=True, tag=True):
    """The handler is imported; the child can take requests."""


class NotReady(Struct, frozen=True, tag=True):
    """The handler could not be imported."""

    failure: Failure


class Progress(Struct, frozen=True, tag=True):
    """The progress of the running job."""

    percent: int


class ChildOutput(Struct, frozen=True, tag=True):
    """The running job writes a stream from now on."""

    rules: OutputRules


class ChildChunk(Struct, frozen=True, tag=True):
    """The MessagePack of something that the handler has yielded."""

    data: bytes


Report: TypeAlias = Progress | ChildOutput | ChildChunk
"""What a running job tells."""
Start: TypeAlias = Ready | NotReady
ChildOutcome: TypeAlias = Done | Failed | Snoozed | Throttled | UnrecoverableFailure
"""It ends the job. The value of `Done` is sent as its MessagePack."""
Message: TypeAlias = Start | Report | ChildOutcome | ChildLog
_encode: Final = Encoder().encode
_request: Final = Decoder(ChildRequest | ChunkTaken)
decode_message: Final[Callable[[bytes], Message]] = Decoder(Message).decode


def encode_frame(message: ChildRequest | ChunkTaken | Message | Outcome) -> bytes:
    """The bytes of a message on the socket."""
    data = _encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def take_frames(data: bytearray) -> list[bytes]:
    """Remove the whole messages from the front of what has arrived, and return them."""
    frames, begin = [], 0
    while len(data) >= begin + LENGTH_BYTES:
        end = begin + LENGTH_BYTES + int.from_bytes(data[begin : begin + LENGTH_BYTES], "big")
        if len(data) < end:
            break
        frames.append(bytes(memoryview(data)[begin + LENGTH_BYTES : end]))
        begin = end
    del data[:begin]
    return frames


def main(reference: bytes, pipe: socket.socket, levels: LogLevels) -> None:
    """Run jobs for the parent at the other end of the pipe until it closes its side.

    The process ends as soon as the parent does. `reference` is the pickled handler: its name.
    """
    _leave_signals_to_parent()
    pipe.settimeout(None)
    pipe.set_inheritable(False)
    parent = _ChildPipe(pipe)
    os.register_at_fork(after_in_child=parent.forget)
    threading.Thread(target=_end_with_parent, args=(pipe.fileno(),), daemon=True).start()
    send_logs(parent.send, levels)
    try:
        function = pickle.loads(reference)  # noqa: S301 - from our own parent
    except BaseException as error:  # noqa: BLE001 - importing a user's module may raise anything
        parent.send(NotReady(failure_of(error)))
        return
    send_logs(parent.send, levels)
    with suppress(ConnectionError), asyncio.Runner() as runner:
        parent.send(Ready())
        while (request := parent.receive()) is not None:
            if isinstance(request, ChildRequest):
                parent.send(_ChildAttempt(function, runner, parent).run(request))


class _ChildPipe:
    """The child's end of the pipe."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._unread = bytearray()
        self._frames: deque[bytes] = deque()

    def send(self, message: Message | Outcome) -> None:
        """Write one message; can be called from any thread."""
        data = encode_frame(message)
        with self._sending:
            self._pipe.sendall(data)

    def receive(self) -> ChildRequest | ChunkTaken | None:
        """The next message; None when the parent has closed its side."""
        while not self._frames:
            part = self._pipe.recv(READ_BYTES)
            if not part:
                return None
            self._unread += part
            self._frames.extend(take_frames(self._unread))
        message: ChildRequest | ChunkTaken = _request.decode(self._frames.popleft())
        return message

    def forget(self) -> None:
        """Close it in a fork, where it would stay open after our end."""
        self._pipe.close()
        self._sending = threading.Lock()  # another thread of the parent process may have held it


class _ChildAttempt:
    """One attempt, and the host of its job."""

    def __init__(
        self, function: Callable[[Job[Any]], object], runner: asyncio.Runner, parent: _ChildPipe
    ) -> None:
        self._function = function
        self._runner = runner
        self._parent = parent
        self._reporting = threading.Lock()
        self._over = False

    def run(self, request: ChildRequest) -> Outcome:
        """Run the handler; raises nothing."""
        try:
            job = self._job(request)
        except DecodeError as error:
            return UnrecoverableFailure(failure_of(error), BuryReason.DECODE_FAILED)
        try:
            outcome = outcome_of_value(self._call(job))
        except BaseException as error:  # noqa: BLE001 - SystemExit ends the job, not the process
            outcome = outcome_of_error(error)
        with self._reporting:
            self._over = True
        return _encode_value(outcome.value) if isinstance(outcome, Done) else outcome

    @property
    def actions(self) -> JobActions:
        """A child process has no connection to the server."""
        raise WrongContext("ask about a job here", "a child process has no connection")

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """A handler makes the result; it cannot wait for it."""
        raise WrongContext("call job.result() in a handler", "the result does not exist yet")

    def read_results(self, of: NodeResults) -> AsyncIterator[object]:
        """Raises `WrongContext`: they would have to pass through a pipe."""
        del of
        raise WrongContext("read results of a node here", "the task runs in a child process")

    def charge(self, resources: list[str], tokens: int) -> None:
        """Raises `WrongContext`: a child process has no connection to the server."""
        del resources, tokens
        raise WrongContext("charge a limit in a child process", "only a handler in the worker can")

    def open_output(self, job: Job[Any], rules: OutputRules) -> JobOutput:
        """The stream of the job, which the parent writes."""
        del job
        self._parent.send(ChildOutput(rules))
        return _OutputToParent(self._parent, waits=rules.window is not None)

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Send the progress to the parent, unless the attempt has ended."""
        report = Progress(percent)
        with self._reporting:
            if not self._over:
                self._parent.send(report)

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
        """Call the handler in a context of its own: the next job does not see what it sets."""
        context = copy_context()
        context.run(enter_job, job)
        value = context.run(self._function, job)
        return self._runner.run(_wait_for(value), context=context) if isawaitable(value) else value


class _OutputToParent:
    """The stream of a job: the parent takes its chunks, and says when the handler may go on."""

    def __init__(self, parent: _ChildPipe, *, waits: bool) -> None:
        self._parent = parent
        self._most = 0 if waits else _MOST_UNTAKEN
        self._untaken = 0

    async def put(self, value: object) -> None:
        """Send a chunk."""
        self._send(value)
        if self._untaken > self._most:
            await asyncio.to_thread(self._wait, self._most)

    async def flush(self) -> None:
        """Return when the parent has taken all chunks."""
        await asyncio.to_thread(self._wait, 0)

    async def close(self) -> None:
        """Do nothing: the parent closes it."""

    def put_blocking(self, value: object) -> None:
        """Send a chunk."""
        self._send(value)
        self._wait(self._most)

    def flush_blocking(self) -> None:
        """Return when the parent has taken all chunks."""
        self._wait(0)

    def _send(self, value: object) -> None:
        self._parent.send(ChildChunk(encode_chunk(value)))
        self._untaken += 1

    def _wait(self, most: int) -> None:
        while self._untaken > most:
            if self._parent.receive() is None:
                raise ConnectionError("the parent has closed its side")
            self._untaken -= 1


async def _wait_for(value: Awaitable[T]) -> T:
    return await value


def _encode_value(value: object) -> Outcome:
    try:
        return Done(encode_payload(value, max_bytes=MAX_RESULT_BYTES, what="result"))
    except EncodeError as error:  # another attempt would return the same
        return UnrecoverableFailure(failure_of(error))
    except BaseException as error:  # noqa: BLE001 - it calls methods of the user's objects
        return Failed(failure_of(error))


def _leave_signals_to_parent() -> None:
    for number in LEFT_TO_PARENT:
        # Programs that a handler starts would inherit SIG_IGN, but not this.
        signal.signal(number, _do_nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEFT_TO_PARENT)  # see `_spawn`


def _do_nothing(number: int, where: FrameType | None) -> None:
    pass


def _end_with_parent(pipe: int) -> NoReturn:
    """Exit when the other side is closed in both directions, which happens when the parent ends."""
    hangup = select.poll()
    hangup.register(pipe, 0)  # no events: a hangup is always reported
    hangup.poll()
    os._exit(1)
