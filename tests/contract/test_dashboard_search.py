"""What the search box of the dashboard finds, and where it says that it has not looked."""

import re
from html import unescape
from urllib.parse import urlencode

import pytest
from msgspec.msgpack import encode

from tampu.dashboard import Access
from tampu.dashboard.pages import search
from tampu.job import Job
from tampu.limits import Concurrency
from tampu.queue import Queue
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms
from tampu.timing import Cron
from tampu.wire.alerts import AlertKind, StoredAlert
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.dashboards import HOSTILE, Visit, assert_harmless, bury
from tests.servers import RunningServer

KEYS = QueueKeys("emails")


def path_of(wanted: str) -> str:
    return f"/search?{urlencode({'q': wanted})}"


@pytest.mark.parametrize(
    ("wanted", "link"),
    [
        ("my-job", "job?queue=emails&amp;id=my-job"),
        ("later", "job?queue=emails&amp;id=later"),
        ("iges", "schedule?queue=emails&amp;key=digest"),
        ("EMAI", "queue?name=emails"),
    ],
)
async def test_the_search_box_finds_jobs_queues_and_schedules(
    visit: Visit, running: RunningServer, wanted: str, link: str
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.schedules.add("send", Cron("0 9 * * *"), key="digest")
        await queue.add("send", job_id="my-job")
        await queue.add("send", job_id="later", delay=3600)
    assert f'href="{link}"' in (await visit().get(path_of(wanted))).text
    hidden = (await visit(access=Access.read("others")).get(path_of(wanted))).text
    assert "Nothing was found" in hidden


async def test_the_search_box_finds_a_dead_letter_by_the_id_of_its_job(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        (dead_id,) = await bury(running.url, queue, {"n": 1})
        letter = await queue.dead.get(dead_id)
        assert letter is not None
    page = (await visit().get(f"/search?q={letter.job_id}")).text
    assert f'href="job?queue=emails&amp;dead={dead_id}"' in page


NAMES = (
    ("WELCO", "Task of emails", "task?queue=emails&name=welcome"),
    ("bill(", "Limit of emails", "queue?name=emails#limits"),
    ("acme", "Value of limit bill(tenant) of emails", "queue?name=emails#limits"),
    ("cust", "Key of emails", "jobs?queue=emails&state=waiting&key=customer-7"),
    ("vip", "Paused key of emails", "queue?name=emails#held"),
    ("waits for", "Alert of emails, fired", "alerts"),
    ("OLDEST", "Alert of emails, fired", "alerts"),
)


async def test_the_search_box_finds_tasks_limits_keys_and_alerts(
    visit: Visit, running: RunningServer, server: Server
) -> None:
    async def welcome(job: Job[object]) -> None:
        del job

    async with Queue("emails", running.url) as queue:
        async with Worker("emails", {"welcome": welcome}, running.url):
            await queue.add("welcome")
            await queue.drain(timeout=30)
        limit = Concurrency(1, by="tenant")
        for _ in range(2):
            await queue.add("bill", {"tenant": "acme"}, key="customer-7", limits=[limit])
        await queue.limits.set("bill(tenant)", Concurrency(2), value="acme")
        await queue.pause(key="vip")
    async with await Lane.open(server, KEYS.stream) as lane:
        state = StoredAlert(
            AlertKind.OLDEST,
            fired_ms=await server_time_ms(lane) - 60_000,
            sentence="Queue 'emails': the oldest job waits for an hour.",
        )
        await lane.call("HSET", KEYS.alerts, "oldest", encode(state))
    client, other = visit(), visit(access=Access.read("others"))
    for wanted, kind, link in NAMES:
        page = unescape((await client.get(path_of(wanted))).text)
        assert f'href="{link}"' in page
        assert f">{kind}</td>" in page
        assert "Nothing was found" in (await other.get(path_of(wanted))).text


async def test_the_search_box_finds_workers_by_id_and_host(
    visit: Visit, running: RunningServer
) -> None:
    async def send(job: Job[object]) -> None:
        del job

    client = visit()
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
        async with Worker("emails", send, running.url) as worker:
            page = (await client.get(path_of(worker.id[2:]))).text
            (href,) = re.findall(r'href="(workers#[^"]+)"', page)
            assert re.search(r">Worker, alive, on \S+</td>", page)
            assert f'id="{href.partition("#")[2]}"' in (await client.get("/workers")).text
            host = re.search(r">Worker, alive, on (\S+)</td>", page)
            assert host is not None
            assert href in (await client.get(path_of(host[1]))).text
            hidden = (await visit(access=Access.read("others")).get(path_of(worker.id))).text
            assert "Nothing was found" in hidden


async def test_what_a_limit_counts_by_is_not_found_if_it_is_hidden(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        for _ in range(2):
            await queue.add("bill", {"password": "hunter2"}, limits=[Concurrency(1, by="password")])
        await queue.limits.set("bill(password)", Concurrency(2), value="hunter2")
    assert "Nothing was found" in (await visit().get(path_of("hunter2"))).text


async def test_a_job_is_found_in_any_of_many_queues(visit: Visit, running: RunningServer) -> None:
    names = [f"queue-{number:03}" for number in range(120)]
    for name in names:
        async with Queue(name, running.url) as queue:
            await queue.add("send", job_id=f"job-of-{name}")
    client = visit()
    for name in (names[0], names[60], names[-1]):
        page = (await client.get(path_of(f"job-of-{name}"))).text
        assert f'href="job?queue={name}&amp;id=job-of-{name}"' in page
        assert "was looked for in" not in page


@pytest.mark.parametrize("setting", ["_LONGEST_S", "_MOST_QUEUES"])
async def test_a_search_that_left_queues_out_says_so(
    visit: Visit, running: RunningServer, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    for number in range(7):
        async with Queue(f"queue-{number}", running.url) as queue:
            await queue.add("send", job_id=f"job-{number}")
    monkeypatch.setattr(search, "_QUEUES_AT_A_TIME", 2)
    monkeypatch.setattr(search, setting, {"_LONGEST_S": -1.0, "_MOST_QUEUES": 2}[setting])
    client = visit()
    page = (await client.get(path_of("job-6"))).text
    assert "A job with this id was looked for in 2 of 7 queues." in page
    assert "Nothing was found" in page
    assert "was looked for" not in (await client.get(path_of("job-1"))).text


async def test_a_search_that_left_jobs_out_says_so(
    visit: Visit, running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST_SEARCHED", 1)
    for name in ("big", "bigger", "small"):
        async with Queue(name, running.url) as queue:
            await queue.add_each("send", range(3 if name == "small" else 3000))
    page = (await visit().get(path_of("a-peer-s-id"))).text
    assert "Of big and 1 more queue, only 1 jobs of each state were searched for this id." in page


async def test_hostile_names_are_found_and_escaped(visit: Visit, running: RunningServer) -> None:
    async with Queue("emails", running.url) as queue:
        for text in HOSTILE:
            await queue.add("send", key=text, limits=[Concurrency(1)])
            await queue.add("send", key=text, limits=[Concurrency(1)])
    client = visit()
    for text in HOSTILE:
        page = (await client.get(path_of(text))).text
        assert_harmless(page)
        assert ">Key of emails</td>" in page
