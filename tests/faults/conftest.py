"""What the fault tests share: a ledger, and worker processes that end with the test."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tampu import Queue
from tests.faults.ledger import Ledger
from tests.faults.worker_process import WorkerProcess
from tests.servers import ROOT, RunningServer

QUEUE = "faults"
SHIFT_SOURCE = ROOT.parent / "shared" / "faults" / "clockshift.c"

StartWorker = Callable[..., Awaitable[WorkerProcess]]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    kept = Ledger(tmp_path / "ledger")
    yield kept
    kept.close()


@pytest.fixture
def shift_library(tmp_path: Path) -> Path:
    """A library that shifts the clock of the process that it is loaded into."""
    gcc = shutil.which("gcc")
    if gcc is None or not SHIFT_SOURCE.exists():
        pytest.skip("no gcc, or no source of the library that shifts clocks")
    library = tmp_path / "clockshift.so"
    subprocess.run([gcc, "-shared", "-fPIC", "-o", library, SHIFT_SOURCE, "-ldl"], check=True)
    return library


@pytest.fixture
async def queue(running: RunningServer) -> AsyncIterator[Queue]:
    async with Queue(QUEUE, running.url) as producer:
        yield producer


@pytest.fixture
async def start_worker(running: RunningServer, ledger: Ledger) -> AsyncIterator[StartWorker]:
    """Start worker processes; all are ended after the test."""
    processes: list[WorkerProcess] = []

    async def started(queue: str = QUEUE, **options: object) -> WorkerProcess:
        options.setdefault("url", running.url)
        url = str(options.pop("url"))
        processes.append(await WorkerProcess.start(url, queue, ledger, **options))  # type: ignore[arg-type]
        return processes[-1]

    yield started
    for process in processes:
        process.end()
