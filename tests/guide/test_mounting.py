"""The modules on the page about the dashboard serve it where the page says."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.guide.pages import GUIDE, blocks_of
from tests.servers import RunningServer
from tests.waiting import wait_until

PAGE = GUIDE / "dashboard.md"
# As a project of Django has it in its settings.
SETTINGS = "ALLOWED_HOSTS = ['127.0.0.1']\nROOT_URLCONF = 'urls'\n"
SERVE = {
    "asgi": """
import socket, uvicorn
from asgi import application
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(application, log_level="error")).run([listener])
""",
    "wsgi": """
from werkzeug.serving import make_server
from wsgi import application
server = make_server("127.0.0.1", 0, application)
print(server.server_port, flush=True)
server.serve_forever()
""",
}


@pytest.mark.parametrize("module", SERVE)
async def test_a_module_of_the_page_serves_the_dashboard(
    module: str, tmp_path: Path, running: RunningServer
) -> None:
    (block,) = (block for block in blocks_of(PAGE) if block.module == module)
    (tmp_path / f"{module}.py").write_text(block.source, "utf-8")
    (tmp_path / "settings.py").write_text(SETTINGS, "utf-8")
    (tmp_path / "urls.py").write_text("urlpatterns = []\n", "utf-8")
    given = {"DASHBOARD_PASSWORD": "x", "TAMPU_URL": running.url}
    environment = os.environ | given | {"DJANGO_SETTINGS_MODULE": "settings"}
    process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        [sys.executable, "-W", "ignore", "-c", SERVE[module]],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = (await asyncio.to_thread(process.stdout.readline)).strip()
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            assert (await client.get("/jobs/")).status_code == 401
            page = await client.get("/jobs", auth=("admin", "x"), follow_redirects=True)
            assert (page.status_code, page.url.path) == (200, "/jobs/")
            assert "There are no queues yet" in page.text
            assert (await client.get("/elsewhere")).status_code == 404
        with running.admin() as admin:
            process.terminate()
            await wait_until(
                lambda: len(admin.client_list()) == 1, within=60, sentence="it has disconnected"
            )
    finally:
        process.kill()
        process.communicate()
