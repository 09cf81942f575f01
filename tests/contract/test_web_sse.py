"""Server-sent events of a job: progress, chunks and the end, and what a client that left frees."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from tampu import INJECTED, App, Bury, Job, OptionError, Retry, ServerUnreachable, Worker
from tampu.web import SSE_HEADERS, event_stream, sse
from tests.contract.apps import working
from tests.contract.web import Sent, declare_report, next_sent, parse, sent
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


@dataclass
class Row:
    number: int


class Model(BaseModel):
    name: str


class TestProgress:
    async def test_progress_then_the_result(self, app: App) -> None:
        report = declare_report(app)
        async with working(app):
            events = await sent(await report.enqueue(2026))
        assert [(each.kind, each.data) for each in events] == [
            *[("progress", percent) for percent in (25, 50, 75, 100)],
            ("done", {"year": 2026}),
        ]
        assert all(each.id for each in events[:-1])
        assert events[-1].id is None

    async def test_a_client_that_comes_back_misses_nothing_and_sees_nothing_twice(
        self, app: App
    ) -> None:
        go = asyncio.Event()

        @app.task
        async def slow(job: Job = INJECTED) -> str:
            for percent in range(0, 100, 10):
                job.progress(percent)
                if percent == 50:
                    await go.wait()
            return "done"

        async with working(app):
            job = await slow.enqueue()
            seen: list[Sent] = []
            async with aclosing(sse(job)) as body:
                while len(seen) < 3:
                    seen += await next_sent(body)
            seen = seen[:3]  # as if the connection broke here
            go.set()
            rest = await sent(app.queue().job(job.id), after=seen[-1].id)
            again = await sent(job, after=rest[-2].id)
        assert [each.data for each in seen + rest] == [*range(0, 100, 10), "done"]
        assert [(each.kind, each.data) for each in again] == [("done", "done")]

    async def test_a_client_that_comes_back_far_behind_on_a_busy_queue(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.events.EVENTS_A_READ", 10)
        report = declare_report(app)
        async with working(app):
            job = await report.enqueue(2026)
            first, *others = await sent(job)
            for other in await report.enqueue_many([report.call(year) for year in range(20)]):
                await other.result(20)  # a hundred events that follow
            assert await sent(job, after=first.id) == others

    async def test_the_error_of_a_failed_job_is_shown_only_if_asked_for(self, app: App) -> None:
        @app.task
        async def failing() -> None:
            raise Bury("no figures for that year")

        async with working(app):
            job = await failing.enqueue()
            assert await sent(job) == [("failed", {"reason": "unrecoverable"}, None)]
            (shown,) = await sent(job, show_errors=True)
        assert shown.data == {"reason": "unrecoverable", "message": "no figures for that year"}

    async def test_a_cancelled_job(self, app: App) -> None:
        report = declare_report(app)
        job = await report.enqueue(1)
        async with aclosing(sse(job)) as body:
            assert await anext(body) == b":\n\n"
            await job.cancel()
            assert await next_sent(body) == [("cancelled", None, None)]
        await app.close()

    async def test_a_job_of_a_worker_that_stores_no_results(
        self, app: App, running: RunningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_stream, "_RESULT_S", 0.1)
        async with app, Worker("default", lambda _: None, running.url):
            job = await app.queue().add("anything")
            assert await sent(job) == [("done", None, None)]

    async def test_a_job_that_does_not_exist(self, app: App) -> None:
        async with app:
            (end,) = await sent(app.queue().job("nobody"))
        assert (end.kind, end.id) == ("gone", None)
        assert "no such job" in end.data

    async def test_a_server_that_is_slower_than_a_look_does_not_end_it(
        self, app: App, running: RunningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_stream, "_LOOK_S", 0.01)
        monkeypatch.setattr("tampu.results._SHORTEST_LIMIT_S", 0.05)
        async with app:
            job = app.queue().job("nobody")
            await job.info()  # connects
            running.pause()
            try:
                following = asyncio.create_task(sent(job))
                with pytest.raises(ServerUnreachable):
                    await job.result(0.5)  # the stream has given up its look long before
            finally:
                running.resume()
            (end,) = await following
        assert end.kind == "gone"

    async def test_comments_while_nothing_happens(self, app: App) -> None:
        report = declare_report(app)
        async with app:
            async with aclosing(sse(await report.enqueue(1), heartbeat=0.02)) as body:
                assert [await anext(body) for _ in range(4)] == [b":\n\n"] * 4


class TestOutput:
    async def test_chunks_in_the_type_that_is_yielded_with_progress_between(self, app: App) -> None:
        @app.task(collect=list)
        async def rows(job: Job = INJECTED) -> AsyncIterator[Row | Model]:
            yield Row(1)
            job.progress(50)
            yield Model(name="two")

        async with working(app):
            events = await sent(await rows.enqueue())
        messages = [each.data for each in events if each.kind == "message"]
        assert messages == [{"number": 1}, {"name": "two"}]
        assert [each.data for each in events if each.kind == "progress"] == [50]
        assert events[-1] == ("done", None, None)

    async def test_every_place_to_come_back_from(self, app: App) -> None:
        @app.task
        async def count(job: Job = INJECTED) -> AsyncIterator[int]:
            for number in range(5):
                yield number
                job.progress(number)

        async with working(app):
            job = await count.enqueue()
            whole = await sent(job)
            assert len(whole) == 11
            for place in range(10):
                rest = await sent(count.job(job.id), after=whole[place].id)
                # Chunks and progress are two streams: each in its order, and nothing twice.
                assert sorted(map(str, _seen(rest))) == sorted(map(str, _seen(whole[place + 1 :])))
                for kind in ("message", "progress"):
                    own = [each for each in _seen(whole) if each[0] == kind]
                    late = [each for each in _seen(rest) if each[0] == kind]
                    assert late == own[len(own) - len(late) :]

    async def test_another_attempt_restarts(self, app: App) -> None:
        @app.task(attempts=2)
        async def answer(job: Job = INJECTED) -> AsyncIterator[str]:
            yield f"attempt {job.attempt}"
            if job.attempt == 1:
                raise Retry(after=0)

        async with working(app):
            job = await answer.enqueue()
            events = [each for each in await sent(job) if each.kind != "progress"]
        assert [(each.kind, each.data) for each in events] == [
            ("message", "attempt 1"),
            ("restarted", {"attempt": 2}),
            ("message", "attempt 2"),
            ("done", None),
        ]

    async def test_a_failed_one(self, app: App) -> None:
        @app.task(attempts=1)
        async def answer() -> AsyncIterator[str]:
            yield "it"
            raise ValueError("secret")

        async with working(app):
            events = await sent(await answer.enqueue())
        assert [each.kind for each in events] == ["message", "failed"]
        assert "secret" not in str(events)

    async def test_chunks_that_are_gone(self, app: App) -> None:
        @app.task
        async def answer() -> AsyncIterator[str]:
            yield "it"

        async with working(app):
            (end,) = await sent(answer.job("nobody"))
        assert end.kind == "gone"


def _seen(events: list[Sent]) -> list[tuple[str, Any]]:
    return [(each.kind, each.data) for each in events]


class TestBadInput:
    @pytest.mark.parametrize(
        "given", ["x", "12-3", "e", "c1", "e1-2.", ".c1-2", "e1-2c3-4\n", "ex-1", 7]
    )
    async def test_an_id_that_is_none_of_ours(self, app: App, given: Any) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match=r"Invalid after .*expected the id of an event"):
            sse(app.queue().job("j"), after=given)

    async def test_an_empty_id_is_none(self, app: App) -> None:
        report = declare_report(app)
        async with working(app):
            assert len(await sent(await report.enqueue(1), after="")) == 5

    async def test_what_is_no_job(self) -> None:
        with pytest.raises(OptionError, match=r"Invalid job .*expected a job, or a SyncJob"):
            sse("j")  # type: ignore[call-overload] # wrong

    async def test_a_heartbeat_of_nothing(self, app: App) -> None:
        with pytest.raises(OptionError, match="Invalid heartbeat 0"):
            sse(app.queue().job("j"), heartbeat=0)


def test_without_an_event_loop(app: App) -> None:
    report = declare_report(app)

    @app.task
    async def count() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def run() -> None:
        async with working(app) as worker:
            await wait_until(lambda: worker.health is not None, within=SOON, sentence="it runs")
            await asyncio.to_thread(read)

    def read() -> None:
        job = report.enqueue_sync(2026)
        events = parse(b"".join(sse(job)))
        assert [each.data for each in events] == [25, 50, 75, 100, {"year": 2026}]
        rest = parse(b"".join(sse(report.job_sync(job.id), after=events[1].id)))
        assert rest == events[2:]
        chunks = parse(b"".join(sse(count.enqueue_sync())))
        assert [each.data for each in chunks] == [1, 2, None]
        left = sse(job)
        next(left)
        left.close()

    asyncio.run(run())
    app.close_sync()


def test_the_headers_are_those_of_server_sent_events() -> None:
    assert SSE_HEADERS["Content-Type"] == "text/event-stream"
