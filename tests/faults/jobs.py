"""Jobs that the ledger knows of, and where they are."""

from collections.abc import Sequence
from typing import Unpack

from tampu import Queue
from tampu.job import JobOptions
from tests.faults.conftest import QUEUE
from tests.faults.ledger import Ledger
from tests.servers import RunningServer

STREAM = f"{{chasqui:{QUEUE}}}:stream"
GROUP = "default"


async def add_all(
    queue: Queue, ledger: Ledger, name: str, tags: Sequence[int], **options: Unpack[JobOptions]
) -> list[str]:
    """Add a job for each tag; their ids."""
    for tag in tags:
        ledger.sent(tag)
    jobs = await queue.add_each(name, tags, **options)
    for tag in tags:
        ledger.added(tag)
    return [job.id for job in jobs]


async def is_at_rest(queue: Queue) -> bool:
    """Whether no job waits, runs or is delayed."""
    counts = await queue.counts()
    return counts.waiting == counts.active == counts.delayed == 0


def held_by_consumer(running: RunningServer) -> dict[str, int]:
    """How many entries each consumer holds."""
    with running.admin() as admin:
        found = admin.xinfo_consumers(STREAM, GROUP)
        return {each["name"].decode(): each["pending"] for each in found}
