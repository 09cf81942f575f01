"""An outbox whose relays are killed: each committed row is once on its queue, and no other one."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from tampu import App, NewJob
from tampu.outbox import Outbox
from tampu.outbox.floor import Floor
from tampu.outbox.rows import OutboxRows
from tampu.outbox.schema import OutboxSql, Statement
from tests.conftest import Start
from tests.contract.outboxes import queued_ids, row_ids
from tests.faults.outbox_process import POINTS, QUEUES, kills, noted
from tests.faults.outbox_process import start as start_process
from tests.postgres import Database, PostgresServer
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

KILLS = int(os.environ.get("TAMPU_FAULTS_OUTBOX_KILLS", "6"))  # `make faults` kills more often
LIMIT_S = 60 + 10 * KILLS
PRODUCERS, RELAYS = 4, 2


class Chaos:
    """Producers, and relays that are started again when they have died."""

    def __init__(self, url: str, database: str, folder: Path) -> None:
        self.url, self.database, self.folder = url, database, folder
        self._relays: list[subprocess.Popen[bytes]] = []
        self._seed = 0
        self._producers = [
            start_process("producer", database, folder, seed) for seed in range(PRODUCERS)
        ]

    async def until_killed(self, count: int) -> None:
        """Go on until relays have died so many times."""

        def are_killed() -> bool:
            self._fill()
            return len(kills(self.folder)) >= count

        await wait_until(are_killed, within=LIMIT_S, sentence=f"relays have died {count} times")

    async def stop(self) -> None:
        """Let the producers end, and the relays die."""
        (self.folder / "stop").touch()
        for each in self._producers:
            await asyncio.to_thread(each.wait, 60)
        self.end()

    def end(self) -> None:
        """End every process that is left."""
        for each in (*self._producers, *self._relays):
            each.kill()
            each.wait()

    def _fill(self) -> None:
        self._relays = [each for each in self._relays if each.poll() is None]
        while len(self._relays) < RELAYS:
            self._seed += 1
            relay = start_process("relay", self.url, self.database, self.folder, self._seed)
            self._relays.append(relay)

    async def check(self, admin: redis.Redis) -> None:
        """Move what is left, then compare the queues with what producers have noted."""
        app = App(self.url)
        outbox = Outbox(app, database=self.database)

        async def is_empty() -> bool:
            return not await row_ids(outbox)

        async with outbox.relay():
            await wait_until(is_empty, within=120, sentence="every row was moved")
        found = [job_id for queue in QUEUES for job_id in queued_ids(admin, queue)]
        told = noted(self.folder)
        assert len(found) == len(set(found)), "a job is on its queue twice"
        assert not told["kept"] - set(found), "a committed row is lost"
        assert not set(found) - told["kept"] - told["unknown"], "a row that was not committed"
        assert told["gone"]
        assert set(kills(self.folder)) == set(POINTS)


MakeChaos = Callable[[str, str], Awaitable[Chaos]]


@pytest.fixture
async def make_chaos(tmp_path: Path) -> AsyncIterator[MakeChaos]:
    made: list[Chaos] = []

    async def make(url: str, database: str) -> Chaos:
        await Outbox(App(url), database=database).create_table()
        made.append(Chaos(url, database, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def lasting(start: Start) -> Iterator[tuple[RunningServer, redis.Redis]]:
    """A server that keeps what it has confirmed when it is killed."""
    server = start("--appendonly", "yes", "--appendfsync", "always")
    with server.admin() as admin:
        yield server, admin


@pytest.mark.timeout(2 * LIMIT_S + 120)
async def test_relays_on_sqlite_that_are_killed(
    lasting: tuple[RunningServer, redis.Redis], make_chaos: MakeChaos, tmp_path: Path
) -> None:
    server, admin = lasting
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
    chaos = await make_chaos(server.url, f"sqlite:///{path}")
    await chaos.until_killed(KILLS // 2)
    server.kill()
    server.restart()
    await chaos.until_killed(KILLS)
    await chaos.stop()
    await chaos.check(admin)


@pytest.mark.postgres
@pytest.mark.timeout(2 * LIMIT_S + 120)
async def test_relays_on_postgresql_that_are_killed(
    lasting: tuple[RunningServer, redis.Redis],
    make_chaos: MakeChaos,
    postgres_server: PostgresServer,
) -> None:
    server, admin = lasting
    with postgres_server.database() as database:
        chaos = await make_chaos(server.url, database.url)
        await chaos.until_killed(KILLS // 3)
        server.kill()
        server.restart()
        await chaos.until_killed(2 * KILLS // 3)
        postgres_server.kill()
        postgres_server.restart()
        await chaos.until_killed(KILLS)
        await chaos.stop()
        await chaos.check(admin)


# --- failover -----------------------------------------------------------------------------------


async def test_a_failover_loses_no_row_if_a_replica_must_confirm(
    start: Start, tmp_path: Path
) -> None:
    """The replica that takes over lacks the last writes of the master."""
    master = start()
    async with Proxy(master.port) as link, Proxy(master.port) as proxy:
        replica = start("--replicaof", "127.0.0.1", str(link.port))
        next_replica = start("--replicaof", "127.0.0.1", str(replica.port))
        await wait_until(lambda: follows(replica), within=60, sentence="the replica follows")
        await wait_until(lambda: follows(next_replica), within=60, sentence="and the next one")
        app = App(proxy.url, durability="replica", time_limit=1)
        outbox = Outbox(app, database=f"sqlite:///{tmp_path / 'shop.db'}")
        await outbox.create_table()
        async with outbox.relay():
            first = await store(outbox, tmp_path, 5)
            await wait_until(lambda: is_empty(outbox), within=60, sentence="five rows are moved")
            link.hold_replies = True
            second = await store(outbox, tmp_path, 5)
            with master.admin() as admin:
                await wait_until(
                    lambda: queued_ids(admin) == first + second,
                    within=60,
                    sentence="the master has the jobs",
                )
            assert len(await row_ids(outbox)) == 5, "no replica has them, so their rows stay"
            master.kill()
            with replica.admin() as admin:
                admin.replicaof("NO", "ONE")
                assert queued_ids(admin) == first, "the replica lacks the last writes"
                proxy.lead_to(replica.port)
                await wait_until(lambda: is_empty(outbox), within=60, sentence="all are moved")
                assert queued_ids(admin) == first + second


def follows(replica: RunningServer) -> bool:
    with replica.admin() as admin:
        info: Any = admin.info("replication")
        return bool(info["master_link_status"] == "up")


async def store(outbox: Outbox, folder: Path, count: int) -> list[str]:
    """In a thread: a relay in this loop may hold the lock."""

    def store_now() -> list[str]:
        with closing(sqlite3.connect(folder / "shop.db", timeout=30)) as connection, connection:
            return [outbox.add_sync(connection, "default", NewJob("note", 1)) for _ in range(count)]

    return await asyncio.to_thread(store_now)


async def is_empty(outbox: Outbox) -> bool:
    return not await row_ids(outbox)


# --- old snapshots --------------------------------------------------------------------------------


@pytest.mark.postgres
async def test_an_old_snapshot_does_not_slow_the_relay(postgres: Database) -> None:
    """Its dead rows stay in the index, and a look from the beginning passes all of them."""
    outbox = Outbox(App("redis://127.0.0.1:1"), database=postgres.url)
    await outbox.create_table()
    insert = (
        "INSERT INTO tampu_outbox (queue, job)"
        " SELECT 'default', 'job' FROM generate_series(1, 300) AS number"
    )

    async def pages(after: int) -> int:
        """How many pages a look reads that begins after this id."""

        def explained(sql: OutboxSql) -> Statement:
            text, values = sql.fetch(after, ())
            return "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + text, values

        ((plan,),) = await rows._run(explained)
        top = plan[0]["Plan"]
        return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])

    rows = OutboxRows("tampu_outbox", postgres.url, max_job=1_000_000)
    floor, now = Floor(), 1_000.0
    with psycopg.connect(postgres.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM tampu_outbox")
        floor.next_start(now)
        looks = []
        for _ in range(80):  # in eight seconds, so that no look begins at 0
            postgres.execute(insert)
            after = floor.next_start(now)
            looks.append(await pages(after))
            found = await rows.fetch(after, ())
            assert len(found) == 300
            await rows.delete([each.id for each in found])
            floor.note(found[-1].id, now, is_full=False)
            now += 0.1
        from_the_beginning = await pages(0)
    await rows.close()
    assert max(looks[40:]) < 3 * max(looks[10:20])
    assert from_the_beginning > 5 * max(looks[40:]), "the dead rows are in the way"
