"""Pages of jobs and dead letters over a real server, and what is done to one job."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlencode

import pytest

from tampu import INJECTED, App, AppWorker, Backoff, Job
from tampu.dashboard import Access
from tampu.job import CancelState, JobState
from tampu.queue import Queue
from tampu.worker import Worker
from tests.dashboards import HOSTILE, SAME_ORIGIN, Visit, act, assert_harmless, bury
from tests.servers import RunningServer
from tests.waiting import wait_until

# --- listing ------------------------------------------------------------------------------------


async def test_jobs_are_listed_newest_first_page_by_page(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        added = await queue.add_each("send", [{"n": n} for n in range(120)])
    client, seen, path = visit(), list[str](), "/jobs?queue=emails"
    for _ in range(3):
        page = (await client.get(path)).text
        assert_harmless(page)
        seen += re.findall(r'<th scope="row"><a[^>]*title="([^"]+)"', page)
        found = re.search(r'href="(jobs\?[^"]*after=[^"]*)" rel="next"', page)
        path = "/" + found[1].replace("&amp;", "&") if found else ""
    assert seen == [job.id for job in reversed(added)]
    assert path == "", "there is no further page"


async def test_delayed_jobs_that_are_due_together_are_all_listed(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        added = await queue.add_each("send", range(120), delay=3600)
    client, seen, path = visit(), set[str](), "/jobs?queue=emails&state=delayed"
    while path:
        page = (await client.get(path)).text
        seen |= set(re.findall(r'title="([0-9A-Z]{26})"', page))
        found = re.search(r'href="(jobs\?[^"]*after=[^"]*)" rel="next"', page)
        path = "/" + found[1].replace("&amp;", "&") if found else ""
    assert seen == {job.id for job in added}


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"task": "bill"}, {"b"}),
        ({"q": "ADA@example"}, {"a"}),
        ({"q": "4711"}, {"b"}),
        ({"q": "trace-me"}, {"c"}),
        ({"q": "hunter2"}, set()),  # hidden values cannot be searched for
        ({"q": "a", "task": "nothing"}, set()),
    ],
)
async def test_jobs_are_found_by_task_payload_and_header(
    visit: Visit, running: RunningServer, query: Mapping[str, str], ids: set[str]
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send", {"to": "ada@example.org", "password": "hunter2"}, job_id="a")
        await queue.add("bill", {"order": {"id": 4711}}, job_id="b")
        await queue.add("send", headers={"x-request": "trace-me"}, job_id="c")
    page = (await visit().get(f"/jobs?{urlencode({'queue': 'emails', **query})}")).text
    assert set(re.findall(r'title="([abc])"', page)) == ids
    assert "Searched 3 of 3 waiting jobs." in page


async def test_a_search_ends_after_twenty_thousand_jobs_and_says_so(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("wanted")
        await queue.add_each("send", range(20_050))
    client = visit()
    page = (await client.get("/jobs?queue=emails&task=wanted")).text
    assert "Searched 20\u202f000 of 20\u202f051 waiting jobs." in page
    assert "Nothing matches" in page
    found = re.search(r'href="(jobs\?[^"]*after=[^"]*)" rel="next"', page)
    assert found is not None
    page = (await client.get("/" + found[1].replace("&amp;", "&"))).text
    assert "Searched 51 of" in page
    assert page.count('<tr data-row="') == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs?queue=nothing", 404),
        ("/jobs?queue=secret", 404),
        ("/jobs?queue=emails&state=done", 400),
        ("/jobs?queue=emails&after=x", 400),
        ("/jobs?queue=emails&state=delayed&after=1-1", 400),
        ("/jobs?queue=emails&q=" + "x" * 600, 400),
        ("/job?queue=emails&id=nothing", 404),
        ("/job?queue=emails", 404),
        ("/job?queue=emails&dead=x", 400),
        ("/job?queue=emails&dead=1-1", 404),
        ("/job?queue=secret&id=s", 404),
        ("/edit?queue=emails&dead=1-1", 404),
        ("/edit?queue=emails&dead=x", 400),
        ("/dead?queue=secret", 404),
        ("/bulk?id=x", 404),
        ("/bulk?id=0123456789abcdef", 404),
        ("/audit?after=x", 400),
        ("/jobs?queue=emails&state=active", 200),
        ("/jobs?queue=emails&after=" + "9" * 20 + "-1", 400),
        ("/jobs?queue=emails&after=0-0", 400),
        ("/jobs?queue=emails&after=" + "9" * 19 + "-1", 200),
        ("/jobs?queue=emails&state=active&after=" + "9" * 19 + "-1", 200),
        ("/jobs?queue=emails&state=delayed&after=" + "9" * 16 + ":" + "9" * 9, 200),
        ("/job?queue=emails&dead=" + "9" * 20 + "-1", 400),
        ("/audit?after=" + "9" * 20 + "-1", 400),
    ],
)
async def test_what_is_unknown_or_hidden_gets_a_clear_page(
    visit: Visit, running: RunningServer, path: str, status: int
) -> None:
    for name, job_id in (("emails", "e"), ("secret", "s")):
        async with Queue(name, running.url) as queue:
            await queue.add("send", job_id=job_id)
    page = await visit(access=Access.full("emails")).get(path)
    assert page.status_code == status, page.text
    assert_harmless(page.text)


async def test_hostile_texts_are_escaped_on_every_page_of_jobs(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        for text in HOSTILE:
            await bury(running.url, queue, {"n": text, text: [text, {text: text}]}, name=text)
        for text in HOSTILE:
            payload = {text: [text, {text: text}]}
            await queue.add(text, payload, headers={text: text}, job_id=f"id {text}")
            await queue.add(text, payload, delay=3600)
    client = visit()
    paths = [f"/jobs?queue=emails&state={state}" for state in ("waiting", "delayed", "dead")]
    paths += ["/dead?queue=emails", "/audit", "/schedules", "/workers"]
    for text in HOSTILE:
        paths += [f"/jobs?{urlencode({'queue': 'emails', 'q': text, 'task': text})}"]
        paths += [f"/job?{urlencode({'queue': 'emails', 'id': f'id {text}'})}"]
    async with Queue("emails", running.url) as queue:
        letters = await queue.dead.peek(10)
    paths += [f"/job?queue=emails&dead={letter.dead_id}" for letter in letters]
    paths += [f"/edit?queue=emails&dead={letter.dead_id}" for letter in letters]
    for path in paths:
        page = await client.get(path)
        assert page.status_code == 200, path
        assert "<script>alert" not in page.text
        assert ">49<" not in page.text
        assert_harmless(page.text)


# --- one job ------------------------------------------------------------------------------------


async def test_a_job_shows_its_payload_without_secrets_and_its_trace(
    visit: Visit, running: RunningServer
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with Queue("emails", running.url) as queue:
        await queue.add(
            "send",
            {"to": "ada", "password": "hunter2", "card": {"number": "4242", "api_key": "k-1"}},
            job_id="one",
            headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01", "cookie": "c-1"},
        )
    page = (await visit().get("/job?queue=emails&id=one")).text
    assert "4242" in page
    assert f"<dd>{trace}</dd>" in page
    assert not re.search("hunter2|k-1|c-1", page)
    page = (await visit(show=["to"]).get("/job?queue=emails&id=one")).text
    assert "ada" in page
    assert not re.search("hunter2|k-1|c-1|4242", page)


async def test_a_dead_letter_shows_its_error_and_what_happened(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        (dead_id,) = await bury(running.url, queue, {"n": 7})
    client = visit()
    page = (await client.get(f"/job?queue=emails&dead={dead_id}")).text
    assert "cannot send 7" in page
    assert "Traceback (most recent call last)" in page
    for title in ("Added", "Attempt 1 started", "Buried"):
        assert f"<b>{title}</b>" in page
    groups = (await client.get("/dead?queue=emails")).text
    assert "cannot send 7" in groups
    assert "Replay all…" in groups


async def test_a_result_is_shown_without_secrets(visit: Visit, running: RunningServer) -> None:
    async def handler(_: object) -> object:
        return {"sent": "yes-it-was", "token": "t-1"}

    async with Queue("emails", running.url) as queue:
        job = await queue.add("send", job_id="one")
        worker = Worker("emails", handler, running.url, store_results=True)
        await worker.start()
        await job.result(timeout=10)
        await worker.stop()
    page = (await visit().get("/job?queue=emails&id=one")).text
    assert "yes-it-was" in page
    assert "t-1" not in page


async def test_a_job_is_cancelled_run_now_and_rescheduled(
    visit: Visit, running: RunningServer
) -> None:
    client = visit(access=Access.full(user="ada"))
    async with Queue("emails", running.url) as queue:
        for job_id in ("a", "b", "c"):
            await queue.add("send", job_id=job_id, delay=3600)
        assert (await act(client, "/cancel-job", queue="emails", id="a")).json()[
            "sentence"
        ] == "The job is cancelled."
        assert (await queue.job("a").info()).state is JobState.CANCELLED
        assert (await act(client, "/cancel-job", queue="emails", id="a")).json()[
            "sentence"
        ] == "Too late: the job has ended."
        assert (await act(client, "/run-job", queue="emails", id="b")).status_code == 200
        assert (await queue.job("b").info()).state is JobState.WAITING
        before = (await queue.job("c").info()).due_at
        moved = await act(client, "/reschedule-job", queue="emails", id="c", delay="2h")
        assert moved.json() == {"sentence": "The job is due in 2h.", "go": None}
        after = (await queue.job("c").info()).due_at
        assert before is not None
        assert after is not None
        assert after > before
        wrong = await act(client, "/reschedule-job", queue="emails", id="c", delay="soon")
        assert wrong.status_code == 400
        assert "delay must be" in wrong.json()["sentence"]
    audit = (await client.get("/audit")).text
    for what in ("job a", "job b", "job c to in 2h"):
        assert what in audit
    assert "ada" in audit


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/cancel-job", {"id": "one"}),
        ("/run-job", {"id": "one"}),
        ("/reschedule-job", {"id": "one", "delay": "1h"}),
        ("/replay-letter", {"dead": "DEAD"}),
        ("/discard-letter", {"dead": "DEAD"}),
        ("/replay-edited", {"dead": "DEAD", "data": "{}"}),
        ("/plan-bulk", {"state": "delayed", "action": "cancel"}),
    ],
)
async def test_nobody_acts_who_may_not(
    visit: Visit, running: RunningServer, path: str, fields: Mapping[str, str]
) -> None:
    async with Queue("emails", running.url) as queue:
        (dead_id,) = await bury(running.url, queue, {"n": 1})
        await queue.add("send", job_id="one", delay=3600)
        given = {k: dead_id if v == "DEAD" else v for k, v in fields.items()}
        before = await queue.counts()
        for options, status in (
            ({"access": Access.read()}, 403),
            ({"read_only": True}, 403),
            ({"access": Access.full("others")}, 404),
        ):
            client = visit(**options)
            answer = await client.post(path, data={"queue": "emails", **given}, headers=SAME_ORIGIN)
            assert answer.status_code == status
            assert_harmless(answer.text)
        assert (await visit().get(path)).status_code == 405
        assert await queue.counts() == before
    reader = visit(access=Access.read())
    for page in ("/jobs?queue=emails&state=delayed", f"/job?queue=emails&dead={dead_id}", "/dead"):
        assert 'method="post"' not in (await reader.get(page)).text
    assert (await reader.get(f"/edit?queue=emails&dead={dead_id}")).status_code == 403


async def test_an_active_job_is_listed_with_its_worker_and_cancelled(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send", job_id="one")
        async with RunningJob(running.url) as worker:
            client = visit()
            page = (await client.get("/jobs?queue=emails&state=active")).text
            assert 'title="one"' in page
            assert worker in page
            answer = await act(client, "/cancel-job", queue="emails", id="one")
            assert answer.json()["sentence"] == "Its worker was asked to stop the job."
            await wait_until(
                lambda: is_cancelled(queue), within=60, sentence="the job is cancelled"
            )


async def is_cancelled(queue: Queue) -> bool:
    """Whether the job has ended so."""
    return await queue.job("one").cancel() is CancelState.TOO_LATE


class RunningJob:
    """A worker that holds the jobs of the queue "emails"; gives its id."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._worker: Worker | None = None

    async def __aenter__(self) -> str:
        async def handler(_: object) -> None:
            await asyncio.Event().wait()

        self._worker = Worker("emails", handler, self._url, grace="0s")
        await self._worker.start()
        async with Queue("emails", self._url) as queue:

            async def is_active() -> bool:
                return (await queue.counts()).active == 1

            await wait_until(is_active, within=60, sentence="a job is active")
            async for info in queue.jobs(state="active"):
                return info.worker or ""
        raise AssertionError("no job is active")

    async def __aexit__(self, *exc: object) -> None:
        assert self._worker is not None
        await self._worker.stop()


# --- what a job yields --------------------------------------------------------------------------


async def test_the_page_of_a_job_shows_what_its_latest_attempt_yields(
    visit: Visit, running: RunningServer
) -> None:
    app = App(running.url, default_queue="emails")

    @app.task(attempts=2, backoff=Backoff.fixed(0), collect=len)
    async def answer(job: Job = INJECTED) -> AsyncIterator[object]:
        yield f"{job.attempt}. "
        if job.attempt == 1:
            raise ValueError("again")
        for each in HOSTILE:
            yield each
        yield {"words": 5, "password": "hunter2"}

    async with app, AppWorker(app):
        job = await answer.enqueue()
        assert await job.result(timeout=60) == len(HOSTILE) + 2
    page = (await visit().get(f"/job?queue=emails&id={job.id}")).text
    assert_harmless(page)
    shown = page.partition('class="yielded"')[2].partition("</pre>")[0]
    assert "2. " in shown
    assert "1. " not in shown
    assert "words: 5, password: " in shown
    assert "hunter2" not in page
    assert f"{len(HOSTILE) + 2} chunks of attempt 2<" in page


async def test_the_page_shows_the_end_of_a_long_stream(
    visit: Visit, running: RunningServer
) -> None:
    app = App(running.url, default_queue="emails")

    @app.task(collect=len)
    async def answer() -> AsyncIterator[str]:
        for number in range(700):
            yield f"<{number}>"

    async with app, AppWorker(app):
        job = await answer.enqueue()
        await job.result(timeout=60)
    page = (await visit().get(f"/job?queue=emails&id={job.id}")).text
    assert "700 chunks of attempt 1, the latest" in page
    assert "&lt;699&gt;" in page
    assert "&lt;9&gt;" not in page


async def test_a_job_that_does_not_yield_has_no_such_part(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        job = await queue.add("send")
    page = (await visit().get(f"/job?queue=emails&id={job.id}")).text
    assert 'class="yielded"' not in page
