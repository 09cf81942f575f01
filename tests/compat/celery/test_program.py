"""A program written for Celery does here what it does there, with its import changed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.compat.celery.capture import GOLDEN, PROGRAM
from tests.contract.cli import environment
from tests.contract.worker_command import run_worker
from tests.servers import RunningServer

EXPECTED: Final[Any] = json.loads(GOLDEN.read_text("utf-8"))
LIMIT_S: Final = 110
PROCESSES: Final = """
import os, time
from tampu.compat.celery import Celery
from tampu.compat.celery.signals import worker_process_init

app = Celery("shop", broker=os.environ["TAMPU_URL"])
app.conf.worker_pool = "prefork"
app.conf.worker_concurrency = 2
STARTED = []

@worker_process_init.connect
def start(**named):
    STARTED.append(os.getpid())

@app.task
def who():
    return [os.getpid(), STARTED]

@app.task(bind=True, time_limit=1)
def hang(self, path):
    with open(path, "a") as file:
        file.write("begun\\n")
    time.sleep(600)
"""
ASK: Final = """
import json, os, sys
from shop import *

def told(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__

path = sys.argv[1]
print(json.dumps([who.delay().get(60), told(lambda: hang.delay(path).get(60)), os.getpid()]))
"""


DJANGO: Final = {
    "conf.py": """
import os
SECRET_KEY = "for a test"  # noqa: S105
INSTALLED_APPS = ["orders"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "orders.db"}}
CELERY_BROKER_URL = os.environ["TAMPU_URL"]
CELERY_WORKER_CONCURRENCY = 1
CELERY_TASK_ROUTES = {"orders.*": {"queue": "orders"}}
""",
    "shop.py": """
import os
from tampu.compat.celery import Celery
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "conf")
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
""",
    "orders/tasks.py": """
from django.db import connection
from tampu.compat.celery import shared_task

@shared_task
def look():
    was_open = connection.connection is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT 40 + 2")
        return [cursor.fetchone()[0], was_open]
""",
    "client.py": """
import json
from shop import app
print(json.dumps([app.send_task("orders.tasks.look", queue="orders").get(60) for _ in range(3)]))
app.close()
""",
}


def write_program(home: Path) -> None:
    for name in ("shop.py", "client.py"):
        text = (PROGRAM / name).read_text("utf-8")
        (home / name).write_text(text.replace("from celery", "from tampu.compat.celery"), "utf-8")


def run_client(home: Path, url: str, *args: object) -> Any:
    done = subprocess.run(
        [sys.executable, "client.py", *map(str, args)],
        cwd=home,
        env=environment(url) | {"BROKER_URL": url},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_program_does_the_same_with_one_import_changed(
    running: RunningServer, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("BROKER_URL", running.url)
    write_program(tmp_path)
    with run_worker(running, tmp_path) as worker:
        worker.until_up()
        found = run_client(tmp_path, running.url)
        assert "shop.fetch('x',) failed: OSError('cannot fetch x')" in worker.err
        assert worker.stop() == 0
    for what, expected in EXPECTED["program"].items():
        assert found.pop(what) == expected, what
    assert found == {}


def test_a_project_of_django_runs_and_its_connections_are_closed(
    running: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "__init__.py").touch()
    for name, text in DJANGO.items():
        (tmp_path / name).write_text(text, "utf-8")
    with run_worker(running, tmp_path) as worker:
        worker.until_up()
        assert run_client(tmp_path, running.url) == 3 * [[42, False]]


def test_tasks_can_run_in_processes_that_are_killed_at_the_time_limit(
    running: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(PROCESSES, "utf-8")
    (tmp_path / "client.py").write_text(ASK, "utf-8")
    with run_worker(running, tmp_path) as worker:
        worker.until_up()
        (child, started), end, client = run_client(tmp_path, running.url, tmp_path / "begun")
    assert child not in {worker.pid, client}
    assert started == [child]
    assert end == "TimeLimitExceeded"
    assert (tmp_path / "begun").read_text() == "begun\n", "it ran once"
