"""One worker for all queues of an app: starting, fairness, schedules, stopping."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from tampu import (
    App,
    AppWorker,
    CommandRefused,
    Depends,
    Every,
    OptionError,
    Queue,
    ServerError,
    WrongContext,
)
from tampu.wire.keys import QueueKeys
from tests.conftest import Start
from tests.contract.apps import nothing_left, working
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


class TestQueues:
    async def test_a_flooded_queue_does_not_starve_the_other(self, app: App) -> None:
        done = 0

        @app.task(queue="flooded")
        async def quick() -> None:
            nonlocal done
            done += 1

        @app.task(queue="calm")
        async def calm() -> int:
            return done

        async with app:
            await quick.enqueue_many([quick.call()] * 20_000)
            job = await calm.enqueue()
            async with working(app, {"flooded": 10, "calm": 1}):
                assert await job.result() < 20_000
                await wait_until(lambda: done == 20_000, within=60, sentence="the flood is over")

    async def test_each_queue_has_its_own_concurrency(self, app: App) -> None:
        going: list[str] = []
        go_on = asyncio.Event()

        @app.task(queue="slow")
        async def slow() -> None:
            going.append("slow")
            await go_on.wait()

        @app.task(queue="quick")
        async def quick() -> str:
            return "quick"

        async with working(app, {"slow": 2, "quick": 1}):
            await slow.enqueue_many([slow.call()] * 5)
            await wait_until(lambda: len(going) >= 2, within=SOON, sentence="slow ones run")
            assert await (await quick.enqueue()).result() == "quick"
            assert len(going) == 2
            go_on.set()
            await wait_until(lambda: len(going) == 5, within=SOON, sentence="all have run")


class TestLife:
    async def test_run_works_until_stop_and_leaves_nothing_open(
        self, app: App, running: RunningServer
    ) -> None:
        @app.task
        async def first() -> int:
            return 1

        @app.task(queue="other")
        def second() -> int:
            return 2

        async def act() -> None:
            worker = AppWorker(app, store_results=True)
            working = asyncio.create_task(worker.run())
            async with app:
                assert await (await first.enqueue()).result() == 1
                assert await (await second.enqueue()).result() == 2
                await worker.stop()
                await asyncio.wait_for(working, SOON)
            with pytest.raises(WrongContext, match="it can be started only once"):
                await worker.start()

        await nothing_left(running, act)

    async def test_running_tasks_get_their_grace(self, app: App) -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        @app.task
        async def slow() -> None:
            started.set()
            await asyncio.sleep(0.05)
            ended.set()

        async with app:
            worker = AppWorker(app)
            await worker.start()
            await slow.enqueue()
            await asyncio.wait_for(started.wait(), SOON)
            await worker.stop(grace=SOON)
        assert ended.is_set()

    async def test_after_the_grace_the_job_of_a_thread_is_released_at_once(self, app: App) -> None:
        started, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        async def notify() -> Callable[[], object]:
            return lambda: loop.call_soon_threadsafe(started.set)

        @app.task
        def slow(notify: Callable[[], object] = Depends(notify)) -> None:
            notify()
            go_on.wait(3 * SOON)

        async with app:
            worker = AppWorker(app)
            await worker.start()
            await slow.enqueue()
            await asyncio.wait_for(started.wait(), SOON)
            try:
                await asyncio.wait_for(worker.stop(grace=0), SOON)
                assert (await app.queue().counts()).waiting == 1
            finally:
                go_on.set()

    async def test_if_one_queue_fails_to_start_none_starts(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        app = App(running.url)
        app.task(name="a", queue="a")(lambda: None)
        app.task(name="b", queue="b")(lambda: None)
        admin.set(QueueKeys("b").stream, "not a stream")

        async def act() -> None:
            worker = AppWorker(app)
            with pytest.raises(CommandRefused):
                await worker.start()

        await nothing_left(running, act)

    async def test_a_lifespan_that_raises_prevents_the_start(self, running: RunningServer) -> None:
        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[None]:
            raise ValueError("no database")
            yield

        app = App(running.url, lifespan=lifespan)
        app.task(name="a")(lambda: None)

        async def act() -> None:
            with pytest.raises(ValueError, match="no database"):
                await AppWorker(app).start()

        await nothing_left(running, act)

    async def test_a_lifespan_must_return_a_context_manager(self, running: RunningServer) -> None:
        def lifespan(app: App) -> Any:  # noqa: ANN401 - of another type than is asked for
            return None

        app = App(running.url, lifespan=lifespan)
        app.task(name="a")(lambda: None)

        async def act() -> None:
            with pytest.raises(OptionError, match=r"Invalid lifespan None.*@asynccontextmanager"):
                await AppWorker(app).start()

        await nothing_left(running, act)

    async def test_a_lifespan_that_ends_early_is_logged_and_raised_at_the_stop(
        self, running: RunningServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        fail = asyncio.Event()

        async def background() -> None:
            await fail.wait()
            raise ValueError("no longer")

        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[None]:
            async with asyncio.TaskGroup() as group:
                group.create_task(background())
                yield

        app = App(running.url, lifespan=lifespan)
        app.task(name="a")(lambda: None)

        async def act() -> None:
            worker = AppWorker(app)
            await worker.start()
            fail.set()
            await wait_until(lambda: bool(caplog.records), within=SOON, sentence="it is logged")
            with pytest.raises(ExceptionGroup):
                await worker.stop()

        await nothing_left(running, act)
        assert "the lifespan ended while the worker was running" in caplog.text

    async def test_a_cancelled_start_leaves_nothing_open(self, running: RunningServer) -> None:
        entering, log = asyncio.Event(), list[str]()

        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[None]:
            try:
                entering.set()
                await asyncio.Event().wait()
                yield
            finally:
                log.append("left")

        app = App(running.url, lifespan=lifespan)
        app.task(name="a")(lambda: None)

        async def act() -> None:
            starting = asyncio.create_task(AppWorker(app).run())
            await asyncio.wait_for(entering.wait(), SOON)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting

        await nothing_left(running, act)
        assert log == ["left"]

    async def test_the_state_exists_while_the_worker_runs(self, running: RunningServer) -> None:
        state = object()

        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[object]:
            yield state

        app = App(running.url, lifespan=lifespan)

        @app.task
        async def same() -> bool:
            return app.state is state

        async with working(app):
            assert await (await same.enqueue()).result()
        with pytest.raises(WrongContext):
            _ = app.state


class TestOptions:
    async def test_options_of_the_app_are_defaults_for_the_worker(
        self, running: RunningServer
    ) -> None:
        app = App(running.url, worker={"store_results": True, "concurrency": 3})

        @app.task
        async def one() -> int:
            return 1

        async with app, AppWorker(app, grace=0) as worker:
            assert worker.queues == {"default": 3}
            assert await (await one.enqueue()).result(SOON) == 1
        async with app, AppWorker(app, grace=0, concurrency=2) as worker:
            assert worker.queues == {"default": 2}


class TestHealth:
    async def test_the_health_covers_all_queues(self, app: App) -> None:
        go_on = asyncio.Event()

        @app.task(queue="a")
        async def first() -> None:
            await go_on.wait()

        second = app.task(name="second", queue="b")(first.function)
        worker = AppWorker(app, grace=0)
        assert worker.health is None
        async with app, worker:
            await first.enqueue()
            await second.enqueue()
            await wait_until(
                lambda: worker.health is not None and worker.health.running == 2,
                within=SOON,
                sentence="both run",
            )
            go_on.set()

    async def test_a_second_stop_ends_the_grace_of_the_first(self, app: App) -> None:
        begun = asyncio.Event()

        @app.task
        async def long() -> None:
            begun.set()
            await asyncio.sleep(600)

        async with app:
            worker = AppWorker(app, grace=600)
            await worker.start()
            await long.enqueue()
            await asyncio.wait_for(begun.wait(), SOON)
            stopping = asyncio.create_task(worker.stop())
            await asyncio.sleep(0)
            await asyncio.wait_for(worker.stop(0), SOON)
            await asyncio.wait_for(stopping, SOON)
            assert (await app.queue().counts()).waiting == 1


async def test_an_outage_is_one_line_when_it_begins_and_one_when_it_ends(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """For all queues, the heartbeats, and the app's own connection."""
    running = start()
    app = App(running.url)
    app.schedule(Every("1h"))(app.task(name="a", queue="a")(lambda: None))
    for name in ("b", "c"):
        app.task(name=name, queue=name)(lambda: None)
    async with working(app, lease=60):
        assert (await app.queue("b").counts()).waiting == 0
        running.kill()
        await wait_until(lambda: caplog.messages != [], within=60, sentence="the outage is noticed")
        with pytest.raises(ServerError):
            await Queue("b", running.url, time_limit=1).add("b")
        running.restart()
        await wait_until(
            lambda: "is available again" in caplog.text, within=60, sentence="it has ended"
        )
    told = [each.getMessage() for each in caplog.records if each.name == "tampu.server.outage"]
    assert len(told) == 2, told
