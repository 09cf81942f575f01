"""What the pages show in these tests: a busy shop, and queues full of hostile texts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
from msgspec.msgpack import encode

from tampu.admin.audit import note
from tampu.admin.browsing import JobPlace
from tampu.admin.history import add_mark, processes_of
from tampu.app import App
from tampu.dashboard.app import MODULES
from tampu.job import Job
from tampu.limits import Concurrency, Rate
from tampu.outcome import Bury
from tampu.queue import Queue
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms, store_for
from tampu.timing import Every
from tampu.wire.alerts import AlertKind, StoredAlert, encode_alert
from tampu.wire.audit import AUDIT, AuditEntry
from tampu.wire.history import (
    FIRES_FIELD,
    MISSED_FIELD,
    PackedProcess,
    PackedRun,
    encode_history,
)
from tampu.wire.keys import MARKS, QueueKeys
from tampu.wire.output import encode_chunk
from tampu.worker import Worker
from tests.dashboards import HOSTILE, seed_history
from tests.waiting import wait_until

Handle = Callable[[Job[Any]], Awaitable[object]]
EMAILS: Final = "emails"
TASK: Final = "send_email"
JOB: Final = "order-1001"
HOSTILE_QUEUE: Final = '<script>alert("queue")</script>'

EMPTY: Final = ("", "queues", "search", "jobs", "dead", "schedules", "workers", "alerts", "audit")
"""Pages that exist without any queue."""
REFUSED: Final = ("queue?name=unknown", "no-such-page")

_QUERIES: Final[dict[str, dict[str, str]]] = {
    "": {},
    "queues": {},
    "queue": {"name": "queue", "limit": "limit"},
    "task": {"queue": "queue", "name": "task"},
    "jobs": {"queue": "queue"},
    "job": {"queue": "queue", "id": "job"},
    "dead": {"queue": "queue"},
    "edit": {"queue": "queue", "dead": "dead"},
    "bulk": {"id": "bulk"},
    "audit": {},
    "alerts": {},
    "flows": {"queue": "queue"},
    "flow": {"queue": "queue", "id": "flow"},
    "schedules": {"queue": "queue"},
    "schedule": {"queue": "queue", "key": "schedule"},
    "workers": {},
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
    flow: str
    done: str = ""
    limit: str = ""
    lined: str = ""  # a job that waits in a line

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
        jobs = [f"job?{dead_job}"]
        if self.lined:
            jobs.append(f"job?{urlencode({'queue': self.queue, 'id': self.lined})}")
        if self.done:
            jobs.append(f"job?{urlencode({'queue': self.queue, 'id': self.done})}")
        return [*links, *(f"jobs?{place}" for place in places), *jobs]

    async def _plan(self, site: str) -> str:
        """The id of an action on many jobs that waits for its confirmation."""
        form = {"queue": self.queue, "state": "dead", "action": "replay"}
        async with httpx.AsyncClient(base_url=site, headers={"origin": site.rstrip("/")}) as client:
            answer = await client.post("plan-bulk", data=form)
        assert answer.status_code == 303, answer.text
        return parse_qs(urlsplit(answer.headers["location"]).query)["id"][0]


@asynccontextmanager
async def busy_shop(url: str) -> AsyncIterator[Scene]:
    """Queues with a past, a backlog, dead letters, a schedule, alerts, and a worker that works."""
    scene, leave = await _fill_shop(url), asyncio.Event()

    async def resize(_: Job[Any]) -> None:
        await leave.wait()

    async def is_reported() -> bool:
        return any(each.running for each in await processes_of(lane, keys))

    keys = QueueKeys("images")
    with patch("tampu.consumer.history.EVERY_S", 0.5):
        async with Worker("images", resize, url, concurrency=4, version="shop 1.4"):
            async with await connect(url) as server, await Lane.open(server, keys.stream) as lane:
                await wait_until(is_reported, within=60, sentence="the worker has reported")
            try:
                yield scene
            finally:
                leave.set()


async def _fill_shop(url: str) -> Scene:
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
        await _seed_fires(url, QueueKeys(EMAILS), "nightly")
        await _limit(emails, TASK, "acme", job_id="held-1001")
        (dead, *_) = await emails.dead.peek()
    await _raise_alerts(url)
    held, limit = "held-1001", f"{TASK}(to)"
    flow = await _start_flow(url, EMAILS, [TASK, "send_newsletter"], on="images")
    return Scene(EMAILS, TASK, JOB, dead.dead_id, "nightly", flow, limit=limit, lined=held)


async def _seed_fires(url: str, keys: QueueKeys, schedule: str) -> None:
    """A schedule that fired every hour of the last day, and missed two fires."""
    async with await connect(url) as server, await Lane.open(server, keys.stream) as lane:
        last = await server_time_ms(lane) // 60_000
        for hour in range(1, 24):
            field = MISSED_FIELD if hour in {9, 10} else FIRES_FIELD
            key = keys.history(60, last - 60 * hour)
            await lane.call("HSET", key, field, encode([schedule, 1]))


async def _raise_alerts(url: str) -> None:
    """Alerts as workers leave them: two have fired, one has resolved."""
    async with await connect(url) as server, await Lane.open(server, b"x") as lane:
        now_ms = await server_time_ms(lane)
        for queue, key, kind, minutes, resolved, text in (
            (EMAILS, "oldest", AlertKind.OLDEST, 12, None, "the oldest job waits for 17m"),
            (EMAILS, "dead", AlertKind.DEAD_GROWING, 95, 41, "3 dead letters"),
            ("images", "failures:resize", AlertKind.FAILURE_RATE, 3, None, "8 % of resize failed"),
        ):
            resolved_ms = 0 if resolved is None else now_ms - resolved * 60_000
            sentence = f"Queue {queue!r}: {text}."
            fired_ms = now_ms - minutes * 60_000
            alert = StoredAlert(kind, 0, fired_ms, resolved_ms, sentence=sentence)
            await lane.call("HSET", QueueKeys(queue).alerts, key, encode_alert(alert))
        for text in ("v1.3", "v1.4"):
            await add_mark(lane, text)


async def hostile_queue(url: str, text: str = HOSTILE[0]) -> Scene:
    """A queue with harmful texts wherever a text can be: waiting, delayed, done and dead."""
    job_id, key = f"{text}-delayed", f"key {text}"
    async with Queue(HOSTILE_QUEUE, url) as queue:
        for each in HOSTILE:
            await queue.add(each, {each: list(HOSTILE)}, job_id=f"{each}-first", attempts=1)
        await _run(queue, url, _fail_badly, dead=len(HOSTILE))
        await _run(queue, url, _return_harm, done=await queue.add(text, job_id=f"{text}-done"))
        for each in HOSTILE:
            options: Any = {"headers": {each: each}, "job_id": f"{each}-delayed", "tenant": each}
            await queue.add(each, {each: list(HOSTILE)}, delay=3600, **options)
            await queue.schedules.add(each, Every("1h"), key=f"key {each}")
        await queue.add_each(text, list(HOSTILE))
        for each in HOSTILE:
            await _limit(queue, each, each, job_id=f"{each}-held")
        (dead, *_) = await queue.dead.peek()
    async with await connect(url) as server:
        await _report_harm(server, QueueKeys(HOSTILE_QUEUE))
    flow = await _start_flow(url, HOSTILE_QUEUE, HOSTILE, on=HOSTILE_QUEUE)
    found = Scene(HOSTILE_QUEUE, text, job_id, dead.dead_id, key, flow)
    return replace(found, done=f"{text}-done", lined=f"{text}-held", limit=f"{text}(to)")


async def _start_flow(url: str, queue: str, names: Sequence[str], *, on: str) -> str:
    """A flow with tasks of these names on a queue, each after the one before; returns its id."""
    app = App(url, default_queue=queue)
    flow, last = app.flow(names[0]), None
    for name in names:
        task = app.task(name=name, queue=on)(_take)
        node = flow.add(task, name)
        flow.map(task, [name] * 3)
        if last is not None:
            node.after(last)
        last = node
    run = await flow.start()
    await app.close()
    return run.id


async def _take(text: str) -> str:
    return text


async def _limit(queue: Queue, task: str, to: str, *, job_id: str) -> None:
    """Jobs with a key and limits, of which something was changed by hand, and some are paused."""
    limits = (Concurrency(1, by="to"), Rate("90/m", burst=5))
    for number in range(3):
        named: Any = {"job_id": job_id} if number == 2 else {}
        await queue.add(task, {"to": to}, key=to, priority=7, limits=limits, **named)
    await queue.limits.set(f"{task}(to)", Concurrency(3), value=to)
    await queue.limits.set(f"{task}()", Rate("1/s"))
    await queue.limits.weigh(to, 2)
    await queue.pause(task=f"{task} later", until="1h")
    await queue.pause(task=f"{task} later", key=to)
    for _ in range(2):
        await queue.add(f"{task} sync", key=to, keep="latest")


async def _report_harm(server: Server, keys: QueueKeys) -> None:
    """Harmful texts in alerts, marks, the audit stream and the reports of workers."""
    async with await Lane.open(server, keys.stream) as lane:
        now_ms = await server_time_ms(lane)
        for number, each in enumerate(HOSTILE, 1):
            output = keys.output(f"{HOSTILE[0]}-delayed")
            chunk = ("a", 1, "v", encode_chunk(each if number % 2 else {each: each}))
            await lane.call("XADD", output, f"1-{number}", *chunk)
        for number, each in enumerate(HOSTILE):
            resolved_ms = now_ms if number % 2 else 0
            alert = StoredAlert(AlertKind.OLDEST, 0, now_ms - 9000, resolved_ms, sentence=each)
            await lane.call("HSET", keys.alerts, f"oldest:{each}", encode_alert(alert))
            worker = f"c-{each}".encode()
            await lane.call("XGROUP", "CREATECONSUMER", keys.stream, "default", worker)
            runs = [PackedRun(each, each, 1, now_ms - 5000)]
            report = PackedProcess(now_ms, each, 7, 2, 0.5, 3.0, 4, runs, 1, each, each, each)
            await store_for(lane, keys.process(worker), encode_history(report), ttl_ms=600_000)
    async with await Lane.open(server, AUDIT) as lane:
        for each in HOSTILE:
            await lane.call("XADD", MARKS, "*", "text", each)
            entry = AuditEntry(user=each, action=each, queue=keys.name, what=each, outcome=each)
            await note(lane, entry)


async def _return_harm(_: Job[Any]) -> list[str]:
    return list(HOSTILE)


async def _fail(job: Job[Any]) -> None:
    raise Bury(f"the address of job {job.name} does not exist")


async def _fail_badly(job: Job[Any]) -> None:
    if job.name == HOSTILE[0]:
        raise Bury(job.name)
    raise ValueError(job.name, *HOSTILE)


async def _run(
    queue: Queue, url: str, handle: Handle, *, dead: int = 0, done: Job[Any] | None = None
) -> None:
    """Run the jobs until so many are dead, or until that one is done."""

    async def are_dead() -> bool:
        return (await queue.counts()).dead == dead

    async with Worker(queue.name, handle, url, store_results=True):
        if done is None:
            await wait_until(are_dead, within=60, sentence="every job has ended")
        else:
            await done.result(timeout=30)
