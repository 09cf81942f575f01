"""Four worker processes under load, replaced one by one again and again."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tampu import Queue
from tests.faults.jobs import is_at_rest
from tests.faults.ledger import Kind, Ledger, check
from tests.faults.rolling_app import LEDGER
from tests.servers import ROOT, RunningServer
from tests.waiting import wait_until

ROLLS = int(os.environ.get("TAMPU_FAULTS_ROLLS", "1"))  # `make faults` rolls more often
PROCESSES = 3
ROLL_LIMIT_S = 120.0  # on a busy machine a process takes many seconds to start
BATCH = 20


@pytest.fixture
def errors(tmp_path: Path) -> Path:
    return tmp_path / "errors"


def told(errors: Path, text: str) -> int:
    """How often the log says something."""
    return errors.read_text().count(text)


@pytest.fixture
def supervisor(
    running: RunningServer, ledger: Ledger, errors: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "tampu", "worker", "tests.faults.rolling_app:app"]
    with errors.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--processes", str(PROCESSES), "--quiet"],
            cwd=ROOT,
            env=os.environ | {"TAMPU_URL": running.url, LEDGER: str(ledger.path)},
            stderr=file,
        )
    yield process
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def produce(queue: Queue, ledger: Ledger) -> None:
    """Some four hundred jobs a second, until it is cancelled."""
    tags = itertools.count()
    while True:
        batch = list(itertools.islice(tags, BATCH))
        for tag in batch:
            ledger.sent(tag)
        await asyncio.shield(_added(queue, ledger, batch))
        await asyncio.sleep(0.05)


async def _added(queue: Queue, ledger: Ledger, batch: list[int]) -> None:
    await queue.add_each("work", [{"tag": tag} for tag in batch])
    for tag in batch:
        ledger.added(tag)


@pytest.mark.timeout(60 + ROLL_LIMIT_S * ROLLS)
async def test_rolling_restarts_under_load_lose_nothing_and_run_nothing_twice(
    queue: Queue, ledger: Ledger, supervisor: "subprocess.Popen[bytes]", errors: Path
) -> None:
    producing = asyncio.create_task(produce(queue, ledger))
    await wait_until(lambda: ledger.count(Kind.DONE) > 100, within=60, sentence="it works")
    for number in range(1, ROLLS + 1):
        supervisor.send_signal(signal.SIGHUP)
        await wait_until(
            lambda number=number: told(errors, "replaced all worker processes") == number,  # type: ignore[misc]
            within=ROLL_LIMIT_S,
            sentence=f"all processes are replaced for the {number}. time",
        )
    producing.cancel()
    await asyncio.wait([producing])
    await wait_until(lambda: is_at_rest(queue), within=60, sentence="all are settled")
    supervisor.terminate()
    assert await asyncio.to_thread(supervisor.wait, 30) == 0
    lines = ledger.lines()
    report = check(lines)
    report.assert_sound()
    assert set(report.runs.values()) == {1}
    workers = {line.worker for line in lines if line.kind is Kind.DONE}
    assert len(workers) > PROCESSES * ROLLS // 2, "the load was done by few of the processes"
    assert not told(errors, "ERROR")
