"""Starlette: requests add jobs and follow their progress.

Needs `pip install 'tampu[embedded,examples]'`. Start it, then run in another terminal:

    curl -X POST localhost:8000/reports/2026
    curl localhost:8000/jobs/ID-FROM-ABOVE
    curl -N localhost:8000/jobs/ID-FROM-ABOVE/events
    curl localhost:8000/health
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tampu import INJECTED, App, AppWorker, Job, ResultTimeout
from tampu.web import SSE_HEADERS, sse

app = App(default_queue="reports")


@app.task
async def report(year: int, job: Job = INJECTED) -> dict[str, int]:
    """Slow work that no request should wait for."""
    for quarter in range(1, 5):
        await asyncio.sleep(0.1)
        job.progress(25 * quarter)
    return {"year": year, "quarters": 4}


async def start(request: Request) -> Response:
    """Add a job and answer at once."""
    job = await report.enqueue(int(request.path_params["year"]))
    return JSONResponse({"id": job.id}, 202)


async def get_result(request: Request) -> Response:
    """Return the result of a job, if there is one."""
    try:
        return JSONResponse(await report.job(request.path_params["id"]).result(0))
    except ResultTimeout:
        return JSONResponse({"detail": "no result yet"}, 404)


async def follow(request: Request) -> Response:
    """Stream the progress and the result of a job as server-sent events."""
    job = report.job(request.path_params["id"])
    events = sse(job, after=request.headers.get("last-event-id"))
    return StreamingResponse(events, headers=SSE_HEADERS)


async def health(_: Request) -> Response:
    """For a load balancer: 503 while no jobs can be added."""
    found = await app.health()
    return JSONResponse(asdict(found), 200 if found.ok else 503)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Start the worker in the same program. Usually you run `tampu worker web_starlette:app`."""
    async with app, AppWorker(app):
        yield


web = Starlette(
    routes=[
        Route("/reports/{year:int}", start, methods=["POST"]),
        Route("/jobs/{id}", get_result),
        Route("/jobs/{id}/events", follow),
        Route("/health", health),
    ],
    lifespan=lifespan,
)


if __name__ == "__main__":
    uvicorn.run(web, port=int(os.environ.get("PORT", "8000")))
