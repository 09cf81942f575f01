"""How a supervisor and its worker processes talk: a line of JSON for each message, over a pipe.

A second pipe tells a worker process when its supervisor has died: only the supervisor holds its
other end open. On a third one the supervisor asks for the metrics: each byte is a question.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final, NamedTuple, Self, TypeAlias

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, Encoder

from tampu.admin.metrics import MetricsPage
from tampu.cli.signals import ExitReason

PIPES_VARIABLE: Final = "TAMPU_SUPERVISOR_PIPES"
"""In the environment of a worker process: the numbers of its three pipes."""

_POLL_S: Final = 0.01
_READ_BYTES: Final = 65_536
_MOST_UNSENT: Final = 16 * 1024 * 1024


class ProcessStarted(Struct, frozen=True, tag=True):
    """The process runs tasks now. The same is shown to the user."""

    version: str  # of tampu
    tasks: list[str]
    queues: dict[str, int]
    server: str
    dialect: str
    can: list[str]  # optional features of the server
    grace_s: float


class ProcessHeartbeat(Struct, frozen=True, tag=True):
    """How the process is, every second."""

    running: int
    silent_s: float


class ProcessStopping(Struct, frozen=True, tag=True):
    """The process has begun to stop."""

    reason: ExitReason


ProcessMessage: TypeAlias = ProcessStarted | ProcessHeartbeat | ProcessStopping | MetricsPage

_ENCODER: Final = Encoder()
_DECODER: Final[Decoder[ProcessMessage]] = Decoder(ProcessMessage)


def encode_message(message: ProcessMessage) -> bytes:
    """The message as one line."""
    return _ENCODER.encode(message) + b"\n"


def decode_message(line: bytes) -> ProcessMessage | None:
    """The message in a line; None if it is not one."""
    try:
        return _DECODER.decode(line)
    except MsgspecError:
        return None


class SupervisorPipe:
    """The supervisor, as one of its worker processes sees it."""

    def __init__(self, life: int, messages: int, questions: int) -> None:
        self._life, self._messages, self._questions = life, messages, questions
        self._unsent = b""
        for end in (life, messages, questions):
            os.set_inheritable(end, False)  # noqa: FBT003 - not for processes that we start
            os.set_blocking(end, False)

    @classmethod
    def from_environment(cls) -> Self | None:
        """The pipes of the supervisor that started this process, if one did. Call it once."""
        pipes = os.environ.pop(PIPES_VARIABLE, None)
        if pipes is None:
            return None
        return cls(*map(int, pipes.split(",")))

    def send(self, message: ProcessMessage) -> None:
        """Send a message, unless the supervisor is dead or does not read."""
        if len(self._unsent) < _MOST_UNSENT:
            self._unsent += encode_message(message)
            self._write()

    def _write(self) -> None:
        """Write what fits into the pipe now, and the rest as soon as there is room."""
        loop = asyncio.get_running_loop()
        try:
            self._unsent = self._unsent[os.write(self._messages, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # the supervisor is dead
            self._unsent = b""
        if self._unsent:
            loop.add_writer(self._messages, self._write)
        else:
            loop.remove_writer(self._messages)

    def when_asked(self, act: Callable[[], None]) -> None:
        """Call a function when the supervisor asks for the metrics."""
        loop = asyncio.get_running_loop()

        def check() -> None:
            with suppress(BlockingIOError):
                if os.read(self._questions, _READ_BYTES):
                    act()
                else:
                    loop.remove_reader(self._questions)

        loop.add_reader(self._questions, check)

    def when_dead(self, act: Callable[[], None]) -> None:
        """Call a function when the supervisor has died, however it died."""
        loop = asyncio.get_running_loop()

        def check() -> None:
            with suppress(BlockingIOError):
                if not os.read(self._life, 64):
                    loop.remove_reader(self._life)
                    act()

        loop.add_reader(self._life, check)


class ManagedProcess:
    """A worker process, as its supervisor sees it: from its start to its end.

    It has its own process group, so Ctrl-C reaches only the supervisor, which passes it on.
    """

    def __init__(self, life: int) -> None:
        self._process, self._messages, self._questions = _start(life)
        self._unread = b""
        self._asked: asyncio.Future[MetricsPage] | None = None
        self._decided, self._closed = asyncio.Event(), asyncio.Event()
        self.replaced = asyncio.Event()
        self.started: ProcessStarted | None = None
        self.started_at = 0.0
        self.exit_reason: ExitReason | None = None
        self.heartbeat: ProcessHeartbeat | None = None
        self.heartbeat_at = 0.0
        self._end = asyncio.create_task(self._wait_for_end(), name="tampu-managed-process")
        asyncio.get_running_loop().add_reader(self._messages, self._read)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._end.done()

    async def wait_started(self) -> ProcessStarted | None:
        """Wait until it runs tasks; None if it ended before."""
        await self._decided.wait()
        return self.started

    async def wait_ended(self) -> int:
        """Wait for its end; its exit code, or the negative number of the signal that killed it."""
        return await asyncio.shield(self._end)

    def stop(self, limit_s: float | None = None) -> None:
        """Tell it to stop, and kill it after a time limit. The second time it stops at once."""
        self._send_signal(signal.SIGTERM)
        if limit_s is not None:
            asyncio.get_running_loop().call_later(limit_s, self._send_signal, signal.SIGKILL)

    async def ask_metrics(self, limit_s: float) -> MetricsPage:
        """The metrics that it reads from the server."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().create_future()
        with suppress(OSError):  # it ends just now, or has not answered for long
            os.write(self._questions, b"?")
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.shield(self._asked)
        except TimeoutError:
            return MetricsPage("", "the worker process did not answer")

    def _send_signal(self, number: signal.Signals) -> None:
        if not self.has_ended:
            self._process.send_signal(number)

    async def _wait_for_end(self) -> int:
        await self._closed.wait()
        # The pipe closes a moment before the process has ended.
        while (code := self._process.poll()) is None:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(_POLL_S)
        self._decided.set()
        return code

    def _read(self) -> None:
        with suppress(BlockingIOError):
            data = os.read(self._messages, _READ_BYTES)
            if not data:
                asyncio.get_running_loop().remove_reader(self._messages)
                os.close(self._messages)
                os.close(self._questions)
                self._questions = -1  # another file may get its number
                self._closed.set()
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._receive(line)

    def _receive(self, line: bytes) -> None:
        message = decode_message(line)
        if isinstance(message, ProcessStarted):
            self.started, self.started_at = message, monotonic()
            self._decided.set()
        elif isinstance(message, ProcessHeartbeat):
            self.heartbeat, self.heartbeat_at = message, monotonic()
        elif isinstance(message, ProcessStopping):
            self.exit_reason = message.reason
        elif isinstance(message, MetricsPage):
            self._take_metrics(message)

    def _take_metrics(self, page: MetricsPage) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(page)


class _StartedProcess(NamedTuple):
    process: "subprocess.Popen[bytes]"
    messages: int
    questions: int


def _start(life: int) -> _StartedProcess:
    """Start a process; returns it with our ends of its pipes."""
    messages, theirs = os.pipe()
    try:
        asked, questions = os.pipe()
    except OSError:
        os.close(messages)
        os.close(theirs)
        raise
    try:
        process = subprocess.Popen(  # noqa: S603 - our own command
            _command_line(),
            env=os.environ | {PIPES_VARIABLE: f"{life},{theirs},{asked}"},
            pass_fds=(life, theirs, asked),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
    except OSError:
        os.close(messages)
        os.close(questions)
        raise
    finally:
        os.close(theirs)
        os.close(asked)
    os.set_blocking(messages, False)
    os.set_blocking(questions, False)
    return _StartedProcess(process, messages, questions)


def _command_line() -> list[str]:
    """What was typed, for a new interpreter that imports nothing from this directory (-P)."""
    return [sys.executable, "-P", "-m", "tampu", *sys.argv[1:]]
