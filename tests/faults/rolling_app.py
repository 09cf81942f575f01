"""The app of the test of rolling restarts: each run is in the ledger that the environment names."""

import asyncio
import os
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from tampu import App, Job
from tests.faults.ledger import Ledger

LEDGER = "TAMPU_FAULTS_LEDGER"
QUEUE = "faults"

app = App(default_queue=QUEUE)


@cache
def kept() -> Ledger:
    return Ledger(Path(os.environ[LEDGER]))


@app.task
async def work(tag: int, job: Job[None]) -> None:
    """A few milliseconds; of twenty, one outlasts the moment of a restart."""
    told, worker = replace(job, data=tag), str(os.getpid())
    kept().started(told, worker)
    await asyncio.sleep(0.3 if tag % 20 == 0 else 0.005)
    kept().done(told, worker)
