"""An app and its worker in the lifespan of an application, under the test clients of frameworks."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient as FastAPIClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from tampu import App, AppWorker
from tampu.web import SSE_HEADERS, AppHealth, sse
from tests.contract.web import declare_report, parse
from tests.contract.workers import connections, handler_threads
from tests.servers import RunningServer
from tests.waiting import block_until


def make_app(url: str) -> App:
    app = App(url)
    declare_report(app)
    return app


def test_under_the_test_client_of_fastapi(running: RunningServer) -> None:
    app = make_app(running.url)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with app, AppWorker(app):
            yield

    web = FastAPI(lifespan=lifespan)

    @web.post("/reports/{year}")
    async def start(year: int) -> Any:  # noqa: ANN401 - JSON
        job = await app.tasks["report"].enqueue(year)
        return {"id": job.id, "result": await job.result(20)}

    @web.get("/jobs/{job_id}/events")
    async def follow(job_id: str) -> StreamingResponse:
        return StreamingResponse(sse(app.queue().job(job_id)), headers=SSE_HEADERS)

    @web.get("/health")
    async def health() -> AppHealth:  # a dataclass, which FastAPI describes and turns into JSON
        return await app.health()

    with running.admin() as admin:
        before, threads = connections(admin), threading.active_count()
        for _ in range(2):  # the same program may serve twice, as its tests do
            with FastAPIClient(web) as client:
                answer = client.post("/reports/2026").json()
                assert answer["result"] == {"year": 2026}
                body = client.get(f"/jobs/{answer['id']}/events")
                assert [each.kind for each in parse(body.content)] == ["progress"] * 4 + ["done"]
                told = client.get("/health").json()
                assert (told["ok"], told["queues"][0]["workers"]) == (True, 1)
                assert "AppHealth" in client.get("/openapi.json").text
        block_until(lambda: connections(admin) == before, within=60, sentence="it is closed")
    block_until(
        lambda: threading.active_count() <= threads and not handler_threads(),
        within=60,
        sentence="no thread is left",
    )


def test_under_the_test_client_of_starlette(running: RunningServer) -> None:
    app = make_app(running.url)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with app, AppWorker(app):
            yield

    async def start(request: Request) -> JSONResponse:
        job = await app.tasks["report"].enqueue(request.path_params["year"])
        return JSONResponse(await job.result(20))

    routes = [Route("/reports/{year:int}", start, methods=["POST"])]
    with TestClient(Starlette(routes=routes, lifespan=lifespan)) as client:
        assert client.post("/reports/2026").json() == {"year": 2026}
