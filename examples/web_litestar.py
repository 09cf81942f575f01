"""Litestar: a plugin opens the app, injects it, and runs its jobs; the dashboard is at /admin/jobs.

Needs `pip install 'tampu[dashboard,embedded,litestar]'`. Start it, then run in another terminal:

    curl -X POST localhost:8000/reports/2026
    curl localhost:8000/jobs/ID-FROM-ABOVE
    curl -N localhost:8000/jobs/ID-FROM-ABOVE/events
    curl localhost:8000/health
"""

import asyncio
import os
from typing import Annotated

import uvicorn
from litestar import Litestar, Response, get, post
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, HeaderParameter
from litestar.response import Stream

from tampu import INJECTED, App, Job, ResultTimeout
from tampu.dashboard import Access, Dashboard
from tampu.web import SSE_HEADERS, AppHealth, sse
from tampu.web.litestar import TampuPlugin

app = App(default_queue="reports")
Jobs = NamedDependency[App]  # what the plugin injects


@app.task
async def report(year: int, job: Job = INJECTED) -> dict[str, int]:
    """Slow work that no request should wait for."""
    for quarter in range(1, 5):
        await asyncio.sleep(0.1)
        job.progress(25 * quarter)
    return {"year": year, "quarters": 4}


@post("/reports/{year:int}", status_code=202)
async def start(year: FromPath[int]) -> dict[str, str]:
    """Add a job and answer at once."""
    return {"id": (await report.enqueue(year)).id}


@get("/jobs/{job_id:str}")
async def get_result(job_id: FromPath[str], jobs: Jobs) -> object:
    """Return the result of a job, if there is one."""
    try:
        return await jobs.queue().job(job_id).result(0)
    except ResultTimeout:
        raise NotFoundException("no result yet") from None


@get("/jobs/{job_id:str}/events")
async def follow(
    job_id: FromPath[str],
    last_event_id: Annotated[str | None, HeaderParameter(name="Last-Event-ID")] = None,
) -> Stream:
    """Stream the progress and the result of a job as server-sent events."""
    return Stream(sse(report.job(job_id), after=last_event_id), headers=SSE_HEADERS)


@get("/health")
async def health(jobs: Jobs) -> Response[AppHealth]:
    """For a load balancer: 503 while no jobs can be added."""
    found = await jobs.health()
    return Response(found, status_code=200 if found.ok else 503)


# Everybody who reaches this program may see the dashboard: it listens on this machine only.
dashboard = Dashboard(app, access=Access.full())
tampu = TampuPlugin(app, worker=True, dashboard=dashboard, dashboard_path="/admin/jobs")
web = Litestar([start, get_result, follow, health], plugins=[tampu])


if __name__ == "__main__":
    uvicorn.run(web, port=int(os.environ.get("PORT", "8000")))
