"""The child processes of a worker: started when needed, used again, killed when they must be."""

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
    frame,
    main,
    outcome_of,
)
from tampu.errors import OptionError
from tampu.outcome import Failed, Outcome, Released, outcome_of_error, timed_out
from tampu.util.options import at_least
from tampu.util.process import describe_exit
from tampu.wire.dead import Failure

T = TypeVar("T")
START_LIMIT_S: Final = 60.0
"""For a new child to import the handler's module."""
END_LIMIT_S: Final = 1.0
"""For an idle child to end by itself, before it is killed."""
_LOOK_AGAIN_S: Final = 0.002


class Children:
    """Child processes that run one handler each job; they can be killed.

    There are at most `limit`, each started when a job finds none idle. The one that became idle
    last is used first. `OptionError` if a child could not import the function.
    """

    def __init__(self, function: Function, *, limit: int) -> None:
        at_least("limit", limit, 1)
        self._reference = _reference_to(function)
        self._places = asyncio.Semaphore(limit)
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
        """Run the handler for one job in a child; nothing but cancellation is raised.

        The time limit counts from when a child is ready for the job. When it passes the child is
        killed and the attempt has failed, as it has when the child ends by itself. Cancelling
        kills the child. What `close` interrupts is `Released`.
        """
        async with self._places:
            while not self._closed:
                idle = self._idle.pop() if self._idle else None
                try:
                    child = idle or self._start()
                except Exception as error:  # noqa: BLE001 - above all: no process to be had
                    return outcome_of_error(error)
                try:
                    return await child.run(request, timeout_s, on_progress)
                except _Gone as gone:
                    if idle is None or gone.took_job:
                        return self._outcome_of_end(str(gone))
                finally:
                    self._put_back(child)
            return Released()

    async def close(self) -> None:
        """End idle children, kill busy ones, and wait until all are gone."""
        self._closed = True
        for child in self._children.difference(self._idle):
            child.kill()  # its run sees that, and lets go of it
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
            # the program to end. What was registered last runs first, so this goes behind it.
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
            child.let_go()

    def _forget(self, child: "_Child") -> None:
        self._children.discard(child)
        if not self._children:
            self._none_left.set()

    def _kill_all(self) -> None:
        for child in self._children:
            child.kill()


class _Gone(Exception):
    """The child has ended; the text says how.

    One that died while it was idle has not taken the job, which then is none the worse for it.
    """

    def __init__(self, how: str, *, took_job: bool = True) -> None:
        self.took_job = took_job
        super().__init__(how)


class _Child:
    """One child process and our end of the pipe to it."""

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
        self._ending: asyncio.Task[str] | None = None
        self.idle = False

    async def run(
        self, request: ChildRequest, timeout_s: float | None, on_progress: Callable[[int], None]
    ) -> Outcome:
        """Run one job; it is idle again if the job ended, whatever in."""
        if not self._ready and (failure := await self._not_ready()) is not None:
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
        await self._ended()
        return timed_out(timeout_s)

    def kill(self) -> None:
        """Kill the process, if it still runs."""
        if self._ending is None or not self._ending.done():
            self._process.kill()

    def dismiss(self) -> None:
        """Tell the process that no more jobs will come, and let go of it."""
        with suppress(OSError):
            self._pipe.shutdown(socket.SHUT_WR)
        self.let_go()

    def let_go(self) -> "asyncio.Task[str]":
        """Wait for its end in the background, then free all it holds; the text says how it ended.

        A process that has not ended by itself in time is killed.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="tampu-child-end")
        return self._ending

    async def _not_ready(self) -> Failure | None:
        """Wait for a new process; the failure if it cannot serve."""
        try:
            async with asyncio.timeout(START_LIMIT_S):
                start = await self._receive(START)
        except TimeoutError:
            return Failure("ProcessCrashed", f"no child process was ready in {START_LIMIT_S:g} s")
        except _Gone as gone:
            raise _Gone(f"{gone} while it started; its standard error says why") from None
        if isinstance(start, NotReady):
            return start.failure
        self._ready = True
        return None

    async def _exchange(self, request: ChildRequest, on_progress: Callable[[int], None]) -> Outcome:
        try:
            await asyncio.get_running_loop().sock_sendall(self._pipe, frame(request))
        except ConnectionError:
            raise _Gone(await self._ended(), took_job=False) from None
        while isinstance(report := await self._receive(REPORT), Progress):
            on_progress(report.percent)
        self.idle = True
        return outcome_of(report)

    async def _receive(self, expected: Decoder[T]) -> T:
        loop, unread = asyncio.get_running_loop(), self._unread
        end = LENGTH_BYTES
        while len(unread) < end or len(unread) < (end := _end_of_frame(unread)):
            try:
                data = await loop.sock_recv(self._pipe, READ_BYTES)
            except ConnectionError:  # reset: what we sent lies there unread
                raise _Gone(await self._ended(), took_job=False) from None
            if not data:
                raise _Gone(await self._ended())
            unread += data
        data = bytes(memoryview(unread)[LENGTH_BYTES:end])
        del unread[:end]
        try:
            return expected.decode(data)
        except MsgspecError:  # the handler wrote into what is not its own
            self.kill()
            raise _Gone(await self._ended()) from None

    async def _ended(self) -> str:
        return await asyncio.shield(self.let_go())

    async def _end(self) -> str:
        kill_at = monotonic() + END_LIMIT_S
        # Looking is all that works on every loop and blocks none: the pipe says nothing of a
        # process that closed it and lives on.
        try:
            while (code := self._process.exitcode) is None:
                if monotonic() > kill_at:
                    self._process.kill()
                await asyncio.sleep(_LOOK_AGAIN_S)
        except BaseException:  # the loop ends before the child: nobody will look again
            self._process.kill()
            raise
        finally:
            self._pipe.close()
        self._process.close()
        self._on_end(self)
        return f"the child process ended with {describe_exit(code)}"


def _reference_to(function: Function) -> bytes:
    """The function's name, as a child will look it up."""
    try:
        return pickle.dumps(function)
    except Exception:  # noqa: BLE001 - three kinds for functions, any for other callables
        raise OptionError(
            "handler",
            function,
            'with isolation="process" must be importable by a child process: a function '
            "at the top of a module, no lambda and none inside another function",
        ) from None


def _spawn(reference: bytes, pipe: socket.socket) -> SpawnProcess:
    process = get_context("spawn").Process(target=main, args=(reference, pipe))
    # Until the child has its own way with these signals they wait: Ctrl-C must not end it as it
    # starts. The tracker, which multiprocessing starts with its first process, would undo that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _end_of_frame(data: bytearray) -> int:
    return LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
