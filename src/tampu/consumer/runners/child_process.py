"""One child process: its start, the jobs that it runs, its end."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from multiprocessing import get_context, resource_tracker
from multiprocessing.context import SpawnProcess
from typing import Final, TypeAlias

from msgspec import MsgspecError

from tampu.consumer.runners.child import (
    LEFT_TO_PARENT,
    READ_BYTES,
    ChildOutcome,
    ChildRequest,
    ChunkTaken,
    NotReady,
    Report,
    Start,
    decode_message,
    encode_frame,
    main,
    take_frames,
)
from tampu.consumer.runners.child_logs import ChildLog, handle_log, levels_now
from tampu.outcome import Done, Failed, Outcome, timeout_outcome
from tampu.wire.dead import Failure
from tampu.wire.payload import decode_payload

START_LIMIT_S: Final = 60.0
"""How long a new child may take to import the handler's module."""
END_LIMIT_S: Final = 1.0
"""How long an idle child may take to end by itself, before it is killed."""
_POLL_S: Final = 0.005
_MOST_READS: Final = 1000
Answer: TypeAlias = Start | ChildOutcome
OnReport: TypeAlias = Callable[[Report, Callable[[ChunkTaken], Awaitable[None]]], None]
"""Takes what a job tells, and a function that sends a message to its child."""


def describe_exit(code: int) -> str:
    """How a process ended: "exit code 3", or "signal SIGKILL" for a negative code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-code}"


class ChildEnded(Exception):
    """The child has ended; the text says how.

    One that ended while it was idle did not take the job, so another child can run it.
    """

    def __init__(self, how: str, *, took_job: bool = True) -> None:
        self.took_job = took_job
        super().__init__(how)


class ChildProcess:
    """A child process that runs one job at a time; `idle` while it could take one.

    Raises what starting a process raises. `on_end` is called when it has ended.
    """

    def __init__(self, reference: bytes, on_end: Callable[["ChildProcess"], None]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _spawn(reference, theirs)
            except BaseException:
                ours.close()
                raise
        self._pipe = _ParentPipe(ours, on_garbage=self.kill)
        self._on_end = on_end
        self._ready = False
        self._end_task: asyncio.Task[str] | None = None
        self.idle = False

    async def run(
        self, request: ChildRequest, timeout_s: float | None, on_report: OnReport
    ) -> Outcome:
        """Run one job; after any outcome but a killed child, it is idle again.

        Raises `ChildEnded` if the process ends by itself.
        """
        try:
            if not self._ready and (failure := await self._wait_until_ready()) is not None:
                return Failed(failure)
            self.idle = False
            if timeout_s is None:
                return await self._exchange(request, on_report)
            return await self._exchange_within(timeout_s, request, on_report)
        except _PipeClosed as closed:
            how = await self._wait_for_end()
            if not self._ready:
                raise ChildEnded(f"{how} while it started; its standard error says why") from None
            raise ChildEnded(how, took_job=closed.took_job) from None

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self._end_task is None or not self._end_task.done():
            self._process.kill()

    def dismiss(self) -> None:
        """Close our side, which ends an idle process, and release it."""
        self._pipe.end_requests()
        self.release()

    def release(self) -> "asyncio.Task[str]":
        """Wait for the end of the process in the background; the result says how it ended.

        It is killed if it does not end in time.
        """
        if self._end_task is None:
            self._end_task = asyncio.create_task(self._end(), name="tampu-child-end")
        return self._end_task

    async def _wait_until_ready(self) -> Failure | None:
        """Wait for a new process; the failure if it cannot run jobs."""
        try:
            async with asyncio.timeout(START_LIMIT_S):
                start = await self._pipe.receive()
        except TimeoutError:
            return Failure("ProcessCrashed", f"no child process was ready in {START_LIMIT_S:g} s")
        if isinstance(start, NotReady):
            return start.failure
        self._ready = True
        return None

    async def _exchange(self, request: ChildRequest, on_report: OnReport) -> Outcome:
        self._pipe.on_report = on_report
        self._pipe.context = copy_context()
        await self._pipe.send(request)
        answer = await self._pipe.receive()
        self._pipe.context = Context()
        self.idle = True
        if isinstance(answer, Done) and isinstance(answer.value, bytes):
            return Done(decode_payload(answer.value, what="result"))
        assert isinstance(answer, Outcome)  # noqa: S101 - a start is sent once
        return answer

    async def _exchange_within(
        self, limit_s: float, request: ChildRequest, on_report: OnReport
    ) -> Outcome:
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await self._exchange(request, on_report)
        except TimeoutError:
            if not limit.expired():
                raise
        self.kill()
        await self._wait_for_end()
        return timeout_outcome(limit_s)

    async def _wait_for_end(self) -> str:
        return await asyncio.shield(self.release())

    async def _end(self) -> str:
        try:
            code = await _wait_for_exit(self._process)
            self._pipe.read_rest()
        except BaseException:  # the loop ends before the child: nobody will wait again
            self._process.kill()
            raise
        finally:
            self._pipe.close()
        with suppress(ValueError):  # not ours any more
            self._process.close()
        self._on_end(self)
        how = "" if code is None else f" with {describe_exit(code)}"
        return f"the child process ended{how}"


class _PipeClosed(Exception):
    """The child has closed its side, or wrote what we cannot read."""

    def __init__(self, *, took_job: bool = True) -> None:
        self.took_job = took_job
        super().__init__()


class _ParentPipe:
    """The parent's end of the pipe, which the loop reads all the time."""

    def __init__(self, pipe: socket.socket, *, on_garbage: Callable[[], None]) -> None:
        pipe.settimeout(0)
        self._pipe = pipe
        self._on_garbage = on_garbage
        self._unread = bytearray()
        self._answer: asyncio.Future[Answer] | None = None  # that somebody waits for
        self._closed: _PipeClosed | None = None  # why there will be no more messages
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(pipe.fileno(), self._read)
        self.on_report: OnReport | None = None
        self.context = Context()  # of the job that the child runs: its log is handled in it

    async def send(self, request: ChildRequest | ChunkTaken) -> None:
        """Send a message."""
        if self._closed is not None:
            raise _PipeClosed(took_job=False)
        data = encode_frame(request)
        try:
            sent = self._send_at_once(data)
            if sent < len(data):
                await self._loop.sock_sendall(self._pipe, memoryview(data)[sent:])
        except OSError:
            raise _PipeClosed(took_job=False) from None

    async def receive(self) -> Answer:
        """The next message, apart from progress and logs."""
        if self._closed is not None:
            raise self._closed
        self._answer = self._loop.create_future()
        return await self._answer

    def end_requests(self) -> None:
        """Let the child see that there are no more requests."""
        with suppress(OSError):
            self._pipe.shutdown(socket.SHUT_WR)

    def read_rest(self) -> None:
        """Take what a process that has ended has left: logs, for instance."""
        for _ in range(_MOST_READS):
            if self._closed is not None or not self._read():
                return

    def close(self) -> None:
        """Close our side."""
        self._stop_reading(_PipeClosed())
        self._pipe.close()

    def _send_at_once(self, data: bytes) -> int:
        try:
            return self._pipe.send(data)
        except BlockingIOError:
            return 0

    def _read(self) -> bool:
        """Take what has arrived; False if that was nothing."""
        try:
            data = self._pipe.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # reset: the child has not read what we sent
            self._stop_reading(_PipeClosed(took_job=False))
            return False
        if not data:
            self._stop_reading(_PipeClosed())
            return False
        self._unread += data
        try:
            for frame in take_frames(self._unread):
                self._take(frame)
        except MsgspecError:  # the handler wrote to our socket
            self._stop_reading(_PipeClosed())
            self._on_garbage()
        return True

    def _take(self, frame: bytes) -> None:
        message = decode_message(frame)
        if isinstance(message, ChildLog):
            self.context.run(handle_log, message)
        elif isinstance(message, Report):
            if self.on_report is not None:
                self.on_report(message, self.send)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _stop_reading(self, why: _PipeClosed) -> None:
        if self._closed is None:
            self._closed = why
            self._loop.remove_reader(self._pipe.fileno())
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(why)


async def _wait_for_exit(process: SpawnProcess) -> int | None:
    """The exit code of a process; it is killed if it does not end in time.

    None if something else in the program has waited for it, and took the code. Where the system has
    no descriptor for a process, polling is all that works on every loop: a process may close the
    pipe and go on.
    """
    kill = asyncio.get_running_loop().call_later(END_LIMIT_S, process.kill)
    try:
        with _watch_exit(process) as exited:
            while (code := process.exitcode) is None and _is_there(process):
                if exited is None:
                    await asyncio.sleep(_POLL_S)
                elif not exited.is_set():
                    await exited.wait()
                else:
                    break
            return code
    finally:
        kill.cancel()


def _is_there(process: SpawnProcess) -> bool:
    try:
        os.kill(process.pid or 0, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def _watch_exit(process: SpawnProcess) -> Iterator[asyncio.Event | None]:
    """An event that is set when a process has ended; None where that cannot be watched."""
    try:
        descriptor = os.pidfd_open(process.pid or 0)
    except (AttributeError, OSError):  # not Linux, no descriptor left, or it has ended
        yield None
        return
    loop, exited = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, exited.set)
    try:
        yield exited
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _spawn(reference: bytes, pipe: socket.socket) -> SpawnProcess:
    process = get_context("spawn").Process(target=main, args=(reference, pipe, levels_now()))
    # The child blocks these signals until it handles them: Ctrl-C must not end it as it starts.
    # multiprocessing starts its resource tracker with the first process, which would undo that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process
