"""The modules on the page about Django are a project that works."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from tampu.django.settings import BackendOptions
from tests.guide.pages import GUIDE, blocks_of, first_cells
from tests.servers import RunningServer

PAGE: Final = GUIDE / "django.md"
URLS: Final = "from django.contrib import admin\nfrom django.urls import path\n"
URLS_TOO: Final = "urlpatterns = [path('admin/', admin.site.urls)]\n"
MANAGE: Final = "import sys\nfrom django.core.management import execute_from_command_line as run\n"
USE: Final = """
import django
django.setup()
from django.db import transaction
from shop.tasks import refresh, send_receipt
with transaction.atomic():
    results = [send_receipt.enqueue(17), refresh.enqueue("prices")]
print(*[each.id for each in results])
"""
LOOK: Final = """
import sys, django
django.setup()
from shop.tasks import send_receipt
for id in sys.argv[1:]:
    print(send_receipt.get_backend().get_result(id).return_value)
"""
SERVE: Final = """
import asyncio, httpx
from asgi import application

async def ask(*paths):
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return [(await client.get(path)).status_code for path in paths]

print(*asyncio.run(ask("/jobs/", "/admin/")))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The project of the page."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    for block in blocks_of(PAGE):
        home = tmp_path / "shop" if block.module == "tasks" else tmp_path
        (home / f"{block.module}.py").write_text(block.source, "utf-8")
    (tmp_path / "urls.py").write_text(URLS + URLS_TOO, "utf-8")
    (tmp_path / "manage.py").write_text(f"{MANAGE}run(sys.argv)\n", "utf-8")
    with (tmp_path / "settings.py").open("a") as settings:  # what the admin asks for
        settings.write(
            "TEMPLATES = [{'BACKEND': 'django.template.backends.django.DjangoTemplates'}]\n"
            "MIDDLEWARE = ['django.contrib.sessions.middleware.SessionMiddleware',"
            "'django.contrib.auth.middleware.AuthenticationMiddleware',"
            "'django.contrib.messages.middleware.MessageMiddleware']\n"
            "SILENCED_SYSTEM_CHECKS = ['admin.E404', 'admin.E402', 'admin.W411']\n"
        )
    return tmp_path


def test_the_project_of_the_page_works(folder: Path, running: RunningServer) -> None:
    def run(*command: str) -> str:
        environment = {"TAMPU_URL": running.url, "DJANGO_SETTINGS_MODULE": "settings"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *command],
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=110,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "no issues" in run("manage.py", "check")
    run("manage.py", "migrate", "-v0")
    ids = run("-c", USE).split()
    run("manage.py", "tampu_worker", "--burst")
    said = run("-c", LOOK, *ids).splitlines()
    assert said == ["sent a receipt for order 17", "refreshed prices"]
    assert run("-c", SERVE) == "404 302\n"  # nobody is logged in


def test_the_page_names_every_option() -> None:
    rows = {name for name, _ in first_cells(PAGE, "Set it up")}
    assert rows == {field.name for field in fields(BackendOptions)}
