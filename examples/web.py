"""A web application that adds jobs and streams their progress and results.

Needs `pip install 'tampu[embedded,examples]'`. Start it, then run in another terminal:

    curl -N localhost:8000/reports/2026/live
    curl -X POST localhost:8000/reports/2026
    curl localhost:8000/jobs/ID-FROM-ABOVE
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse

from tampu import (
    INJECTED,
    App,
    AppWorker,
    Bury,
    EventKind,
    Job,
    JobFailed,
    QueueEvents,
    ResultTimeout,
)

app = App(default_queue="reports")


@app.task(attempts=3)
async def report(year: int, job: Job = INJECTED) -> dict[str, int]:
    """Slow work that no request should wait for."""
    if year < 1900:
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


@web.post("/reports/{year}", status_code=202)
async def start(year: int) -> dict[str, str]:
    """Add a job and answer at once."""
    return {"id": (await report.enqueue(year)).id}


@web.get("/jobs/{job_id}")
async def get_result(job_id: str) -> object:
    """Return the result of a job, if there is one."""
    try:
        return await app.queue().job(job_id).result(0)
    except ResultTimeout:
        raise HTTPException(404, "no result yet") from None
    except JobFailed as failed:
        raise HTTPException(422, failed.message) from None


@web.get("/reports/{year}/live")
async def live(year: int) -> StreamingResponse:
    """Add a job, and stream its progress and result as server-sent events."""
    return StreamingResponse(_stream(year), media_type="text/event-stream")


async def _stream(year: int) -> AsyncIterator[str]:
    async with QueueEvents("reports") as events:  # listen first, then add the job
        job = await report.enqueue(year)
        async for event in events:
            if event.job_id == job.id and event.kind is EventKind.PROGRESS:
                yield f"event: progress\ndata: {event.fields['progress']}\n\n"
            elif event.job_id == job.id and event.kind in (EventKind.COMPLETED, EventKind.DEAD):
                break
    try:
        yield f"event: result\ndata: {json.dumps(await job.result(timeout=10))}\n\n"
    except JobFailed as failed:
        yield f"event: failed\ndata: {json.dumps(failed.message)}\n\n"


if __name__ == "__main__":
    uvicorn.run(web, port=int(os.environ.get("PORT", "8000")))
