"""Flask: plain views add jobs and follow them; jobs run in the context of the application.

Needs `pip install 'tampu[embedded,flask]'`. Start it, and the worker, in two terminals:

    flask --app web_flask run --port 8000
    flask --app web_flask tampu worker

Then in a third one:

    curl -X POST localhost:8000/reports/2026
    curl localhost:8000/jobs/ID-FROM-ABOVE
    curl -N localhost:8000/jobs/ID-FROM-ABOVE/events
    curl localhost:8000/health
"""

import os
import time
from dataclasses import asdict

from flask import Flask, current_app, request
from flask.typing import ResponseReturnValue

from tampu import INJECTED, App, Job, ResultTimeout
from tampu.web import SSE_HEADERS, sse
from tampu.web.flask import Tampu

jobs = App(default_queue="reports")


@jobs.task
def report(year: int, job: Job = INJECTED) -> dict[str, object]:
    """Slow work that no request should wait for."""
    for quarter in range(1, 5):
        time.sleep(0.1)
        job.progress(25 * quarter)
    return {"year": year, "quarters": 4, "shop": current_app.config["SHOP"]}


def create_app() -> Flask:
    """Make the application, for the web server and for each worker process."""
    web = Flask(__name__)
    web.config["SHOP"] = "Corner shop"
    Tampu(jobs, web)

    @web.post("/reports/<int:year>")
    def start(year: int) -> ResponseReturnValue:
        return {"id": report.enqueue_sync(year).id}, 202

    @web.get("/jobs/<job_id>")
    def get_result(job_id: str) -> ResponseReturnValue:
        try:
            return report.job_sync(job_id).result(0)
        except ResultTimeout:
            return {"detail": "no result yet"}, 404

    @web.get("/jobs/<job_id>/events")
    def follow(job_id: str) -> ResponseReturnValue:
        events = sse(report.job_sync(job_id), after=request.headers.get("Last-Event-ID"))
        return web.response_class(events, headers=SSE_HEADERS)

    @web.get("/health")
    def health() -> ResponseReturnValue:
        found = jobs.health_sync()
        return asdict(found), 200 if found.ok else 503

    return web


if __name__ == "__main__":
    create_app().run(port=int(os.environ.get("PORT", "8000")))
