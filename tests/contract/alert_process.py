"""A worker with an alert in a process of its own, which can be killed.

Run as a module it is that process. `DYING` is a command for notices that kills the worker which
runs it, the first time, before it has told anybody.
"""

import asyncio
import sys
from pathlib import Path

from tampu import Alert, NotifyCommand, NotifyJob, Worker
from tampu.consumer import alerts
from tampu.job import Job

WATCHED = "slow"
TOLD = "told"
DYING = """
import os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
try:
    (folder / "died").touch(exist_ok=False)
except FileExistsError:
    with open(folder / "told", "a") as file:
        file.write(sys.stdin.read() + "\\n")
else:
    os.kill(os.getppid(), signal.SIGKILL)
"""


async def handle(job: Job[object]) -> None:
    """Nothing comes here."""


async def work(url: str, folder: Path) -> None:
    """Print the id of the worker, and work until killed."""
    alerts.EVERY_S = 0.05
    command = NotifyCommand([sys.executable, "-c", DYING, str(folder)])
    worker = Worker(
        "work",
        handle,
        url,
        alerts=[Alert.no_workers(WATCHED, for_=0)],
        notify=[NotifyJob("on_alert", queue=TOLD), command],
    )
    async with worker:
        sys.stdout.write(f"{worker.id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
