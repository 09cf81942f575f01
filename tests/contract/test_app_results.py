"""Results of tasks: what a worker of an app keeps by default, and what a task says about it."""

from typing import Any

import pytest
import redis

from tampu import App, AppWorker, JobFailed, ResultTimeout
from tampu.wire.keys import QueueKeys
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = QueueKeys("default")


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


def left_s(admin: redis.Redis, job_id: str) -> int:
    """How long the result of a job is kept, rounded up; -2: it is not stored."""
    return int(admin.ttl(KEYS.result(job_id)))


class TestDefaults:
    async def test_what_a_task_returns_is_kept_for_ten_minutes(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task
        async def double(number: int) -> int:
            return 2 * number

        async with app, AppWorker(app):
            job = await double.enqueue(4)
            assert await job.result() == 8
            assert 590 < left_s(admin, job.id) <= 600

    async def test_a_task_that_returns_nothing_says_for_a_minute_that_it_is_done(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task
        async def annotated() -> None: ...

        @app.task
        async def bare():  # type: ignore[no-untyped-def]  # noqa: ANN202
            pass

        async with app, AppWorker(app):
            for task in (annotated, bare):
                job = await task.enqueue()
                assert await job.result() is None
                assert await job.result(timeout=0) is None  # also to a caller that comes late
                assert 50 < left_s(admin, job.id) <= 60

    async def test_none_in_place_of_a_value_is_kept_as_long_as_a_value(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task
        async def find() -> int | None:
            return None

        async with app, AppWorker(app):
            job = await find.enqueue()
            assert await job.result() is None
            assert left_s(admin, job.id) > 590

    async def test_a_failure_is_told(self, app: App) -> None:
        @app.task(attempts=1)
        async def boom() -> None:
            raise ValueError("no")

        async with app, AppWorker(app):
            with pytest.raises(JobFailed, match="ValueError: no"):
                await (await boom.enqueue()).result()

    async def test_a_result_that_cannot_be_stored_leaves_the_job_done(
        self, app: App, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.task
        async def session():  # type: ignore[no-untyped-def]  # noqa: ANN202
            return object()

        async with app, AppWorker(app):
            job = await session.enqueue()
            with pytest.raises(JobFailed, match=r"tampu\.EncodeError"):
                await job.result()
            assert (await app.queue().counts()).dead == 0
        (line,) = [each for each in caplog.records if each.name == "tampu.consumer.reporter"]
        assert "is done, but its result cannot be stored" in line.getMessage()


class TestOptions:
    @pytest.mark.parametrize("by", ["app", "worker", "task"])
    async def test_nothing_is_kept_if_so_said(
        self, running: RunningServer, admin: redis.Redis, by: str
    ) -> None:
        off: Any = {"store_results": False}
        app = App(running.url, worker=off if by == "app" else None)

        @app.task(result_ttl=0 if by == "task" else None)
        async def double(number: int) -> int:
            return 2 * number

        async with app, AppWorker(app, **off if by == "worker" else {}):
            job = await double.enqueue(4)

            async def done() -> bool:
                return (await app.queue().counts()).waiting == 0

            await wait_until(done, within=60, sentence="the job is done")
            with pytest.raises(ResultTimeout):
                await job.result(timeout=0)
            assert left_s(admin, job.id) == -2

    async def test_the_time_of_a_task_comes_first(self, app: App, admin: redis.Redis) -> None:
        @app.task(result_ttl="1h")
        async def nothing():  # type: ignore[no-untyped-def]  # noqa: ANN202
            pass

        @app.task
        async def other() -> int:
            return 1

        async with app, AppWorker(app, store_results=False):
            await other.enqueue()
            job = await nothing.enqueue()
            assert await job.result() is None
            assert left_s(admin, job.id) > 3590

    async def test_jobs_of_several_times_are_kept_in_one_batch(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task(result_ttl="1h")
        async def long(number: int) -> int:
            return number

        @app.task(result_ttl="2m")
        async def short(number: int) -> int:
            return number

        async with app:
            jobs = [await (long, short)[each % 2].enqueue(each) for each in range(20)]
            async with AppWorker(app):
                assert [await job.result() for job in jobs] == list(range(20))
            kept = [left_s(admin, job.id) for job in jobs]
            assert all(each > 3500 for each in kept[::2])
            assert all(100 < each <= 120 for each in kept[1::2])
