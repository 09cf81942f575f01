"""The health of an app, as a health route tells it."""

import asyncio
from dataclasses import asdict

import pytest

from tampu import App, OptionError
from tampu.admin.app_health import AppHealth
from tests.contract.apps import working
from tests.contract.workers import SOON
from tests.servers import RunningServer, free_port
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    app = App(running.url)

    @app.task
    async def add(a: int) -> int:
        return a

    @app.task(queue="letters")
    async def send() -> None: ...

    return app


async def test_it_tells_of_workers_and_jobs_of_each_queue(app: App) -> None:
    add = app.tasks["add"]
    async with working(app, {"letters": 1}):
        await add.enqueue(1)
        await add.options(delay="1h").enqueue(2)
        health = await app.health()
    assert (health.ok, health.problem) == (True, None)
    assert health.version is not None
    assert health.version.startswith("Valkey 9")
    default, letters = health.queues
    assert (default.name, default.workers, default.waiting, default.delayed) == ("default", 0, 1, 1)
    assert (letters.name, letters.workers, letters.waiting) == ("letters", 1, 0)
    assert letters.oldest_waiting_s is None
    assert default.oldest_waiting_s is not None
    assert 0 <= default.oldest_waiting_s < 60
    assert health.without_workers == ["default"]
    assert asdict(health)["queues"][1]["paused"] is False


async def test_a_paused_queue_and_a_dead_letter(app: App) -> None:
    @app.task(attempts=1)
    async def fail() -> None:
        raise ValueError

    async with working(app):
        await fail.enqueue()

        async def is_dead() -> bool:
            return (await app.health()).queues[0].dead == 1

        await wait_until(is_dead, within=SOON, sentence="it is buried")
        await app.queue("letters").pause()
        default, letters = (await app.health()).queues
    assert (default.dead, default.paused, letters.paused) == (1, False, True)


async def test_an_app_without_tasks_tells_whether_the_server_answers(
    running: RunningServer,
) -> None:
    async with App(running.url) as app:
        health = await app.health()
    assert (health.ok, health.queues) == (True, ())


async def test_no_server() -> None:
    app = App(f"redis://:sesame@127.0.0.1:{free_port()}")
    health = await app.health()
    assert not health.ok
    assert health.problem is not None
    assert health.problem.startswith("Cannot connect to redis://127.0.0.1:")
    assert "sesame" not in repr(health)
    assert (health.version, health.queues, health.without_workers) == (None, (), [])


async def test_a_server_that_goes_away_and_comes_back(app: App, running: RunningServer) -> None:
    async with app:
        assert (await app.health()).ok
        running.kill()
        assert not (await app.health()).ok
        running.restart()

        async def is_well() -> bool:
            return (await app.health()).ok

        await wait_until(is_well, within=SOON, sentence="it is well again")


async def test_a_server_that_does_not_answer(app: App, running: RunningServer) -> None:
    async with app:
        assert (await app.health()).ok
        running.pause()
        try:
            for health in await asyncio.gather(*(app.health(timeout=0.1) for _ in range(3))):
                assert health == AppHealth(
                    ok=False,
                    problem="The server did not answer within 0.1 s.",
                    version=None,
                    queues=(),
                )
        finally:
            running.resume()

        async def is_well() -> bool:
            return (await app.health()).ok

        await wait_until(is_well, within=SOON, sentence="it is well again")


async def test_a_server_that_never_answered(app: App, running: RunningServer) -> None:
    running.pause()
    try:
        assert not (await app.health(timeout=0.1)).ok
    finally:
        running.resume()
    await app.close()


def test_without_an_event_loop(app: App) -> None:
    assert app.health_sync().ok
    app.close_sync()


async def test_a_timeout_of_nothing(app: App) -> None:
    with pytest.raises(OptionError, match="Invalid timeout 0"):
        await app.health(timeout=0)
