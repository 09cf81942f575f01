"""tampu in Flask: the context of the application around jobs, and `flask tampu worker`."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask, current_app, g, has_app_context

from tampu import App, JobFailed, OptionError
from tampu.web.flask import Tampu
from tests.contract.apps import working
from tests.servers import RunningServer

log: list[object] = []


@pytest.fixture
def jobs(running: RunningServer) -> App:
    log.clear()
    return App(running.url)


@pytest.fixture
def web(jobs: App) -> Iterator[Flask]:
    web = Flask("shop")
    web.config["SHOP"] = "Corner shop"

    @web.teardown_appcontext
    def close(error: BaseException | None) -> None:
        db = g.pop("db", None)
        if db is not None:
            db.close()  # sqlite3 refuses that in another thread
        log.append((type(error), threading.get_ident()))

    Tampu(jobs, web)
    yield web
    assert not has_app_context(), "a context is left"


async def test_a_plain_task_runs_in_the_context_in_its_own_thread(jobs: App, web: Flask) -> None:
    @jobs.task
    def report(year: int) -> list[object]:
        g.db = sqlite3.connect(":memory:")
        return [year, current_app.config["SHOP"], threading.get_ident()]

    async with working(jobs):
        year, shop, thread = await (await report.enqueue(2026)).result(20)
    assert (year, shop) == (2026, "Corner shop")
    assert log == [(type(None), thread)]
    assert thread != threading.get_ident()


async def test_an_async_task_runs_in_the_context_on_the_loop(jobs: App, web: Flask) -> None:
    @jobs.task
    async def report(year: int) -> list[object]:
        g.year = year
        return [g.year, current_app.name]

    async with working(jobs):
        both = [await report.enqueue(year) for year in (1, 2)]
        assert [await job.result(20) for job in both] == [[1, "shop"], [2, "shop"]]
    assert log == [(type(None), threading.get_ident())] * 2


async def test_teardown_sees_the_error_of_a_failed_attempt(jobs: App, web: Flask) -> None:
    @jobs.task(attempts=1)
    def fail() -> None:
        raise ValueError("boom")

    async with working(jobs):
        with pytest.raises(JobFailed, match="boom"):
            await (await fail.enqueue()).result(20)
    assert [kind for kind, _ in log] == [ValueError]  # type: ignore[misc, has-type] # pairs


def test_views_add_jobs_and_the_extension_is_where_flask_keeps_them(jobs: App, web: Flask) -> None:
    @jobs.task
    def report(year: int) -> int:
        return year

    @web.post("/reports/<int:year>")
    def start(year: int) -> dict[str, str]:
        extension = current_app.extensions["tampu"]
        assert extension.jobs is jobs
        return {"id": report.enqueue_sync(year).id}

    assert len(web.test_client().post("/reports/2026").json["id"]) > 10  # type: ignore[index] # JSON
    jobs.close_sync()


def test_the_url_is_a_setting(running: RunningServer) -> None:
    jobs, other = App(), App("redis://elsewhere")
    web = Flask("shop")
    web.config["TAMPU_URL"] = running.url
    Tampu(jobs, web)
    Tampu(other, web)
    assert (jobs.url, other.url) == (running.url, "redis://elsewhere")
    assert jobs.health_sync().ok
    jobs.close_sync()


def test_a_wrong_url_is_refused() -> None:
    web = Flask("shop")
    web.config["TAMPU_URL"] = "http://me:sesame@localhost"
    with pytest.raises(OptionError, match=r"Invalid url 'http://localhost'"):
        Tampu(App(), web)


async def test_without_an_application_a_job_says_what_is_missing(jobs: App) -> None:
    Tampu(jobs)

    @jobs.task(attempts=1)
    def report() -> None: ...

    async with working(jobs):
        with pytest.raises(JobFailed, match=r"call init_app\(app\) before"):
            await (await report.enqueue()).result(20)


def test_what_is_no_application_is_refused(jobs: App) -> None:
    with pytest.raises(OptionError, match=r"Invalid app .*expected a Flask application"):
        Tampu(jobs, "shop")  # type: ignore[arg-type] # wrong
    with pytest.raises(OptionError, match=r"Invalid jobs .*expected an App"):
        Tampu(Flask("shop"))  # type: ignore[arg-type] # wrong
    with pytest.raises(OptionError, match=r"Invalid dashboard True: expected a Dashboard\(app, "):
        Tampu(jobs, dashboard=True)  # type: ignore[arg-type] # wrong
    with pytest.raises(OptionError, match="Invalid dashboard_path 'jobs'"):
        Tampu(jobs, dashboard_path="jobs")


SHOP = """
from flask import Flask, current_app, g
from tampu import App
from tampu.dashboard import Access, Dashboard
from tampu.web.flask import Tampu

jobs = App()

@jobs.task
def plain(year: int) -> str:
    return f"{year} in {current_app.config['SHOP']}"

@jobs.task(isolation="process")
def isolated(year: int) -> str:
    return f"{year} in {current_app.config['SHOP']}"

def make_app(name: str = "the shop") -> Flask:
    app = Flask(__name__)
    app.config["SHOP"] = name
    Tampu(jobs, app, dashboard=Dashboard(jobs, access=Access.full()), dashboard_path="/admin/jobs")
    return app

if __name__ == "__main__":
    client = make_app().test_client()
    first, second = plain.enqueue_sync(1), isolated.enqueue_sync(2)
    page = client.get("/admin/jobs/")
    assert page.status_code == 200 and b"default" in page.data, page.data
    assert client.get("/admin").status_code == 404
    print(first.id, second.id)
"""


def _run(folder: Path, running: RunningServer, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"TAMPU_URL": running.url},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("options", [("--burst",), ("--burst", "--processes", "2")])
def test_flask_tampu_worker_makes_the_application_in_each_process(
    options: tuple[str, ...], running: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    added = _run(tmp_path, running, "shop.py")
    assert added.returncode == 0, added.stderr
    made = ("-m", "flask", "--app", "shop:make_app('a stall')")
    done = _run(tmp_path, running, *made, "tampu", "worker", *options)
    assert done.returncode == 0, done.stderr
    jobs = App(running.url)
    first, second = (_result(jobs, job_id) for job_id in added.stdout.split())
    jobs.close_sync()
    assert (first, second) == ("1 in a stall", "2 in a stall")


def test_flask_tampu_worker_explains_its_options(running: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SHOP.replace("make_app", "create_app"))
    told = _run(tmp_path, running, "-m", "flask", "tampu", "worker", "--help")
    assert told.returncode == 0, told.stderr
    assert "--processes" in told.stdout
    wrong = _run(tmp_path, running, "-m", "flask", "tampu", "worker", "--proceses", "2")
    assert (wrong.returncode, "No such option" in wrong.stderr) == (2, True)


def test_an_application_without_the_extension(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("from flask import Flask\napp = Flask(__name__)\n")
    code = "import tampu.web.flask\ntampu.web.flask.jobs"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"FLASK_APP": "bare"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Invalid FLASK_APP 'bare': it does not use tampu.web.flask.Tampu." in done.stderr


def _result(jobs: App, job_id: str) -> object:
    async def read() -> object:
        return await jobs.queue().job(job_id).result(20)

    return jobs.portal().call(read)
