"""Database connections of jobs, and jobs that are added with a transaction."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.django.projects import Project
from tests.postgres import Database

SLOTS = 10


@pytest.mark.postgres
def test_jobs_share_as_many_connections_as_there_are_slots(on_postgres: Project) -> None:
    project = on_postgres.with_settings(conn_max_age=None)
    for name in ("connection_of", "connection_of_async"):
        ids = project.ask("enqueue", name, [], 1000)
        with project.worker("--queue", "default"):
            found = project.ask("wait", ids)
        assert {each["status"] for each in found} == {"SUCCESSFUL"}
        connections = {each["value"][0] for each in found}
        assert 1 < len(connections) <= SLOTS, name
        assert max(each["value"][1] for each in found) <= SLOTS


@pytest.mark.postgres
def test_plain_and_async_jobs_share_them_too(on_postgres: Project) -> None:
    project = on_postgres.with_settings(conn_max_age=None)
    ids = [
        id
        for _ in range(50)
        for name in ("connection_of", "connection_of_async")
        for id in project.ask("enqueue", name, [], 2)
    ]
    with project.worker("--queue", "default"):
        found = project.ask("wait", ids)
    assert 1 < len({each["value"][0] for each in found}) <= SLOTS


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["connection_of", "connection_of_async"])
def test_a_connection_that_the_database_has_dropped_fails_no_job(
    name: str, on_postgres: Project, postgres: Database
) -> None:
    project = on_postgres.with_settings(conn_max_age=None)
    with project.worker():
        before = project.ask("wait", project.ask("enqueue", name, [], 20))
        assert postgres.drop_connections() > 0
        after = project.ask("wait", project.ask("enqueue", name, [], 20))
    assert {each["status"] for each in before + after} == {"SUCCESSFUL"}
    ours = {each["value"][0] for each in before}
    assert ours.isdisjoint(each["value"][0] for each in after)


@pytest.mark.postgres
def test_tasks_of_an_app_have_the_same_with_the_middleware(
    on_postgres: Project, postgres: Database
) -> None:
    project = on_postgres.with_settings(conn_max_age=None)
    with project.worker("--app", "shop.jobs:app"):
        before = project.ask("run_jobs", 50)
        assert postgres.drop_connections() > 0
        after = project.ask("run_jobs", 10)
    assert 1 < len({pid for pid, _ in before}) <= SLOTS
    assert {pid for pid, _ in before}.isdisjoint(pid for pid, _ in after)


@pytest.mark.postgres
def test_a_worker_that_stops_leaves_no_connection(on_postgres: Project, postgres: Database) -> None:
    project = on_postgres.with_settings(conn_max_age=None)
    with project.worker():
        project.ask("wait", project.ask("enqueue", "connection_of", [], 5))
        assert postgres.connections() > 0
    assert postgres.connections() == 0


def test_queries_are_not_collected_from_job_to_job(project: Project) -> None:
    project = project.with_settings(debug=True, conn_max_age=None)
    (order,) = project.ask("make_orders", 1)
    ids = project.ask("enqueue", "count_queries", [order], 30)
    project.work()
    assert {each["value"] for each in project.ask("results", ids)} == {1}


def test_a_rolled_back_transaction_adds_nothing(project: Project) -> None:
    check_transactions(project.with_settings(options={"enqueue": "on_commit"}))


@pytest.mark.postgres
def test_a_rolled_back_transaction_adds_nothing_on_postgresql(on_postgres: Project) -> None:
    check_transactions(on_postgres.with_settings(options={"enqueue": "on_commit"}))


def check_transactions(project: Project) -> None:
    done = project.ask("in_transactions")
    assert done["told early"] == 0
    assert sorted(done["told"]) == sorted(done["committed"])
    assert all(project.ask("is_missing", id) for id in done["rolled back"])
    project.work()
    assert {each["status"] for each in project.ask("results", done["committed"])} == {"SUCCESSFUL"}


def test_with_an_outbox_a_rolled_back_transaction_adds_nothing(project: Project) -> None:
    check_outbox(project.with_settings(options={"enqueue": "outbox"}))


@pytest.mark.postgres
def test_with_an_outbox_on_postgresql_too(on_postgres: Project) -> None:
    check_outbox(on_postgres.with_settings(options={"enqueue": "outbox"}))


def check_outbox(project: Project) -> None:
    done = project.ask("in_transactions")
    kept = set(done["committed"])
    assert kept <= set(done["told"])  # told when the row is written, before it is committed
    assert project.ask("rows_of_outbox") == len(kept)
    assert all(project.ask("is_missing", id) for id in [*done["rolled back"], *kept])
    with project.worker():
        ended = project.ask("wait_for_known", sorted(kept))
    assert {each["status"] for each in ended} == {"SUCCESSFUL"}
    assert project.ask("rows_of_outbox") == 0
    assert all(project.ask("is_missing", id) for id in done["rolled back"])


def test_a_missing_table_of_the_outbox_asks_for_a_migration(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    empty = replace(project, home=tmp_path / "empty")
    empty = empty.with_settings(options={"enqueue": "outbox"})
    told = "the database has no such table; run `python manage.py migrate`"
    with pytest.raises(AssertionError, match=re.escape(told)):
        empty.ask("enqueue", "add", [1, 2])
    assert told in " ".join(empty.examine().stdout.split())


def test_on_commit_without_a_server_loses_the_job_and_keeps_the_data(project: Project) -> None:
    away = replace(project, server="redis://127.0.0.1:1")
    away = away.with_settings(options={"enqueue": "on_commit"})
    assert away.ask("commit_without_server") == ["ServerUnreachable", 1, ["before"]]


def test_by_default_jobs_do_not_wait_for_a_transaction(project: Project) -> None:
    done = project.ask("in_transactions")
    assert done["told early"] > 0
    assert {each["status"] for each in project.ask("results", done["rolled back"])} == {"READY"}
