"""What the pages show in these tests: a busy shop, and queues full of hostile texts."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from tampu.admin.browsing import JobPlace
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

Handle = Callable[[Job[Any]], Awaitable[None]]
EMAILS: Final = "emails"
TASK: Final = "send_email"
JOB: Final = "order-1001"
HOSTILE_QUEUE: Final = '<script>alert("queue")</script>'

_QUERIES: Final[dict[str, dict[str, str]]] = {
    "": {},
    "queues": {},
    "queue": {"name": "queue"},
    "task": {"queue": "queue", "name": "task"},
    "jobs": {"queue": "queue"},
    "job": {"queue": "queue", "id": "job"},
    "dead": {"queue": "queue"},
    "edit": {"queue": "queue", "dead": "dead"},
    "bulk": {"id": "bulk"},
    "audit": {},
    "alerts": {},
    "schedules": {"queue": "queue"},
    "schedule": {"queue": "queue", "key": "schedule"},
    "workers": {"queue": "queue"},
    "search": {"q": "task"},
}
"""The query of each page, by fields of a `Scene`. A page without an entry here fails the tests."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to look at."""

    queue: str
    task: str
    job: str
    dead: str
    schedule: str

    async def links(self, site: str) -> list[str]:
        """A link to each page, and to the jobs in each state."""
        fields = {**asdict(self), "bulk": await self._plan(site)}
        paths = [page.path for module in MODULES for page in getattr(module, "PAGES", ())]
        links = [
            f"{path}?{urlencode({name: fields[of] for name, of in _QUERIES[path].items()})}"
            for path in paths
        ]
        places = [urlencode({"queue": self.queue, "state": place}) for place in JobPlace]
        dead_job = urlencode({"queue": self.queue, "dead": self.dead})
        return [*links, *(f"jobs?{place}" for place in places), f"job?{dead_job}"]

    async def _plan(self, site: str) -> str:
        """The id of an action on many jobs that waits for its confirmation."""
        form = {"queue": self.queue, "state": "dead", "action": "replay"}
        async with httpx.AsyncClient(base_url=site, headers={"origin": site.rstrip("/")}) as client:
            answer = await client.post("plan-bulk", data=form)
        assert answer.status_code == 303, answer.text
        return parse_qs(urlsplit(answer.headers["location"]).query)["id"][0]


async def busy_shop(url: str) -> Scene:
    """Queues with a past, a backlog, delayed jobs, dead letters and a schedule."""
    async with await connect(url) as server:
        for name, tasks in (
            (EMAILS, {TASK: 240.0, "send_newsletter": 30.0}),
            ("images", {"resize": 90.0, "import_photos": 4.0, "scan_for_faces": 1.0}),
        ):
            keys = QueueKeys(name)
            async with await Lane.open(server, keys.stream) as lane:
                await seed_history(lane, keys, tasks)
    async with Queue("images", url) as images:
        await images.add_each("resize", range(204))
    async with Queue(EMAILS, url) as emails:
        await emails.add_each("send_newsletter", [{"to": f"{name}@example.com"} for name in "abc"])
        await _run(emails, url, _fail, dead=3)
        await emails.add_each(TASK, range(1204))
        await emails.add(TASK, {"to": "ada@example.com", "lines": [1, 2]}, delay=3600, job_id=JOB)
        await emails.schedules.add(TASK, Every("1h"), key="nightly")
        (dead, *_) = await emails.dead.peek()
    return Scene(EMAILS, TASK, JOB, dead.dead_id, "nightly")


async def hostile_queue(url: str, text: str = HOSTILE[0]) -> Scene:
    """A queue with harmful texts wherever a text can be: waiting, delayed, done and dead."""
    job_id, key = f"{text}-delayed", f"key {text}"
    async with Queue(HOSTILE_QUEUE, url) as queue:
        for each in HOSTILE:
            await queue.add(each, {each: list(HOSTILE)}, job_id=f"{each}-first", attempts=1)
        await _run(queue, url, _fail_badly, dead=len(HOSTILE))
        for each in HOSTILE:
            options: Any = {"headers": {"x-text": each}, "job_id": f"{each}-delayed"}
            await queue.add(each, {each: list(HOSTILE)}, delay=3600, **options)
            await queue.schedules.add(each, Every("1h"), key=f"key {each}")
        await queue.add_each(text, list(HOSTILE))
        (dead, *_) = await queue.dead.peek()
    return Scene(HOSTILE_QUEUE, text, job_id, dead.dead_id, key)


async def _fail(job: Job[Any]) -> None:
    raise Bury(f"the address of job {job.name} does not exist")


async def _fail_badly(job: Job[Any]) -> None:
    if job.name == HOSTILE[0]:
        raise Bury(job.name)
    raise ValueError(job.name, *HOSTILE)


async def _run(queue: Queue, url: str, handle: Handle, *, dead: int) -> None:
    async def is_done() -> bool:
        return (await queue.counts()).dead == dead

    async with Worker(queue.name, handle, url):
        await wait_until(is_done, within=30, sentence="every job has ended")
