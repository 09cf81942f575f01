"""tampu in Litestar: the plugin opens, injects and closes an app, and mounts the dashboard."""

from typing import Any

import pytest
from litestar import Litestar, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.testing import AsyncTestClient

from tampu import App, Job, OptionError, Queue, ResultTimeout
from tampu.dashboard import Access, Dashboard
from tampu.tasks.app_queue import AppQueue
from tampu.web.litestar import TampuPlugin
from tests.contract.apps import nothing_left
from tests.servers import RunningServer

Injected = NamedDependency[App]


@pytest.fixture
def jobs(running: RunningServer) -> App:
    app = App(running.url)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    return app


@post("/double/{number:int}")
async def double(number: FromPath[int], jobs: Injected) -> dict[str, int]:
    job = await jobs.tasks["double"].enqueue(number)
    return {"doubled": await job.result(20)}


@get("/waiting")
async def waiting(letters: NamedDependency[AppQueue]) -> dict[str, int]:
    await letters.add("welcome")
    return {letters.name: (await letters.counts()).waiting}


@get("/by-base")
async def by_base(letters: NamedDependency[Queue], shop: Injected) -> list[str]:
    return [letters.name, type(shop).__name__]


def application(*handlers: Any, plugin: TampuPlugin) -> Litestar:  # noqa: ANN401 - handlers
    # Its logging is off: it would set up the root logger of the tests.
    return Litestar([*handlers], plugins=[plugin], logging_config=None)


async def test_it_injects_the_app_and_runs_its_jobs(jobs: App, running: RunningServer) -> None:
    async def serve() -> None:
        web = application(double, plugin=TampuPlugin(jobs, worker=True))
        async with AsyncTestClient(web) as client:
            assert (await client.post("/double/21")).json() == {"doubled": 42}

    await nothing_left(running, serve)


async def test_it_injects_queues_by_the_names_of_parameters(
    jobs: App, running: RunningServer
) -> None:
    async def serve() -> None:
        plugin = TampuPlugin(jobs, inject_as="shop", queues={"letters": "emails"})
        async with AsyncTestClient(application(waiting, by_base, plugin=plugin)) as client:
            assert (await client.get("/waiting")).json() == {"emails": 1}
            assert (await client.get("/by-base")).json() == ["emails", "App"]

    await nothing_left(running, serve)


async def test_without_a_worker_jobs_wait_for_one(jobs: App) -> None:
    @post("/start")
    async def start(jobs: Injected) -> str:
        job: Job[int] = await jobs.tasks["double"].enqueue(1)
        with pytest.raises(ResultTimeout):
            await job.result(0)
        return str((await jobs.queue().counts()).waiting)

    async with AsyncTestClient(application(start, plugin=TampuPlugin(jobs))) as client:
        assert (await client.post("/start")).text == "1"


async def test_it_mounts_the_dashboard_and_closes_it(jobs: App, running: RunningServer) -> None:
    dashboard = Dashboard(jobs, access=Access.full(), allowed_hosts=["testserver.local"])

    async def serve() -> None:
        plugin = TampuPlugin(jobs, worker=True, dashboard=dashboard, dashboard_path="/admin/jobs")
        async with AsyncTestClient(application(double, plugin=plugin)) as client:
            page = await client.get("/admin/jobs/")
            assert (page.status_code, "default" in page.text) == (200, True)
            assert (await client.get("/elsewhere")).status_code == 404
            assert dashboard._source._is_open

    await nothing_left(running, serve)
    assert not dashboard._source._is_open


def test_wrong_options_are_refused(jobs: App) -> None:
    with pytest.raises(OptionError, match=r"Invalid app .*expected an App"):
        TampuPlugin("shop")  # type: ignore[arg-type] # wrong
    with pytest.raises(OptionError, match="Invalid queues 'jobs': the parameter is taken"):
        TampuPlugin(jobs, queues={"jobs": "emails"})
    with pytest.raises(OptionError, match=r'expected a dict such as \{"letters": "emails"\}'):
        TampuPlugin(jobs, queues=["letters"])  # type: ignore[arg-type] # wrong
    with pytest.raises(OptionError, match=r"Invalid dashboard True: expected a Dashboard\(app, "):
        TampuPlugin(jobs, dashboard=True)  # type: ignore[arg-type] # wrong
    for name in ("a b", "class", ""):
        with pytest.raises(OptionError, match=f"Invalid inject_as '{name}': expected the name of"):
            TampuPlugin(jobs, inject_as=name)
        with pytest.raises(OptionError, match=f"Invalid queues '{name}': expected the name of"):
            TampuPlugin(jobs, queues={name: "emails"})
    with pytest.raises(OptionError, match="Invalid queue ''"):
        TampuPlugin(jobs, queues={"letters": ""})
    with pytest.raises(OptionError, match="Invalid worker 'yes'"):
        TampuPlugin(jobs, worker="yes")  # type: ignore[arg-type] # wrong
