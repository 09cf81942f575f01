"""The tests on the page about testing pass, run by pytest and by Django."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guide.pages import GUIDE, blocks_of

PAGE = GUIDE / "testing.md"
DJANGO = "test_accounts"
# As a project of Django has it in its settings and in manage.py.
RUN_DJANGO = f"""
import sys, django
from django.conf import settings

database = {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
apps = ["django.contrib.contenttypes", "django.contrib.auth"]
settings.configure(DATABASES={{"default": database}}, INSTALLED_APPS=apps, USE_TZ=True)
django.setup()

from django.test.runner import DiscoverRunner

sys.exit(bool(DiscoverRunner(verbosity=2).run_tests(["{DJANGO}"])))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The modules of the page, as files."""
    for block in blocks_of(PAGE):
        assert block.module is not None, "a block of the page is not tested"
        (tmp_path / f"{block.module}.py").write_text(block.source, "utf-8")
    return tmp_path


def _run(project: Path, *command: str) -> str:
    without = {name: value for name, value in os.environ.items() if name != "TAMPU_URL"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=project,
        env=without,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_tests_of_the_page_pass(project: Path) -> None:
    options = ("-p", "no:cacheprovider", "-p", "no:valkey", "-W", "error")
    scope = ("-o", "asyncio_default_fixture_loop_scope=function", "-o", "asyncio_mode=strict")
    printed = _run(project, "-m", "pytest", *options, *scope, f"--ignore={DJANGO}.py")
    assert "9 passed" in printed


def test_the_test_of_django_passes(project: Path) -> None:
    assert "Ran 1 test" in _run(project, "-W", "error", "-c", RUN_DJANGO)
