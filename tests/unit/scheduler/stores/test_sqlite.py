"""The store in an SQLite file."""

import asyncio
import resource
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tampu.errors import DecodeError, OptionError, StoreFailed
from tampu.scheduler.stores import sqlite as sqlite_store
from tampu.scheduler.stores.sqlite import SqliteStore
from tests.stores import FULL, state_of
from tests.waiting import wait_until

NOTES = "these are my notes, " * 100

SAVE_FROM_ANOTHER_PROCESS = """
import asyncio, sys
from tampu.scheduler.stores.sqlite import SqliteStore
from tampu.wire.task_state import TaskState

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    for n in range(100):
        await store.save([TaskState(task_id="shared", fired=n), TaskState(task_id=f"theirs-{n}")])
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "states.db"


@pytest.fixture
def notes(path: Path) -> Iterator[Path]:
    path.write_text(NOTES)
    yield path
    assert path.read_text() == NOTES, "the file is untouched"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path)
    await made.open()
    yield made
    await made.close()


def store_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("tampu-sqlite")]


async def wait_for_threads() -> None:
    await wait_until(lambda: not store_threads(), within=60, sentence="the thread has ended")


def insert_row(path: Path, task_id: str, expression: str) -> None:
    """Write a row, as another program might."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"INSERT INTO tasks VALUES (?, {expression})", (task_id,))  # noqa: S608


class TestFile:
    async def test_states_survive_a_restart(self, path: Path) -> None:
        for fired in (1, 2):
            store = SqliteStore(path)
            await store.open()
            if fired == 2:
                assert await store.load(["a"]) == [state_of("a", 1)]
            await store.save([state_of("a", fired)])
            await store.close()

    async def test_states_are_stored_as_json(self, store: SqliteStore, path: Path) -> None:
        await store.save([state_of("a", 7)])
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT id, state FROM tasks").fetchall()
            assert rows == [("a", '{"task_id":"a","next_ms":7000,"fired":7}')]
            assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    async def test_a_path_may_be_text(self, path: Path) -> None:
        store = SqliteStore(str(path))
        await store.open()
        await store.close()
        assert path in path.parent.iterdir()
        assert repr(store) == f"<SqliteStore {path}>"

    async def test_a_relative_path_does_not_change_with_the_directory_of_the_program(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        store = SqliteStore("states.db")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        await store.open()
        await store.close()
        assert (tmp_path / "states.db").exists()

    @pytest.mark.parametrize("path", ["", "  ", "a\0b", ":memory:", b"a", None, 5])
    def test_an_invalid_path_is_refused_by_name(self, path: str) -> None:
        with pytest.raises(OptionError, match="expected the path of a file"):
            SqliteStore(path)


class TestRows:
    @pytest.mark.parametrize(
        "expression",
        ["'no json'", "x'ff'", "CAST(x'ff' AS TEXT)", "5", "1.5", "''", '\'{"task_id":"other"}\''],
    )
    async def test_a_malformed_row_is_reported_and_the_others_are_loaded(
        self, store: SqliteStore, path: Path, expression: str
    ) -> None:
        await store.save([FULL])
        insert_row(path, "bad", expression)
        bad, full = await store.load(["bad", FULL.task_id])
        assert isinstance(bad, DecodeError)
        assert full == FULL
        await store.save([state_of("bad")])
        assert await store.load(["bad"]) == [state_of("bad")]

    async def test_a_batch_that_fails_half_way_is_rolled_back(
        self, store: SqliteStore, path: Path
    ) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(
                "CREATE TRIGGER no BEFORE INSERT ON tasks WHEN new.id = 'bad' "
                "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            )
        with pytest.raises(StoreFailed, match="not this one"):
            await store.save([state_of("a"), state_of("bad"), state_of("b")])
        assert await store.load(["a", "b"]) == [None, None]
        await store.save([state_of("a")])
        assert await store.load(["a"]) == [state_of("a")]


class TestSharing:
    async def test_two_stores_on_one_file_see_the_same_states(
        self, store: SqliteStore, path: Path
    ) -> None:
        other = SqliteStore(path)
        await other.open()
        await store.save([state_of("a", 1)])
        assert await other.load(["a"]) == [state_of("a", 1)]
        await other.save([state_of("a", 2)])
        assert await store.load(["a"]) == [state_of("a", 2)]
        await other.close()

    async def test_many_stores_may_create_the_file_at_once(self, path: Path) -> None:
        stores = [SqliteStore(path) for _ in range(12)]
        await asyncio.gather(*(each.open() for each in stores))
        await asyncio.gather(*(s.save([state_of(f"{n}")]) for n, s in enumerate(stores)))
        assert await stores[0].load([str(n) for n in range(12)]) == [
            state_of(f"{n}") for n in range(12)
        ]
        for each in stores:
            await each.close()
        await wait_for_threads()

    async def test_two_processes_may_write_to_one_file(
        self, store: SqliteStore, path: Path
    ) -> None:
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SAVE_FROM_ANOTHER_PROCESS, str(path)
        )
        for n in range(100):
            await store.save([state_of("shared", n + 1000), state_of(f"ours-{n}")])
        assert await asyncio.wait_for(other.wait(), 20) == 0
        ids = [f"{whose}-{n}" for whose in ("ours", "theirs") for n in range(100)]
        assert None not in await store.load(["shared", *ids])


class TestLockedFile:
    async def test_a_save_waits_without_blocking_the_loop(
        self, store: SqliteStore, path: Path
    ) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            saving = asyncio.create_task(store.save([FULL]))
            await asyncio.wait([saving], timeout=0.1)
            assert not saving.done()
            other.execute("COMMIT")
            await asyncio.wait_for(saving, 10)
        assert await store.load([FULL.task_id]) == [FULL]

    async def test_a_save_fails_if_the_file_stays_locked(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_store, "_BUSY_S", 0.05)
        store = SqliteStore(path)
        await store.open()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreFailed, match="kept it locked for 5 s"):
                await store.save([FULL])
            assert await store.load([FULL.task_id]) == [None], "reading does not wait"
            other.execute("COMMIT")
        await store.save([FULL])
        assert await store.load([FULL.task_id]) == [FULL]
        await store.close()

    async def test_opening_a_new_file_waits_for_another_writer(self, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("CREATE TABLE mine (a)")
            other.execute("BEGIN IMMEDIATE")
            store = SqliteStore(path)
            opening = asyncio.create_task(store.open())
            await asyncio.wait([opening], timeout=0.1)
            assert not opening.done()
            other.execute("COMMIT")
        await asyncio.wait_for(opening, 10)
        await store.save([FULL])
        await store.close()

    async def test_opening_fails_if_the_file_stays_locked(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_store, "_BUSY_S", 0.05)
        store = SqliteStore(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            other.execute("CREATE TABLE mine (a)")
            with pytest.raises(StoreFailed, match="locked"):
                await store.open()
            other.execute("COMMIT")
        await wait_for_threads()
        await store.open()
        await store.close()


class TestUnusableFile:
    async def test_a_missing_directory(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "none" / "states.db")
        with pytest.raises(StoreFailed, match="its directory may be missing") as caught:
            await store.open()
        assert caught.value.store == str(tmp_path / "none" / "states.db")
        await wait_for_threads()
        (tmp_path / "none").mkdir()
        await store.open()
        await store.save([FULL])
        await store.close()

    async def test_a_directory(self, tmp_path: Path) -> None:
        with pytest.raises(StoreFailed, match="cannot be opened"):
            await SqliteStore(tmp_path).open()

    async def test_a_file_of_another_kind(self, notes: Path) -> None:
        with pytest.raises(StoreFailed, match="is not an SQLite database"):
            await SqliteStore(notes).open()

    async def test_a_database_of_another_program(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE tasks (title)")
        store = SqliteStore(path)
        await store.open()
        with pytest.raises(StoreFailed, match="no such column"):
            await store.load(["a"])
        await store.close()

    async def test_a_full_disk(self, store: SqliteStore, path: Path) -> None:
        await store.save([state_of("a")])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = max(each.stat().st_size for each in path.parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            with pytest.raises(StoreFailed, match="full"):
                await store.save([state_of("a", 2)] + [state_of(f"{n}") for n in range(5000)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert await store.load(["a", "1"]) == [state_of("a"), None]
        await store.save([state_of("a", 3)])
        assert await store.load(["a"]) == [state_of("a", 3)]


class TestOpeningAndClosing:
    async def test_the_last_user_closes_the_file(self, path: Path) -> None:
        store = SqliteStore(path)
        await asyncio.gather(store.open(), store.open())
        assert len(store_threads()) == 1
        await store.close()
        await store.save([FULL])
        await store.close()
        await wait_for_threads()
        assert not path.with_name(path.name + "-wal").exists(), "the file is closed"

    async def test_a_store_that_is_not_open_fails(self, path: Path) -> None:
        with pytest.raises(StoreFailed, match="not open"):
            await SqliteStore(path).load(["a"])

    async def test_a_load_while_opening_fails_also_fails(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "none" / "states.db")
        opened, loaded = await asyncio.gather(
            store.open(), store.load(["a"]), return_exceptions=True
        )
        assert isinstance(opened, StoreFailed)
        assert "directory" in opened.problem
        assert isinstance(loaded, StoreFailed)
        assert loaded.problem == "it is not open"

    async def test_a_store_can_be_opened_again(self, path: Path) -> None:
        store = SqliteStore(path)
        for _ in range(2):
            await store.open()
            await store.save([FULL])
            await store.close()
        with pytest.raises(StoreFailed, match="not open"):
            await store.save([FULL])

    async def test_a_cancelled_save_is_done_before_the_file_is_closed(self, path: Path) -> None:
        store = SqliteStore(path)
        await store.open()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            saving = asyncio.create_task(store.save([FULL]))
            await asyncio.wait([saving], timeout=0.05)
            saving.cancel()
            await asyncio.wait([saving])
            other.execute("COMMIT")
        await store.close()
        await store.open()
        assert await store.load([FULL.task_id]) == [FULL]
        await store.close()
