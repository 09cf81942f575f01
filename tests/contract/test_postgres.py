"""PostgreSQL as the tests have it."""

import psycopg
import pytest

from tests.postgres import Database, PostgresServer

pytestmark = pytest.mark.postgres


def test_each_test_has_an_empty_database_and_can_drop_connections(postgres: Database) -> None:
    postgres.execute("CREATE TABLE rows (id int)")
    assert postgres.execute("SELECT count(*) FROM rows") == [(0,)]
    with psycopg.connect(postgres.url, application_name="it") as dropped:
        assert (postgres.connections("it"), postgres.connections("other")) == (1, 0)
        assert postgres.drop_connections("it") == 1
        with pytest.raises(psycopg.OperationalError):
            dropped.execute("SELECT 1")


def test_a_killed_server_comes_back_with_its_rows(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as made:
        made.execute("CREATE TABLE rows AS SELECT 1 AS id")
        postgres_server.kill()
        with pytest.raises(psycopg.OperationalError):
            made.execute("SELECT 1")
        postgres_server.restart()
        assert made.execute("SELECT id FROM rows") == [(1,)]
