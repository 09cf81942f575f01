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
from mysite.asgi import application

async def ask(*paths):
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return [(await client.get(path)).status_code for path in paths]

print(*asyncio.run(ask("/jobs/", "/admin/")))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The project of the page: what Django makes, and what the page adds to it."""
    for command in ("startproject mysite .", "startapp shop"):
        execute_in(tmp_path, "-m", "django", *command.split())
    for block in blocks_of(PAGE):
        is_added = block.module == "mysite/settings"
        with (tmp_path / f"{block.module}.py").open("a" if is_added else "w") as file:
            file.write(block.source)
    return tmp_path


def execute_in(folder: Path, *command: str, **surroundings: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        cwd=folder,
        env=os.environ | surroundings,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_project_of_the_page_works(folder: Path, running: RunningServer) -> None:
    def run(*command: str) -> str:
        settings = {"TAMPU_URL": running.url, "DJANGO_SETTINGS_MODULE": "mysite.settings"}
        return execute_in(folder, *command, **settings)

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
