"""The programs of a peer as processes: a producer for requests, a worker that writes notes.

Every wait has a limit. Leaving the `with` block ends the processes.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

from benchmarks.peers.environment import PeerEnvironment

ANSWER_LIMIT_S: Final = 30.0


class PeerFailed(Exception):
    """A program of a peer ended or did not answer in time. The text says which one and why."""


class LineReader:
    """Reads complete lines from a pipe, with a time limit."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._buffer = b""

    def next(self, limit_s: float) -> str | None:
        """The next line; None if there is none in time or the other end has closed the pipe."""
        deadline = monotonic() + limit_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, deadline - monotonic()))
            more = os.read(self._pipe, 65_536) if ready else b""
            if not more:
                return None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


@dataclass(frozen=True, slots=True)
class Note:
    """A note of a handler. `value` is the number of jobs so far, or the due time of the job."""

    value: float
    at: float
    cpu_s: float


class _PeerProcess:
    """One process, and the processes that it starts, in a process group of their own."""

    def __init__(self, environment: PeerEnvironment, role: str, variables: dict[str, str]) -> None:
        self.title = f"{environment.peer.title}'s {role}"
        self._log = Path(variables["PEER_NOTES"]).with_name(f"{role}.log")
        command = environment.command(role)
        with self._log.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    env={**environment.variables(), **variables},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if role == "add" else log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise PeerFailed(f"cannot start {self.title}: {command[0]} fails") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def failure(self, problem: str) -> PeerFailed:
        """An error with the problem and the last line of the log."""
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1][:120]}" if lines else ""
        return PeerFailed(f"{self.title} {problem}{last}")


class ProducerProcess(_PeerProcess):
    """Adds jobs on request."""

    def __init__(self, environment: PeerEnvironment, variables: dict[str, str]) -> None:
        super().__init__(environment, "add", variables)
        assert self._process.stdout is not None
        self._answers = LineReader(self._process.stdout.fileno())

    def request(self, do: str, **arguments: object) -> dict[str, Any]:
        """Send a request and return the answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and there will be no answer
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        line = self._answers.next(ANSWER_LIMIT_S)
        if line is None:
            raise self.failure("did not answer")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise self.failure("gave an answer that is not JSON") from error
        return answer

    def end(self) -> None:
        """Let it close its connections, so that the server frees their memory."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_LIMIT_S)


class WorkerProcess(_PeerProcess):
    """Runs jobs, and writes notes about them."""

    def __init__(self, environment: PeerEnvironment, variables: dict[str, str]) -> None:
        notes = variables["PEER_NOTES"]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(notes)
        os.mkfifo(notes)
        self._pipe = os.open(notes, os.O_RDWR | os.O_NONBLOCK)  # both, so that it never ends
        self._notes = LineReader(self._pipe)
        super().__init__(environment, "work", variables)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        os.close(self._pipe)

    def next_note(self, limit_s: float) -> Note | None:
        """The next note of a handler; None if there is none in time."""
        line = self._notes.next(limit_s)
        return None if line is None else Note(*map(float, line.split()))
