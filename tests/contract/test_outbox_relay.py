"""The relay of an outbox: from rows to queues."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import sqlalchemy as sa

from tampu import App, AppWorker, Concurrency, NewJob, OptionError
from tampu.limits import Limit
from tampu.metrics import MemorySink, OutboxCounted, OutboxMoved
from tampu.outbox import Outbox
from tampu.server.scripts.outbox import read_outboxes
from tampu.wire.keys import QueueKeys
from tests.conftest import Start
from tests.contract.apps import nothing_left, working
from tests.contract.outboxes import async_engine, call, new_app, queued_ids, row_ids
from tests.contract.workers import SOON
from tests.postgres import Database, PostgresServer
from tests.servers import RunningServer
from tests.waiting import wait_until

HOME = QueueKeys("default")


@pytest.fixture
def app(running: RunningServer) -> App:
    return new_app(running.url)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
async def outbox(app: App, path: str) -> AsyncIterator[Outbox]:
    made = Outbox(app, database=f"sqlite:///{path}")
    await made.create_table()
    yield made
    await asyncio.to_thread(app.close_sync)


@pytest.fixture
def admin(running: RunningServer) -> Any:  # noqa: ANN401 - redis-py's client
    with running.admin() as client:
        yield client


async def store(outbox: Outbox, path: str, *jobs: NewJob, queue: str = "default") -> list[str]:
    """Store jobs in one transaction. In a thread: a relay in this loop may hold the lock."""

    def store_now() -> list[str]:
        with closing(sqlite3.connect(path)) as made, made:
            return [outbox.add_sync(made, queue, each) for each in jobs]

    return await asyncio.to_thread(store_now)


def notes(count: int) -> list[NewJob]:
    return [NewJob("note", {"number": number}) for number in range(count)]


async def emptied(outbox: Outbox) -> None:
    """Wait until no row is left."""

    async def is_empty() -> bool:
        return not await row_ids(outbox)

    await wait_until(is_empty, within=SOON, sentence="every row was moved")


async def test_rows_reach_their_queues_in_order(
    outbox: Outbox, path: str, admin: redis.Redis
) -> None:
    ids = await store(outbox, path, *notes(1203))
    others = await store(outbox, path, *notes(3), queue="other")
    async with outbox.relay():
        await emptied(outbox)
    assert queued_ids(admin) == ids
    assert queued_ids(admin, "other") == others


async def test_the_workers_of_an_app_move_the_rows_of_its_outbox(
    app: App, outbox: Outbox, path: str
) -> None:
    def enqueue() -> Any:  # noqa: ANN401 - a job
        with closing(sqlite3.connect(path)) as made, made:
            return outbox.enqueue_sync(made, call(app, 5))

    async with working(app):
        job = await asyncio.to_thread(enqueue)
        assert await asyncio.to_thread(job.result, SOON) == 5


async def test_a_worker_runs_the_relay_that_it_is_given(
    app: App, path: str, outbox: Outbox
) -> None:
    app.outboxes.clear()
    async with async_engine(path, "aiosqlite") as engine:
        async with app, AppWorker(app, outbox=outbox.relay(engine), grace=0):
            await store(outbox, path, *notes(3))
            await emptied(outbox)


async def test_a_worker_can_leave_the_rows_to_others(
    app: App, outbox: Outbox, path: str, admin: redis.Redis
) -> None:
    await store(outbox, path, *notes(1))
    async with app, AppWorker(app, outbox=False, grace=0):
        assert admin.keys("*db-outbox:lock*") == []
    with pytest.raises(OptionError, match=r"what outbox\.relay"):
        AppWorker(app, outbox="yes")  # type: ignore[arg-type]


async def test_a_row_that_was_added_before_is_a_duplicate(
    outbox: Outbox, path: str, admin: redis.Redis
) -> None:
    """As after a relay that died between adding and deleting."""
    ids = await store(outbox, path, *notes(3))
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("INSERT INTO tampu_outbox (queue, job) SELECT queue, job FROM tampu_outbox")
    sink = MemorySink()
    async with outbox.relay(metrics=sink):
        await emptied(outbox)
        await wait_until(
            lambda: sum(each.duplicates for each in sink.of(OutboxMoved)) == 3,
            within=SOON,
            sentence="three were duplicates",
        )
    assert queued_ids(admin) == ids
    assert sum(each.moved for each in sink.of(OutboxMoved)) == 6


async def test_rows_that_cannot_be_added_are_set_aside_and_block_nothing(
    app: App, outbox: Outbox, path: str, admin: redis.Redis
) -> None:
    before = await store(outbox, path, *notes(2))
    (unknown,) = await store(outbox, path, NewJob("note", {}, limits=[Limit("undeclared")]))
    await store(outbox, path, NewJob("note", "x" * 500_000), NewJob("note", "x" * 100_000))
    with closing(sqlite3.connect(path)) as made, made:
        insert = "INSERT INTO tampu_outbox (queue, job) VALUES (?, ?)"
        made.execute(insert, ("default", b"garbage"))
        made.execute(
            "INSERT INTO tampu_outbox (queue, job) SELECT 'a{b}', job FROM tampu_outbox LIMIT 1"
        )
    after = await store(outbox, path, *notes(2))
    relay = Outbox(App(app.url, max_payload=100_000), database=outbox.database).relay()
    async with relay:

        async def only_those() -> bool:
            rows = await row_ids(outbox)
            return len(rows) == 5 and rows == await row_ids(outbox, refused=True)

        await wait_until(only_those, within=SOON, sentence="five rows are left, set aside")
    assert queued_ids(admin) == before + after
    rows = outbox.rows()
    problems = [each.problem or "" for each in await rows.list_rows(10, refused=True)]
    assert (await rows.count()).refused == 5
    await rows.close()
    for part, problem in zip(
        (
            "no limit 'undeclared'",
            "too large: 500",
            "too large: 100",
            "Cannot decode the row",
            "Invalid queue",
        ),
        problems,
        strict=True,
    ):
        assert part in problem
    assert "garbage" not in "".join(problems)
    assert unknown in (await row_ids(outbox))


async def test_rows_that_were_set_aside_can_be_tried_again(
    app: App, outbox: Outbox, path: str, admin: redis.Redis
) -> None:
    (held,) = await store(outbox, path, NewJob("note", {}, limits=[Limit("later")]))
    rows = outbox.rows()

    async def is_refused() -> bool:
        return await row_ids(outbox, refused=True) == [held]

    async with outbox.relay():
        await wait_until(is_refused, within=SOON, sentence="the row is set aside")
        async with app:
            await app.queue().limits.set("later", Concurrency(1))
        assert await rows.retry() == [1]
        await emptied(outbox)
    await rows.close()


async def test_a_queue_in_trouble_does_not_hold_up_another_one(
    outbox: Outbox, path: str, admin: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    admin.set(QueueKeys("broken").stream, "not a stream")
    broken = await store(outbox, path, *notes(700), queue="broken")  # more than a batch
    ids = await store(outbox, path, *notes(5))
    async with outbox.relay():
        await wait_until(
            lambda: queued_ids(admin) == ids, within=SOON, sentence="the other queue has its jobs"
        )
        assert len(await row_ids(outbox)) >= 700
        admin.delete(QueueKeys("broken").stream)
        await emptied(outbox)
    assert queued_ids(admin, "broken") == broken
    told = [each.getMessage() for each in caplog.records if "'broken'" in each.getMessage()]
    assert ["failed, retrying" in each for each in told] == [True, False], "once, and its end"


async def test_one_relay_leads_and_another_takes_over(
    outbox: Outbox, path: str, admin: redis.Redis
) -> None:
    first, second = outbox.relay(), outbox.relay()
    await first.start()
    await wait_until(lambda: leader(admin) == first.id, within=SOON, sentence="the first leads")
    await second.start()
    await store(outbox, path, *notes(3))
    await emptied(outbox)
    assert leader(admin) == first.id
    await first.stop()
    await store(outbox, path, *notes(3))
    await emptied(outbox)
    assert leader(admin) == second.id
    await second.stop()
    assert leader(admin) is None
    assert len(queued_ids(admin)) == 6


def leader(admin: redis.Redis) -> str | None:
    keys: Any = admin.keys("*db-outbox:lock*")
    return admin.get(keys[0]).decode() if keys else None  # type: ignore[union-attr]


async def test_tables_of_the_same_name_in_two_databases_have_a_leader_each(
    app: App, outbox: Outbox, path: str, tmp_path: Path, admin: redis.Redis
) -> None:
    other_path = str(tmp_path / "other.db")
    other = Outbox(app, database=f"sqlite:///{other_path}")
    await other.create_table()
    await store(outbox, path, *notes(2))
    await store(other, other_path, *notes(2))
    async with outbox.relay(), other.relay():
        await emptied(outbox)
        await emptied(other)
        locks: Any = admin.keys("*db-outbox:lock*")
        assert len(locks) == 2


async def test_a_delayed_job_and_one_with_a_key_are_added_as_such(
    app: App, outbox: Outbox, path: str
) -> None:
    await store(outbox, path, NewJob("note", delay="1h"), NewJob("note", key="ada", ordered=True))
    async with outbox.relay(), app:
        await emptied(outbox)
        counts = await app.queue().counts()
        assert (counts.delayed, counts.waiting) == (1, 1)


async def test_a_missing_table_is_reported_and_found_when_it_is_there(
    app: App, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(app, database=f"sqlite:///{path}")
    async with outbox.relay():
        await wait_until(
            lambda: "no such table; create it" in caplog.text,
            within=SOON,
            sentence="the log says what is missing",
        )
        assert "Traceback" not in caplog.text
        await outbox.create_table()
        await store(outbox, path, *notes(1))
        await emptied(outbox)


async def test_figures_are_kept_on_the_server(
    app: App, outbox: Outbox, path: str, admin: redis.Redis
) -> None:
    await store(outbox, path, *notes(3))
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("INSERT INTO tampu_outbox (queue, job) VALUES ('default', x'00')")
    sink = MemorySink()
    async with app, outbox.relay(metrics=sink):
        await wait_until(lambda: bool(sink.of(OutboxCounted)), within=SOON, sentence="it counts")
        lane = (await app.queue()._connect()).lane
        figures = (await read_outboxes(lane, HOME))["tampu_outbox"]
        assert (figures.waiting, figures.refused, figures.moved) == (0, 1, 3)
        assert admin.ttl(HOME.outboxes) != -1


async def test_nothing_is_left_behind(running: RunningServer, path: str) -> None:
    async def act() -> None:
        app = new_app(running.url)
        outbox = Outbox(app, database=f"sqlite:///{path}")
        await outbox.create_table()
        async with outbox.relay():
            await store(outbox, path, *notes(1))
            await emptied(outbox)

    await nothing_left(running, act)


class TestTrouble:
    async def test_a_server_that_goes_away_and_comes_back(
        self, start: Start, path: str, tmp_path: Path
    ) -> None:
        options = ("--appendonly", "yes", "--dir", str(tmp_path))
        first = start(*options)
        app = new_app(first.url)
        outbox = Outbox(app, database=f"sqlite:///{path}")
        await outbox.create_table()
        async with outbox.relay():
            await store(outbox, path, *notes(3))
            await emptied(outbox)
            first.kill()
            ids = await store(outbox, path, *notes(3))  # nobody who stores a job notices
            again = start(*options, port=first.port)
            await emptied(outbox)
            with again.admin() as admin:
                assert queued_ids(admin)[-3:] == ids

    @pytest.mark.postgres
    async def test_a_database_that_goes_away_and_comes_back(
        self, app: App, postgres_server: PostgresServer, admin: redis.Redis
    ) -> None:
        with postgres_server.database() as made:
            outbox = Outbox(app, database=made.url)
            await outbox.create_table()
            async with outbox.relay():
                with psycopg.connect(made.url) as connection:
                    outbox.add_sync(connection, "default", NewJob("note"))
                await emptied(outbox)
                postgres_server.kill()
                postgres_server.restart()
                with psycopg.connect(made.url) as connection:
                    outbox.add_sync(connection, "default", NewJob("note"))
                await emptied(outbox)
        assert len(queued_ids(admin)) == 2


@pytest.mark.postgres
class TestLateCommits:
    async def test_a_row_below_others_is_found_when_it_is_committed(
        self, app: App, postgres: Database, admin: redis.Redis
    ) -> None:
        outbox = Outbox(app, database=postgres.url)
        await outbox.create_table()
        with psycopg.connect(postgres.url) as late, psycopg.connect(postgres.url) as early:
            first = outbox.add_sync(late, "default", NewJob("note"))
            second = outbox.add_sync(early, "default", NewJob("note"))
            early.commit()
            async with outbox.relay():
                await wait_until(
                    lambda: queued_ids(admin) == [second],
                    within=SOON,
                    sentence="the other is there",
                )
                late.commit()
                await emptied(outbox)
        assert queued_ids(admin) == [second, first]


async def test_a_relay_over_every_kind_of_database(
    app: App, outbox: Outbox, path: str, admin: redis.Redis
) -> None:
    engine = sa.create_engine(f"sqlite:///{path}")
    for database in (engine, lambda: sqlite3.connect(path)):
        await store(outbox, path, *notes(2))
        async with outbox.relay(database):
            await emptied(outbox)
    engine.dispose()
    assert len(queued_ids(admin)) == 4
