"""What the pages show in these tests: a busy shop, and queues full of hostile texts."""

from typing import Any, Final
from urllib.parse import urlencode

from tampu.dashboard.app import MODULES
from tampu.job import Job
from tampu.outcome import Bury
from tampu.queue import Queue
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.timing import Every
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.dashboards import HOSTILE, seed_history
from tests.waiting import wait_until

EMAILS: Final = "emails"
TASK: Final = "send_email"
HOSTILE_QUEUE: Final = '<script>alert("queue")</script>'

_PARAMETERS: Final[dict[str, dict[str, str]]] = {
    "": {},
    "queues": {},
    "queue": {"name": EMAILS},
    "task": {"queue": EMAILS, "name": TASK},
    "search": {"q": "e"},
}
"""The query of each page. A new page needs an entry here, and is then in all of these tests."""


def links_to(queue: str = EMAILS, task: str = TASK) -> list[str]:
    """A link to each page of a queue and a task."""
    instead = {EMAILS: queue, TASK: task}
    pages = [page for module in MODULES for page in getattr(module, "PAGES", ())]
    queries = [
        urlencode({name: instead.get(value, value) for name, value in _PARAMETERS[path].items()})
        for path in (page.path for page in pages)
    ]
    return [f"{page.path}?{query}" for page, query in zip(pages, queries, strict=True)]


async def busy_shop(url: str) -> None:
    """Queues with a past, a backlog, delayed jobs and a schedule."""
    async with await connect(url) as server:
        for name, tasks in (
            (EMAILS, {TASK: 240.0, "send_newsletter": 30.0}),
            ("images", {"resize": 90.0, "import_photos": 4.0, "scan_for_faces": 1.0}),
        ):
            keys = QueueKeys(name)
            async with await Lane.open(server, keys.stream) as lane:
                await seed_history(lane, keys, tasks)
            async with Queue(name, url) as queue:
                await queue.add_each(next(iter(tasks)), range(1204))
                await queue.add(TASK, {"to": "ada@example.com"}, delay=3600)
                await queue.schedules.add(TASK, Every("1h"), key="nightly")


async def hostile_queue(url: str) -> None:
    """A queue with harmful texts wherever a text can be: waiting, delayed, done and dead."""

    async def handle(job: Job[Any]) -> object:
        if job.name == HOSTILE[0]:
            raise Bury(HOSTILE[0])
        if job.name == HOSTILE[1]:
            raise ValueError(*HOSTILE)
        return HOSTILE[0]

    async with Queue(HOSTILE_QUEUE, url) as queue:
        for place, text in enumerate(HOSTILE):
            payload = {text: list(HOSTILE)}
            await queue.add(text, payload, job_id=f"{text}-{place}", attempts=1)
            await queue.add(text, payload, delay=3600, headers={"x-text": text})
            await queue.schedules.add(text, Every("1h"), key=f"key {text}")

        async def is_done() -> bool:
            counts = await queue.counts()
            return (counts.waiting, counts.active, counts.dead) == (0, 0, 2)

        async with Worker(HOSTILE_QUEUE, handle, url):
            await wait_until(is_done, within=30, sentence="every job has ended")
        await queue.add_each(HOSTILE[0], list(HOSTILE))
