"""Workers of one queue in one process: `python -m benchmarks.fleet_workers URL QUEUE WORKERS`.

Each is a worker of its own to all others: a consumer with a heartbeat, a reader and services. They
share connections and a thread, so that hundreds fit on one machine. Prints a line when all have
started, and one for each job that starts; works until its input is closed.
"""

import asyncio
import sys
from time import monotonic
from typing import Any

import uvloop

from tampu import Job
from tampu.consumer.engine import Engine
from tampu.consumer.handler import handlers_by_name
from tampu.consumer.options import WorkerSettings
from tampu.consumer.queue_config import QueueConfig, new_consumer
from tampu.consumer.runners.local import make_plans
from tampu.wire.keys import QueueKeys


async def main(url: str, queue: str, workers: int) -> None:
    """Start, say so, and wait for the end of the input."""
    settings = WorkerSettings(concurrency=1, events=False)
    configs = [
        QueueConfig(
            QueueKeys(queue),
            new_consumer(None),
            settings,
            plans=make_plans(handlers_by_name(handle), settings),
        )
        for _ in range(workers)
    ]
    engine = await Engine.open(configs, url, None, on_drain=lambda: None)
    print("started", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await engine.close(0)


async def handle(job: Job[Any]) -> None:
    """Print when the job started, and by how many seconds after it was added."""
    print(job.id, monotonic() - job.data["added_at"], flush=True)
    await asyncio.sleep(job.data["lasts_s"])


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
