"""Runs `tampu worker` as users do: in a directory with their app, until the test ends."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.contract.cli import COMMAND, environment
from tests.servers import RunningServer
from tests.waiting import block_until

SOON: Final = 60.0
SHOP: Final = '''\
import asyncio, os, threading, time
from pathlib import Path
from tampu import App, Job

app = App(worker={"store_results": True})
HELD = bytearray()

@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b

@app.task
async def who() -> int:
    return os.getpid()

@app.task
async def nap(path: str, job: Job) -> None:
    """Runs until it is cancelled; leaves a line for each run."""
    with Path(path).open("a") as file:
        file.write(f"begun {job.attempt}\\n")
    await asyncio.Event().wait()

@app.task
def block(path: str) -> None:
    Path(path).touch()
    time.sleep(60)

@app.task
async def grow(mib: int) -> None:
    HELD.extend(os.urandom(1024) * 1024 * mib)

@app.task(attempts=1)
async def fail(note: str = "") -> None:
    raise ValueError("boom")
'''


class WorkerCommand:
    """A running `tampu worker`. Its standard output and error go to files."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def until(self, condition: Callable[[], object], sentence: str) -> None:
        """Wait for a condition; fail at once if the command ends before."""

        def holds() -> bool:
            assert condition() or self.process.poll() is None, f"it ended: {self.err}"
            return bool(condition())

        try:
            block_until(holds, within=SOON, sentence=sentence)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.out}\n{self.err}") from None

    def until_logged(self, text: str, times: int = 1) -> None:
        self.until(lambda: self.err.count(text) >= times, f"it logs {text!r}")

    def until_up(self) -> None:
        self.until(lambda: "Processes" in self.out, "it shows what it runs")

    def children(self) -> list[int]:
        """The processes that it supervises."""
        return children_of(self.pid)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        return self.process.wait(SOON)

    def stop(self) -> int:
        """Tell it to stop, and wait for its end."""
        self.signal(signal.SIGTERM)
        return self.wait()


def children_of(pid: int) -> list[int]:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    except OSError:
        return []
    return [int(each) for each in found.split()]


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


@contextmanager
def run_worker(
    running: RunningServer, home: Path, *args: str, target: str = "shop:app"
) -> Iterator[WorkerCommand]:
    """Run a worker of the app in a directory; it and its children are killed after the block."""
    with run_command(running.url, home, "worker", target, *args) as worker:
        yield worker


@contextmanager
def run_command(url: str, home: Path, *args: str) -> Iterator[WorkerCommand]:
    """Run a command beside the app in a directory; it and its children are killed after it."""
    shop = home / "shop.py"
    if not shop.exists():
        shop.write_text(SHOP)
    out, err = home / f"{args[0]}.out", home / f"{args[0]}.err"
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            [*COMMAND, *args],
            cwd=home,
            env=environment(url),
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
        )
    command = WorkerCommand(process, out, err)
    try:
        yield command
    finally:
        left = [process.pid, *command.children()]
        for pid in left:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()
