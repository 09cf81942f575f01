"""The dashboard in a project: for staff, under ASGI and WSGI, with a link in the admin."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.django.projects import Project

MOUNT_WITHOUT_A2WSGI = """
import sys
sys.modules["a2wsgi"] = None
from django.core.wsgi import get_wsgi_application
application = get_wsgi_application()
from tampu.django.dashboard import mount_dashboard
mount_dashboard(application)
"""


@contextmanager
def serve(project: Project, how: str) -> Iterator[str]:
    process = subprocess.Popen(
        [project.python, "serve.py", how],
        cwd=project.folder,
        env=project.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize("how", ["asgi", "wsgi"])
def test_staff_and_nobody_else_sees_the_dashboard(how: str, project: Project) -> None:
    project.ask("enqueue", "add", [1, 2])
    sessions = {name: project.ask("log_in", name) for name in ("ada", "bob")}
    with serve(project, how) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/hello").text == "hello from the project"
        assert client.get("/jobsearch").status_code == 404
        assert client.get("/jobs/").status_code == 404
        for name, status in (("bob", 404), ("ada", 200), ("nobody", 404)):
            client.cookies = {"sessionid": sessions.get(name, "invented")}
            assert client.get("/jobs/").status_code == status, name
        client.cookies = {"sessionid": sessions["ada"]}
        page = client.get("/jobs", follow_redirects=True)
        assert page.url.path == "/jobs/"
        assert "emails" in page.text
        assert client.get("/jobs/workers").status_code == 200
        assert client.get("/hello").text == "hello from the project"


def test_what_wsgi_needs_is_asked_for_at_once(project: Project) -> None:
    done = project.python_run("-c", MOUNT_WITHOUT_A2WSGI)
    assert done.returncode == 1
    assert "The package 'a2wsgi' is not installed. Run: pip install a2wsgi" in done.stderr


def test_the_admin_links_to_it(project: Project) -> None:
    pages = project.ask("admin_pages")
    assert "/admin/tampu/dashboardlink/" in pages["index"]
    assert pages["goes to"] == "/jobs/"
    assert "tampu" not in project.with_settings(dashboard=None).ask("admin_pages")["index"]
    made = project.manage("makemigrations", "--check", "--dry-run", "tampu")
    assert (made.returncode, made.stdout) == (0, "No changes detected in app 'tampu'\n")
