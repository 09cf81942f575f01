"""FastAPI: requests add jobs, follow their progress, and share dependencies with the tasks.

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
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import JSONResponse, StreamingResponse

from tampu import INJECTED, App, AppWorker, Bury, Job, JobFailed, ResultTimeout
from tampu.web import SSE_HEADERS, sse

app = App(default_queue="reports")


class Archive:
    """Stands for a database."""

    first_year = 1900


async def get_archive() -> AsyncIterator[Archive]:
    """One dependency for routes and tasks."""
    yield Archive()  # what follows it runs after the response, or after the job


@app.task(attempts=3)
async def report(
    year: int, archive: Archive = Depends(get_archive), job: Job = INJECTED
) -> dict[str, int]:
    """Slow work that no request should wait for."""
    if year < archive.first_year:
        raise Bury("there are no figures for that year")  # a retry would not help
    for quarter in range(1, 5):
        await asyncio.sleep(0.1)
        job.progress(25 * quarter)
    return {"year": year, "quarters": 4}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Start the worker in the same program. Usually you run `tampu worker web:app`."""
    async with app, AppWorker(app):
        yield


web = FastAPI(lifespan=lifespan)


@web.get("/years")
async def first_year(archive: Annotated[Archive, Depends(get_archive)]) -> int:
    """Return the first year that there are figures for."""
    return archive.first_year


@web.post("/reports/{year}", status_code=202)
async def start(year: int) -> dict[str, str]:
    """Add a job and answer at once."""
    return {"id": (await report.enqueue(year)).id}


@web.get("/jobs/{job_id}")
async def get_result(job_id: str) -> object:
    """Return the result of a job, if there is one."""
    try:
        return await report.job(job_id).result(0)
    except ResultTimeout:
        raise HTTPException(404, "no result yet") from None
    except JobFailed as failed:
        raise HTTPException(422, failed.message) from None


@web.get("/jobs/{job_id}/events")
async def follow(
    job_id: str, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Stream the progress and the result of a job as server-sent events."""
    events = sse(report.job(job_id), after=last_event_id, show_errors=True)
    return StreamingResponse(events, headers=SSE_HEADERS)


@web.get("/health")
async def health() -> JSONResponse:
    """For a load balancer: 503 while no jobs can be added."""
    found = await app.health()
    body: dict[str, Any] = asdict(found)
    return JSONResponse(body, 200 if found.ok else 503)


if __name__ == "__main__":
    uvicorn.run(web, port=int(os.environ.get("PORT", "8000")))
