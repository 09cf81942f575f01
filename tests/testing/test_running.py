"""Running jobs in a test."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from traceback import format_exception
from typing import Annotated

import pytest

from tampu import (
    INJECTED,
    App,
    AppWorker,
    Backoff,
    Bury,
    Cron,
    Depends,
    EventKind,
    Job,
    JobFailed,
    OptionError,
    Queue,
    QueueEvents,
    Retry,
    Snooze,
    TampuError,
    WrongContext,
    current_job,
)
from tampu.testing import Kit, use

ELSEWHERE = "redis://192.0.2.1:6379/3"


class Shop:
    """An app whose server does not exist, and what its tasks have done."""

    def __init__(self) -> None:
        self.app = App(ELSEWHERE, default_queue="orders")
        self.log: list[str] = []


@pytest.fixture
def shop() -> Shop:
    made = Shop()

    @made.app.task
    async def note(text: str) -> str:
        made.log.append(text)
        return text.upper()

    @made.app.task(attempts=3, backoff=Backoff.fixed(60))
    def fail(text: str = "no") -> None:
        made.log.append("fail")
        raise ValueError(text)

    return made


class TestRun:
    async def test_it_runs_jobs_in_the_order_in_which_they_were_added(
        self, tampu: Kit, shop: Shop
    ) -> None:
        note = shop.app.tasks["note"]
        async with tampu.use(shop.app) as jobs:
            for text in "abc":
                await note.enqueue(text)
            await note.options(queue="others").enqueue("d")
            await note.enqueue("e")
            assert shop.log == []
            ran = await jobs.run()
        assert shop.log == list("abcde")
        assert [each.value for each in ran] == list("ABCDE")
        assert [each.job.attempt for each in ran] == [1] * 5

    async def test_it_runs_what_jobs_add(self, tampu: Kit, shop: Shop) -> None:
        @shop.app.task(queue="first")
        async def begin() -> None:
            await shop.app.tasks["note"].enqueue("from begin")

        async with tampu.use(shop.app) as jobs:
            await begin.enqueue()
            assert [each.name for each in await jobs.run()] == ["begin", "note"]
            assert await jobs.run() == []
            assert [each.name for each in jobs.attempts] == ["begin", "note"]

    async def test_results_can_be_asked_for(self, tampu: Kit, shop: Shop) -> None:
        async with tampu.use(shop.app) as jobs:
            done, failed = [await shop.app.tasks[name].enqueue("x") for name in ("note", "fail")]
            await jobs.run(raise_errors=False)
            await jobs.travel("10m", raise_errors=False)
            assert await done.result() == "X"
            with pytest.raises(JobFailed, match="ValueError: x"):
                await failed.result()

    async def test_the_first_error_is_raised_from_where_it_was_raised(
        self, tampu: Kit, shop: Shop
    ) -> None:
        async with tampu.use(shop.app) as jobs:
            await shop.app.tasks["fail"].enqueue("the card is invalid")
            await shop.app.tasks["note"].enqueue("after")
            with pytest.raises(ValueError, match="the card is invalid") as caught:
                await jobs.run()
            text = "".join(format_exception(caught.value))
            assert "raise ValueError(text)" in text
            assert "_call" not in text, "frames of tampu are between the test and the task"
            assert "(fail) of queue orders, attempt 1 of 3." in text
            assert shop.log == ["fail"]
            await jobs.run()
        assert shop.log == ["fail", "after"]

    async def test_without_raising_all_errors_are_in_the_attempts(
        self, tampu: Kit, shop: Shop
    ) -> None:
        async with tampu.use(shop.app) as jobs:
            await shop.app.tasks["fail"].enqueue("this")
            await shop.app.tasks["note"].enqueue("after")
            first, second = await jobs.run(raise_errors=False)
        assert isinstance(first.error, ValueError)
        assert str(first.error) == "this"
        assert second.error is None

    async def test_asking_for_another_attempt_is_no_error_until_the_last(
        self, tampu: Kit, shop: Shop
    ) -> None:
        @shop.app.task(attempts=2)
        async def unsure() -> Retry:
            return Retry("not yet", after="1m")

        async with tampu.use(shop.app) as jobs:
            await unsure.enqueue()
            (attempt,) = await jobs.run()
            assert isinstance(attempt.error, Retry)
            with pytest.raises(Retry, match="not yet"):
                await jobs.travel("1m")

    async def test_snoozing_is_no_error_and_burying_is_one(self, tampu: Kit, shop: Shop) -> None:
        @shop.app.task
        async def sleepy(job: Job[None] = INJECTED) -> None:
            if jobs.now() == began:
                raise Snooze("1h")
            raise Bury(f"attempt {job.attempt}")

        async with tampu.use(shop.app) as jobs:
            began = jobs.now()
            await sleepy.enqueue()
            (attempt,) = await jobs.run()
            assert isinstance(attempt.error, Snooze)
            with pytest.raises(Bury, match="attempt 1"):
                await jobs.travel("1h")
            (letter,) = await shop.app.queue().dead.peek()
            assert letter.name == "sleepy"

    async def test_jobs_that_add_each_other_without_end_are_stopped(
        self, tampu: Kit, shop: Shop
    ) -> None:
        @shop.app.task
        async def again() -> None:
            await again.enqueue()

        async with tampu.use(shop.app) as jobs:
            await again.enqueue()
            with pytest.raises(TampuError, match=r"^20 jobs have run, and there may be more"):
                await jobs.run(limit=20)
            with pytest.raises(OptionError, match="limit"):
                await jobs.run(limit=0)

    async def test_a_job_that_no_task_takes_is_an_error(self, tampu: Kit, shop: Shop) -> None:
        async with tampu.use(shop.app) as jobs:
            await shop.app.queue().add("unknown", {})
            with pytest.raises(JobFailed, match="no handler for jobs named 'unknown'"):
                await jobs.run()
            assert await jobs.run() == []

    async def test_a_result_that_cannot_be_stored_is_an_error(self, tampu: Kit, shop: Shop) -> None:
        @shop.app.task
        async def odd() -> object:
            return object()

        async with tampu.use(shop.app) as jobs:
            await odd.enqueue()
            with pytest.raises(JobFailed, match="Cannot encode the result"):
                await jobs.run()

    async def test_a_task_that_takes_too_long_is_an_error(self, tampu: Kit, shop: Shop) -> None:
        @shop.app.task(timeout=0.01)
        async def hang() -> None:
            await asyncio.Event().wait()

        async with tampu.use(shop.app) as jobs:
            await hang.enqueue()
            with pytest.raises(JobFailed, match=r"attempt 1 of 25\): JobTimeout"):
                await jobs.run()

    async def test_an_error_that_is_no_exception_reaches_the_test(
        self, tampu: Kit, shop: Shop
    ) -> None:
        @shop.app.task
        async def give_up() -> None:
            pytest.fail("seen in the task")

        async with tampu.use(shop.app) as jobs:
            await give_up.enqueue()
            with pytest.raises(pytest.fail.Exception, match="seen in the task"):
                await jobs.run()


class TestAsInAWorker:
    async def test_lifespan_dependencies_and_middleware_surround_the_task(self, tampu: Kit) -> None:
        log: list[str] = []

        @asynccontextmanager
        async def lifespan(_: App) -> AsyncIterator[str]:
            log.append("lifespan")
            yield "state"
            log.append("end of lifespan")

        @asynccontextmanager
        async def around(job: Job[None]) -> AsyncIterator[None]:
            log.append(f"before {job.name}")
            yield
            log.append(f"after {job.name}")

        async def pool() -> AsyncIterator[str]:
            log.append("pool")
            yield "pool"
            log.append("end of pool")

        def session(source: Annotated[str, Depends(pool, scope="app")]) -> Iterator[str]:
            yield f"session of {source}"
            log.append("end of session")

        app = App(ELSEWHERE, lifespan=lifespan, middleware=[around])

        @app.task
        async def work(db: Annotated[str, Depends(session)] = INJECTED) -> None:
            log.append(f"{app.state}, {db}, {current_job().name}")

        async with tampu.use(app) as jobs:
            await work.enqueue()
            assert log == []
            await jobs.run()
            await work.enqueue()
            await jobs.run()
            with pytest.raises(WrongContext, match="no job is running"):
                current_job()
        one = ["before work", "state, session of pool, work", "end of session", "after work"]
        assert log == ["lifespan", "pool", *one, *one, "end of pool", "end of lifespan"]

    async def test_plain_tasks_run_in_a_thread_and_isolated_ones_in_this_process(
        self, tampu: Kit
    ) -> None:
        app, places = App(ELSEWHERE), []

        @app.task
        def plain() -> None:
            places.append((os.getpid(), threading.current_thread() is threading.main_thread()))

        @app.task(isolation="process")
        def isolated() -> None:
            places.append((os.getpid(), threading.current_thread() is threading.main_thread()))

        async with tampu.use(app) as jobs:
            await plain.enqueue()
            await isolated.enqueue()
            await jobs.run()
        assert places == [(os.getpid(), False)] * 2

    async def test_context_variables_end_with_the_job(self, tampu: Kit) -> None:
        app, language = App(ELSEWHERE), ContextVar("language", default="en")
        seen: list[str] = []

        @app.task
        async def translate() -> None:
            seen.append(language.get())
            language.set("de")

        async with tampu.use(app) as jobs:
            await translate.enqueue()
            await translate.enqueue()
            await jobs.run()
        assert [*seen, language.get()] == ["en"] * 3

    async def test_events_are_written(self, tampu: Kit, shop: Shop) -> None:
        @shop.app.task
        async def slow(job: Job[None] = INJECTED) -> None:
            job.progress(50)

        async with tampu.use(shop.app) as jobs, QueueEvents("orders") as events:
            await slow.enqueue()
            await jobs.run()
            kinds = [(await anext(events)).kind for _ in range(3)]
        assert kinds == [EventKind.ACTIVE, EventKind.PROGRESS, EventKind.COMPLETED]

    async def test_an_invalid_schedule_is_refused_as_by_a_worker(
        self, tampu: Kit, shop: Shop
    ) -> None:
        @shop.app.schedule(Cron("0 9 * * *"), args={"txet": "x"})
        @shop.app.task
        async def daily(text: str) -> None: ...

        with pytest.raises(TampuError, match="txet"):
            async with tampu.use(shop.app):
                raise AssertionError
        async with tampu.use(shop.app, schedules=False):
            pass

    async def test_a_real_worker_can_run_the_jobs_instead(self, tampu: Kit, shop: Shop) -> None:
        async with tampu.use(shop.app), AppWorker(shop.app, store_results=True):
            assert await (await shop.app.tasks["note"].enqueue("real")).result(20) == "REAL"


class TestUse:
    async def test_everything_is_put_back(self, tampu: Kit, shop: Shop) -> None:
        app, before = shop.app, os.environ.get("TAMPU_URL")
        outside = app.queue()
        async with tampu.use(app) as jobs:
            assert (app.url, os.environ["TAMPU_URL"]) == (jobs.url, jobs.url)
            inside = app.queue()
            assert inside is not outside
            async with Queue("orders") as other:
                await other.add("note", {"text": "by name"})
            await jobs.run()
        assert shop.log == ["by name"]
        assert (app.url, os.environ.get("TAMPU_URL")) == (ELSEWHERE, before)
        assert app.queue() is outside
        assert abs(datetime.now(UTC).timestamp() * 1000 - _now_ms()) < 60_000

    async def test_each_test_begins_with_nothing(self, tampu: Kit, shop: Shop) -> None:
        for _ in range(2):
            async with tampu.use(shop.app) as jobs:
                assert jobs.enqueued() == []
                assert jobs.attempts == []
                await shop.app.tasks["note"].enqueue("left over")

    async def test_it_ends_after_an_error_too(self, tampu: Kit, shop: Shop) -> None:
        with pytest.raises(ZeroDivisionError):
            async with tampu.use(shop.app):
                raise ZeroDivisionError
        async with tampu.use(shop.app):
            pass
        assert shop.app.url == ELSEWHERE

    async def test_one_app_at_a_time(self, tampu: Kit, shop: Shop) -> None:
        async with tampu.use(shop.app):
            with pytest.raises(WrongContext, match="another test kit is in use"):
                async with tampu.use(App()):
                    raise AssertionError
            await shop.app.tasks["note"].enqueue("still there")
        with pytest.raises(OptionError, match="app"):
            tampu.use("app")  # type: ignore[arg-type]

    async def test_a_database_that_is_in_use_is_refused(self, tampu: Kit, shop: Shop) -> None:
        async with Queue("precious", tampu.url) as queue:
            await queue.add("job")
            with pytest.raises(OptionError, match="must lead to an empty database"):
                async with tampu.use(shop.app):
                    raise AssertionError
            assert (await queue.counts()).waiting == 1
            await queue._connection.lane.call("FLUSHDB")  # type: ignore[union-attr]

    async def test_durability_that_a_test_server_cannot_give_is_left_out(self, tampu: Kit) -> None:
        app = App(ELSEWHERE, durability="replica", time_limit=1)

        @app.task
        async def work() -> None: ...

        async with tampu.use(app) as jobs:
            await work.enqueue()
            assert len(await jobs.run()) == 1

    async def test_without_the_fixture_the_process_has_a_server_of_its_own(
        self, shop: Shop
    ) -> None:
        async with use(shop.app) as jobs:
            await shop.app.tasks["note"].enqueue("here")
            await jobs.run()
        assert shop.log == ["here"]


def _now_ms() -> int:
    from tampu.util.clock import now_ms  # noqa: PLC0415 - as it is after the test

    return now_ms()
