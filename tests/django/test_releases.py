"""The same project on other releases of Django, and while its files change."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import djangos
from tests.django.projects import FOLDER, Project
from tests.servers import RunningServer

if TYPE_CHECKING:
    from tests.djangos import DjangoRelease


@pytest.fixture(params=djangos.RELEASES, ids=lambda each: each.version)
def other(
    request: pytest.FixtureRequest, running: RunningServer, tmp_path: Path, migrated: Path
) -> Iterator[Project]:
    release: DjangoRelease = request.param
    shutil.copy(migrated, tmp_path)
    # By name: looking it up takes a thread, and Python 3.12 starts none when a program ends.
    server = running.url.replace("127.0.0.1", "localhost")
    made = Project(tmp_path, server, python=release.python)
    yield made
    made.close()


@pytest.mark.django6
def test_it_works_on_newer_releases(other: Project) -> None:
    order, another = other.ask("make_orders", 2)
    ids = [
        *other.ask("enqueue", "add", [1, 2]),
        *other.ask("enqueue", "charge", [order]),
        *other.ask("enqueue", "describe", []),
    ]
    id, is_same = other.ask("enqueue_async", "charge_async", [another])
    assert is_same
    tried, kept = other.ask("enqueue_using", "fail", ["no"], {"attempts": 2})
    assert kept
    later, _ = other.ask("enqueue_using", "add", [2, 3], {"seconds": 0.1, "priority": 100})
    with other.worker():
        found = other.ask("wait", [*ids, id, tried, later])
    values = [each["value"] for each in found]
    assert (values[0], values[1], values[3], values[5]) == (3, 1, 1, 5)
    assert (found[4]["status"], found[4]["attempts"]) == ("FAILED", 2)
    checked = other.manage("check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_worker_restarts_when_a_file_changes(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    project = replace(project, folder=folder)
    tasks = folder / "shop" / "tasks.py"
    with project.worker("--reload") as worker:
        (before,) = project.ask("wait", project.ask("enqueue", "add", [1, 2]))
        tasks.write_text(tasks.read_text().replace("return a + b", "return a * b + 10"))
        worker.wait_for("restarting after changes in tasks.py")
        worker.wait_for("stopped")  # the process with the old code
        (after,) = project.ask("wait", project.ask("enqueue", "add", [1, 2]))
    assert (before["value"], after["value"]) == (3, 12)
