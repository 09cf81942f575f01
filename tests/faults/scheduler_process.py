"""A scheduler in its own process, whose runs write to a ledger when they start and end.

This module is that process if it is run; `SchedulerProcess` starts and controls one. Each line is
one write to a file opened for appending, so it survives a SIGKILL of its writer.
"""

import asyncio
import os
import signal
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Self

from tampu.scheduler import (
    CoordinatedStore,
    Event,
    RunCompleted,
    ScheduledTask,
    Scheduler,
    SqliteStore,
    TaskRun,
)
from tampu.scheduler.redis_guard import LeaseOptions
from tampu.timing import Every, Rule
from tests.schedulers import RUN_ALL_MISSED, TASK, grid
from tests.servers import ROOT
from tests.waiting import wait_until

START_LIMIT_S = 30.0
LEASE: LeaseOptions = {"lease": "1s", "renew_every": "200ms", "timeout": "800ms"}
LASTS_S = 0.005
HANG_LIMIT_S = 60.0


class Kind(Enum):
    """What happened to a run."""

    STARTED = "started"
    DONE = "done"  # its function has returned
    ENDED = "ended"  # the scheduler has reported its status


class Line(NamedTuple):
    """One line of the ledger."""

    kind: Kind
    owner: str
    at_ms: int
    note: str  # "again" if it was started before; or its status


class Ledger:
    """One file for all processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.gate = path.with_suffix(".gate")  # runs that hang wait for this file
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        os.close(self._file)

    def write(self, line: Line) -> None:
        words = (line.kind.value, line.owner, str(line.at_ms), line.note)
        os.write(self._file, f"{' '.join(words)}\n".encode())

    def lines(self, kind: Kind) -> list[Line]:
        """All lines of a kind, in the order they were written."""
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        found = (line.split(" ", 3) for line in whole.splitlines())
        read = [Line(Kind(what), owner, int(at_ms), note) for what, owner, at_ms, note in found]
        return [line for line in read if line.kind is kind]


class LedgerTask:
    """The function of a task, and the observer of its scheduler."""

    def __init__(self, ledger: Ledger, owner: str, *, hangs: bool) -> None:
        self._ledger = ledger
        self._owner = owner
        self._hangs = hangs

    async def __call__(self, run: TaskRun[None]) -> None:
        self._note(Kind.STARTED, run.at_ms, "again" if run.replayed else "first")
        await asyncio.sleep(LASTS_S)
        if self._hangs:
            await wait_until(
                self._ledger.gate.exists, within=HANG_LIMIT_S, sentence="the gate opens"
            )
        self._note(Kind.DONE, run.at_ms, "")

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunCompleted):
            self._note(Kind.ENDED, event.at_ms, event.status.name)

    def task(self, rule: Rule) -> ScheduledTask[None]:
        return ScheduledTask(TASK, rule, self, missed=RUN_ALL_MISSED)

    def _note(self, kind: Kind, at_ms: int, note: str) -> None:
        self._ledger.write(Line(kind, self._owner, at_ms, note))


class SchedulerProcess:
    """A process with one scheduler; `where` is the URL of a server or a file of states."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.owner = str(process.pid)

    @classmethod
    async def start(cls, where: str, ledger: Ledger, rule: Every, *, hangs: bool = False) -> Self:
        """Start a process, and wait until its scheduler is open."""
        words = [where, str(ledger.path), f"{rule.interval_ms}", "hangs" if hangs else "works"]
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [sys.executable, "-m", __name__, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        async with asyncio.timeout(START_LIMIT_S):
            line = await asyncio.to_thread(process.stdout.readline)
        assert line.strip() == str(process.pid), "the process did not start"
        return cls(process)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def freeze(self) -> None:
        """Stop it with SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue it with SIGCONT."""
        self.process.send_signal(signal.SIGCONT)


async def _main(where: str, path: str, interval_ms: str, mode: str) -> None:
    recorder = LedgerTask(Ledger(Path(path)), str(os.getpid()), hangs=mode == "hangs")
    store = CoordinatedStore(where, **LEASE) if "://" in where else SqliteStore(where)
    async with Scheduler(store=store, observers=[recorder]) as scheduler:
        scheduler.add(recorder.task(grid(f"{interval_ms}ms")))
        print(os.getpid(), flush=True)  # noqa: T201 - read by `start`
        await scheduler.serve()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
