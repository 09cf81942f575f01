"""Text about processes."""

import asyncio
import atexit
import pickle
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.context import SpawnProcess
from time import monotonic
from typing import Final, TypeVar

from msgspec import MsgspecError
from msgspec.msgpack import Decoder

from tampu.consumer.handler import Function
from tampu.consumer.runners.child import (
    LEFT_TO_PARENT,
    LENGTH_BYTES,
    READ_BYTES,
    REPORT,
    START,
    ChildRequest,
    NotReady,
    Progress,
    encode_frame,
    main,
)
from tampu.errors import OptionError
from tampu.outcome import Done, Failed, Outcome, Released, outcome_of_error, timeout_outcome
from tampu.util.options import at_least
from tampu.wire.dead import Failure
from tampu.wire.payload import decode_payload


def describe_exit(code: int) -> str:
    """How a process ended: "exit code 3", or "signal SIGKILL" for a negative code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-code}"


T = TypeVar("T")
START_LIMIT_S: Final = 60.0
"""How long a new child may take to import the handler's module."""
END_LIMIT_S: Final = 1.0
"""How long an idle child may take to end by itself, before it is killed."""
_POLL_S: Final = 0.002


class Children:
    """At most `limit` child processes that run one handler.

    One is started when a job finds none idle; the one that became idle last is used first. Raises
    `OptionError` for a function that a child cannot import.
    """

    def __init__(self, function: Function, *, limit: int) -> None:
        at_least("limit", limit, 1)
        self._reference = _reference_to(function)
        self._slots = asyncio.Semaphore(limit)
        self._children: set[_Child] = set()
        self._idle: list[_Child] = []
        self._none_left = asyncio.Event()
        self._closed = False

    async def run(
        self,
        request: ChildRequest,
        *,
        timeout_s: float | None,
        on_progress: Callable[[int], None],
    ) -> Outcome:
        """Run the handler for one job in a child; raises nothing but cancellation.

        The time limit starts when a child is ready for the job. If it passes, the child is killed
        and the attempt fails; it also fails if the child ends by itself. Cancelling kills the
        child. A run that `close` interrupts is `Released`.
        """
        async with self._slots:
            while not self._closed:
                idle = self._idle.pop() if self._idle else None
                try:
                    child = idle or self._start()
                except Exception as error:  # noqa: BLE001 - for instance: too many processes
                    return outcome_of_error(error)
                try:
                    return await child.run(request, timeout_s, on_progress)
                except _ChildEnded as ended:
                    if idle is None or ended.took_job:
                        return self._outcome_of_end(str(ended))
                finally:
                    self._put_back(child)
            return Released()

    async def close(self) -> None:
        """End idle children, kill busy ones, and wait until all have ended."""
        self._closed = True
        for child in self._children.difference(self._idle):
            child.kill()  # `run` notices that and releases it
        while self._idle:
            self._idle.pop().dismiss()
        if self._children:
            await self._none_left.wait()
        atexit.unregister(self._kill_all)

    def _outcome_of_end(self, how: str) -> Outcome:
        return Released() if self._closed else Failed(Failure("ProcessCrashed", how))

    def _start(self) -> "_Child":
        child = _Child(self._reference, self._forget)
        if not self._children:
            # When the program exits, multiprocessing waits for its processes, and ours wait for
            # the program to end. The last function to be registered runs first, so register now.
            atexit.unregister(self._kill_all)
            atexit.register(self._kill_all)
        self._children.add(child)
        self._none_left.clear()
        return child

    def _put_back(self, child: "_Child") -> None:
        if child.idle and not self._closed:
            self._idle.append(child)
        else:
            child.kill()
            child.release()

    def _forget(self, child: "_Child") -> None:
        self._children.discard(child)
        if not self._children:
            self._none_left.set()

    def _kill_all(self) -> None:
        for child in self._children:
            child.kill()


class _ChildEnded(Exception):
    """The child has ended; the text says how.

    One that ended while it was idle did not take the job, so another child can run it.
    """

    def __init__(self, how: str, *, took_job: bool = True) -> None:
        self.took_job = took_job
        super().__init__(how)


class _Child:
    """One child process, and our side of the pipe to it."""

    def __init__(self, reference: bytes, on_end: Callable[["_Child"], None]) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        with theirs:
            try:
                self._process = _spawn(reference, theirs)
            except BaseException:
                ours.close()
                raise
        self._pipe = ours
        self._unread = bytearray()
        self._on_end = on_end
        self._ready = False
        self._end_task: asyncio.Task[str] | None = None
        self.idle = False

    async def run(
        self, request: ChildRequest, timeout_s: float | None, on_progress: Callable[[int], None]
    ) -> Outcome:
        """Run one job; after any outcome but a killed child, it is idle again."""
        if not self._ready and (failure := await self._wait_until_ready()) is not None:
            return Failed(failure)
        self.idle = False
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self._exchange(request, on_progress)
        except TimeoutError:
            if timeout_s is None or not limit.expired():
                raise
        self.kill()
        await self._wait_for_end()
        return timeout_outcome(timeout_s)

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self._end_task is None or not self._end_task.done():
            self._process.kill()

    def dismiss(self) -> None:
        """Close our side, which ends an idle process, and release it."""
        with suppress(OSError):
            self._pipe.shutdown(socket.SHUT_WR)
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
                start = await self._receive(START)
        except TimeoutError:
            return Failure("ProcessCrashed", f"no child process was ready in {START_LIMIT_S:g} s")
        except _ChildEnded as ended:
            text = f"{ended} while it started; its standard error says why"
            raise _ChildEnded(text) from None
        if isinstance(start, NotReady):
            return start.failure
        self._ready = True
        return None

    async def _exchange(self, request: ChildRequest, on_progress: Callable[[int], None]) -> Outcome:
        try:
            await asyncio.get_running_loop().sock_sendall(self._pipe, encode_frame(request))
        except ConnectionError:
            raise _ChildEnded(await self._wait_for_end(), took_job=False) from None
        while isinstance(report := await self._receive(REPORT), Progress):
            on_progress(report.percent)
        self.idle = True
        if isinstance(report, Done) and isinstance(report.value, bytes):
            return Done(decode_payload(report.value, what="result"))
        return report

    async def _receive(self, expected: Decoder[T]) -> T:
        loop, unread = asyncio.get_running_loop(), self._unread
        end = LENGTH_BYTES
        while len(unread) < end or len(unread) < (end := _end_of_frame(unread)):
            try:
                data = await loop.sock_recv(self._pipe, READ_BYTES)
            except ConnectionError:  # reset: the child has not read what we sent
                raise _ChildEnded(await self._wait_for_end(), took_job=False) from None
            if not data:
                raise _ChildEnded(await self._wait_for_end())
            unread += data
        data = bytes(memoryview(unread)[LENGTH_BYTES:end])
        del unread[:end]
        try:
            return expected.decode(data)
        except MsgspecError:  # the handler wrote to our socket
            self.kill()
            raise _ChildEnded(await self._wait_for_end()) from None

    async def _wait_for_end(self) -> str:
        return await asyncio.shield(self.release())

    async def _end(self) -> str:
        kill_at = monotonic() + END_LIMIT_S
        # Polling is all that works on every loop without blocking it: a process may close the pipe
        # and go on.
        try:
            while (code := self._process.exitcode) is None:
                if monotonic() > kill_at:
                    self._process.kill()
                await asyncio.sleep(_POLL_S)
        except BaseException:  # the loop ends before the child: nobody will poll again
            self._process.kill()
            raise
        finally:
            self._pipe.close()
        self._process.close()
        self._on_end(self)
        return f"the child process ended with {describe_exit(code)}"


def _reference_to(function: Function) -> bytes:
    """The pickled function: its name, by which a child imports it."""
    try:
        return pickle.dumps(function)
    except Exception:  # noqa: BLE001 - three kinds for functions, any for other callables
        raise OptionError(
            "handler",
            function,
            'with isolation="process" it must be importable by a child process: a function '
            "at the top of a module, not a lambda and not inside another function",
        ) from None


def _spawn(reference: bytes, pipe: socket.socket) -> SpawnProcess:
    process = get_context("spawn").Process(target=main, args=(reference, pipe))
    # The child blocks these signals until it handles them: Ctrl-C must not end it as it starts.
    # multiprocessing starts its resource tracker with the first process, which would undo that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _end_of_frame(data: bytearray) -> int:
    return LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
