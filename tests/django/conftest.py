"""A project of Django with an empty database and an empty server."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.django.projects import Project
from tests.postgres import Database, PostgresServer
from tests.servers import RunningServer


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of SQLite with the tables of the project."""
    home = tmp_path_factory.mktemp("migrated")
    done = Project(home, "").manage("migrate", "-v0", "--skip-checks")
    assert done.returncode == 0, done.stderr
    return home / "db.sqlite3"


@pytest.fixture
def project(running: RunningServer, tmp_path: Path, migrated: Path) -> Iterator[Project]:
    """A project on SQLite, with its tables."""
    shutil.copy(migrated, tmp_path)
    made = Project(tmp_path, running.url)
    yield made
    made.close()


@pytest.fixture(scope="session")
def template(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A database of PostgreSQL with the tables of the project."""
    home = tmp_path_factory.mktemp("template")
    with postgres_server.database() as made:
        done = Project(home, "").on(made).manage("migrate", "-v0", "--skip-checks")
        assert done.returncode == 0, done.stderr
        yield made.name


@pytest.fixture
def postgres(postgres_server: PostgresServer, template: str) -> Iterator[Database]:
    """A database of PostgreSQL with the tables of the project, for one test."""
    with postgres_server.database(template) as made:
        yield made


@pytest.fixture
def on_postgres(running: RunningServer, tmp_path: Path, postgres: Database) -> Iterator[Project]:
    """A project on PostgreSQL, with its tables."""
    made = Project(tmp_path, running.url).on(postgres)
    yield made
    made.close()
