"""Dependencies that are replaced, in workers that start inside of the block."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from tampu import App, AppWorker, Depends, Job, OptionError
from tampu.testing import Kit
from tests.contract.apps import working
from tests.servers import RunningServer

log: list[str] = []


def get_settings() -> str:
    log.append("settings")
    return "real settings"


def get_db(settings: Annotated[str, Depends(get_settings)]) -> str:
    return f"db with {settings}"


def get_pool() -> str:
    return "real pool"


@pytest.fixture
def app(running: RunningServer) -> App:
    log.clear()
    made = App(running.url)

    @made.task
    def plain(db: Annotated[str, Depends(get_db)]) -> str:
        return db

    @made.task
    async def pooled(pool: Annotated[str, Depends(get_pool, scope="app")]) -> str:
        return pool

    return made


async def _ask(app: App, task: str = "plain") -> object:
    async with working(app):
        enqueue: Any = app.tasks[task].enqueue
        return await (await enqueue()).result(20)


async def fake_async(job: Job[Any]) -> str:
    return f"fake of {job.name}"


def fake_yielding() -> Iterator[str]:
    yield "yielded"
    log.append("closed")


async def fake_yielding_async() -> AsyncIterator[str]:
    yield "yielded, too"
    log.append("closed, too")


async def test_it_replaces_what_plain_and_async_factories_make(app: App) -> None:
    assert await _ask(app) == "db with real settings"
    log.clear()
    with app.override(get_db, lambda: "fake"):
        assert await _ask(app) == "fake"
    with app.override(get_db, fake_async):
        assert await _ask(app) == "fake of plain"
    with app.override(get_db, fake_yielding):
        assert await _ask(app) == "yielded"
    with app.override(get_db, fake_yielding_async):
        assert await _ask(app) == "yielded, too"
    assert log == ["closed", "closed, too"], "what only the replaced factory needs is not made"
    assert await _ask(app) == "db with real settings"


async def test_blocks_can_be_nested_and_what_a_replacement_needs_is_replaced_too(app: App) -> None:
    def fake_db(settings: Annotated[str, Depends(get_settings)]) -> str:
        return f"fake with {settings}"

    with app.override(get_settings, lambda: "fake settings"):
        assert await _ask(app) == "db with fake settings"
        with app.override(get_db, fake_db):
            assert await _ask(app) == "fake with fake settings"
            with app.override(get_db, lambda: "innermost"):
                assert await _ask(app) == "innermost"
            assert await _ask(app) == "fake with fake settings"
    assert app.overrides == {}


async def test_a_dependency_of_the_app_can_be_replaced(app: App) -> None:
    with app.override(get_pool, lambda: "fake pool"):
        assert await _ask(app, "pooled") == "fake pool"


async def test_a_running_worker_keeps_its_dependencies(app: App) -> None:
    async with working(app):
        with app.override(get_db, lambda: "fake"):
            enqueue: Any = app.tasks["plain"].enqueue
            assert await (await enqueue()).result(20) == "db with real settings"


async def test_the_test_kit_takes_it_at_once(app: App, tampu: Kit) -> None:
    run: list[object] = []
    async with tampu.use(app) as jobs:
        for name in ("plain", "pooled"):
            enqueue: Any = app.tasks[name].enqueue
            await enqueue()
            run += [each.value for each in await jobs.run()]
            with (
                app.override(get_db, lambda: "fake"),
                app.override(get_pool, lambda: "fake pool"),
            ):
                await enqueue()
                run += [each.value for each in await jobs.run()]
            await enqueue()
            run += [each.value for each in await jobs.run()]
    assert run[:3] == ["db with real settings", "fake", "db with real settings"]
    assert run[3:] == ["real pool", "fake pool", "real pool"]


def test_what_can_have_no_effect_is_refused(app: App) -> None:
    def unused() -> None: ...

    def needy(x: int) -> None: ...

    def circular(db: Annotated[str, Depends(get_db)]) -> None: ...

    def of_a_job(job: Job[Any]) -> None: ...

    refused: dict[str, tuple[Any, Any]] = {
        "no task of the app depends on it": (unused, lambda: 1),
        "to use a value, pass a function that returns it": (get_db, 5),
        "parameter x needs a default": (get_db, needy),
        "form a circle": (get_db, circular),
        'scope="app" cannot depend on Job': (get_pool, of_a_job),
    }
    for problem, (factory, replacement) in refused.items():
        with pytest.raises(OptionError, match=problem), app.override(factory, replacement):
            raise AssertionError
    assert app.overrides == {}


def test_child_processes_cannot_be_reached(app: App) -> None:
    app.task(isolation="process")(isolated)
    with app.override(get_db, lambda: "fake"):
        with pytest.raises(OptionError, match="does not reach child processes"):
            AppWorker(app)


def isolated(db: Annotated[str, Depends(get_db)]) -> str:
    return db
