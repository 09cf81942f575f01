"""The two sides of a peer as processes of their own: a producer that is asked, a worker that notes.

Every wait has a limit, and leaving a side ends its processes.
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

from benchmarks.peers.home import Home

ANSWER_LIMIT_S: Final = 30.0


class PeerFailed(Exception):
    """A side ended or said nothing in time; the text says which and why."""


class Lines:
    """Whole lines from a pipe, each awaited for so long at most."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._read = b""

    def next(self, limit_s: float) -> str | None:
        """The next line; None if it did not come in time or the other end is gone."""
        deadline = monotonic() + limit_s
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, deadline - monotonic()))
            more = os.read(self._pipe, 65_536) if ready else b""
            if not more:
                return None
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()


@dataclass(frozen=True, slots=True)
class Note:
    """What a handler said: how many jobs were run or when one was due, when, processor time."""

    what: float
    at: float
    cpu_s: float


class _Side:
    """One process and what it started, in a group of their own."""

    def __init__(self, home: Home, kind: str, surroundings: dict[str, str]) -> None:
        self.title = f"{home.pin.title}'s {kind}"
        self._log = Path(surroundings["PEER_NOTES"]).with_name(f"{kind}.log")
        command = home.command(kind)
        with self._log.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    env={**home.surroundings(), **surroundings},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if kind == "add" else log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise PeerFailed(f"{self.title} cannot be started: {command[0]} fails") from error

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

    def failure(self, did: str) -> PeerFailed:
        """What went wrong, with the last words of the process."""
        words = self._log.read_text("utf-8", "replace").strip().splitlines()
        last = f": {words[-1][:120]}" if words else ""
        return PeerFailed(f"{self.title} {did}{last}")


class ProducerSide(_Side):
    """Adds jobs when asked."""

    def __init__(self, home: Home, surroundings: dict[str, str]) -> None:
        super().__init__(home, "add", surroundings)
        assert self._process.stdout is not None
        self._answers = Lines(self._process.stdout.fileno())

    def ask(self, do: str, **asked: object) -> dict[str, Any]:
        """What it answers."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: no answer will come
            self._process.stdin.write(json.dumps({"do": do, **asked}).encode() + b"\n")
            self._process.stdin.flush()
        line = self._answers.next(ANSWER_LIMIT_S)
        if line is None:
            raise self.failure("gave no answer")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise self.failure("gave an answer that is no JSON") from error
        return answer

    def end(self) -> None:
        """Let it close what it holds; the server forgets its connections."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_LIMIT_S)


class WorkerSide(_Side):
    """Runs jobs and notes them."""

    def __init__(self, home: Home, surroundings: dict[str, str]) -> None:
        notes = surroundings["PEER_NOTES"]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(notes)
        os.mkfifo(notes)
        self._pipe = os.open(notes, os.O_RDWR | os.O_NONBLOCK)  # both, so that it has no end
        self._notes = Lines(self._pipe)
        super().__init__(home, "work", surroundings)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        os.close(self._pipe)

    def note(self, limit_s: float) -> Note | None:
        """What a handler said next; None if nothing in time."""
        line = self._notes.next(limit_s)
        return None if line is None else Note(*map(float, line.split()))
