"""`python -m benchmarks.django`: backends for Django's tasks, on 500 tasks that do nothing.

Each backend runs in the project in `django_project/`, on Django 6.1, PostgreSQL and Valkey, with
its own worker command. Times are those that Django's results tell.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests import djangos
from tests.postgres import Database, PostgresServer
from tests.servers import BACKENDS, ROOT, RunningServer

PROJECT: Final = Path(__file__).parent / "django_project"
RESULTS: Final = Path(__file__).parent / "results" / "django.json"
TASKS: Final = 500
ROUNDS: Final = 5
_HOME: Final = ROOT / ".venv-peers" / "django"
_PYTHON: Final = _HOME / "bin" / "python"
_PACKAGES: Final = (
    "django==6.1.3",
    "huey==3.5.4",
    "django-tasks-db==0.13.0",
    "django-tasks-redis==0.4.0",
    "psycopg[binary]==3.3.9",
)
_LIMIT_S: Final = 120


@dataclass(frozen=True, slots=True)
class Rival:
    """A backend, as `settings.py` knows it, and its worker."""

    name: str
    title: str
    command: tuple[str, ...]


RIVALS: Final = (
    Rival("tampu", "tampu", ("tampu_worker", "--log-level", "warning")),
    Rival("huey", "Huey, 10 threads", ("run_huey", "-k", "thread", "-w", "10", "-q")),
    Rival("db", "django-tasks-db", ("db_worker", "--no-startup-delay", "-v", "0")),
    Rival("redis", "django-tasks-redis", ("run_redis_tasks", "--continuous", "-v", "0")),
)


@dataclass(frozen=True, slots=True)
class Rates:
    """Tasks a second: enqueued one after the other, and run."""

    enqueued: float
    run: float


def main() -> None:
    """Measure all in turns, print a table and keep it."""
    _prepare()
    rounds: dict[str, list[Rates]] = {each.name: [] for each in RIVALS}
    with PostgresServer() as postgres:
        for number in range(ROUNDS):
            for each in RIVALS:
                rounds[each.name].append(_measure(each, postgres))
                print(f"  round {number + 1}: {each.title}: {rounds[each.name][-1]}", flush=True)
    print(as_markdown(rounds))
    kept = {name: [[each.enqueued, each.run] for each in rates] for name, rates in rounds.items()}
    facts = {"tasks": TASKS, "packages": _PACKAGES, "load": os.getloadavg(), "rounds": kept}
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


def as_markdown(rounds: Mapping[str, Sequence[Rates]]) -> str:
    """The medians, and how many times better tampu is."""
    enqueued = {name: median(each.enqueued for each in rates) for name, rates in rounds.items()}
    run = {name: median(each.run for each in rates) for name, rates in rounds.items()}
    lines = ["| backend | enqueue | run |", "|---|---|---|"]
    for each in RIVALS:
        cells = [
            f"{rates[each.name]:.0f}/s"
            + (f", {rates['tampu'] / rates[each.name]:.1f} x" if each.name != "tampu" else "")
            for rates in (enqueued, run)
        ]
        lines.append(f"| {each.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _measure(rival: Rival, postgres: PostgresServer) -> Rates:
    server = BACKENDS[0].find()
    assert server is not None, "the wheel of Valkey is installed with the tools"
    with postgres.database() as database, RunningServer(server) as running:
        environment = _environment(rival, database, running)
        _run(environment, "manage.py", "migrate", "-v0", "--skip-checks")
        told = json.loads(_run(environment, "program.py", "enqueue", str(TASKS)))
        with _worker(rival, environment):
            seconds = float(_run(environment, "program.py", "wait", *told["ids"]))
    return Rates(TASKS / told["seconds"], TASKS / seconds)


@contextmanager
def _worker(rival: Rival, environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [_PYTHON, "manage.py", *rival.command],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()


def _environment(rival: Rival, database: Database, running: RunningServer) -> dict[str, str]:
    return {
        **os.environ,
        "RIVAL": rival.name,
        "PORT": str(running.port),
        "POSTGRES": f"{database.folder} {database.name}",
        "DJANGO_SETTINGS_MODULE": "settings",
    }


def _run(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [_PYTHON, *command],
        cwd=PROJECT,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT_S,
    )
    return done.stdout


def _prepare() -> None:
    """An environment of its own, with Python 3.12 or newer."""
    stamp, wanted = _HOME / ".made", " ".join(_PACKAGES)
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return
    python = djangos.find_python()
    if python is None:
        sys.exit("Django 6 needs Python 3.12 or newer, and there is none.")
    print(f"  creating an environment with {wanted} ...", flush=True)
    shutil.rmtree(_HOME, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(_HOME)], check=True)
    pip = [str(_PYTHON), "-m", "pip", "install", "--quiet", *_PACKAGES]
    subprocess.run([*pip, "--editable", f"{ROOT}[django]"], check=True)
    stamp.write_text(wanted, "utf-8")


if __name__ == "__main__":
    main()
