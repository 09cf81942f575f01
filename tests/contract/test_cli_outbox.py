"""`tampu outbox`, and what `tampu doctor` says of outboxes."""

import asyncio
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from tampu import App, NewJob
from tampu.outbox import Outbox
from tests.contract.cli import COMMAND, environment, tampu
from tests.contract.outboxes import queued_ids, row_ids
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until

SHOP = """
from tampu import App
from tampu.outbox import Outbox

app = App()
outbox = Outbox(app, database="sqlite:///{path}")


@app.task
def note(number: int) -> int:
    return number
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
async def outbox(path: str) -> AsyncIterator[Outbox]:
    app = App("redis://127.0.0.1:1")
    made = Outbox(app, database=f"sqlite:///{path}")
    await made.create_table()
    with closing(sqlite3.connect(path)) as connection, connection:
        for number in range(3):
            made.add_sync(connection, "default", NewJob("note", {"number": number}))
        connection.execute(
            "INSERT INTO tampu_outbox (queue, job, problem) VALUES ('a', x'00', 'it is damaged')"
        )
    yield made


@pytest.fixture
def shop(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "outbox_shop.py").write_text(SHOP.format(path=path), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "outbox_shop:app"


async def test_ls_shows_the_rows_of_a_database(outbox: Outbox, path: str) -> None:
    found = (await tampu("outbox", "ls", f"sqlite:///{path}", "--json")).json["rows"]
    assert [each["id"] for each in found] == [1, 2, 3, 4]
    assert found[0]["name"] == "note"
    assert found[0]["stored_at"]
    assert (found[3]["job_id"], found[3]["problem"]) == (None, "it is damaged")
    assert [each["job_id"] for each in found] == await row_ids(outbox)
    refused = await tampu("outbox", "ls", f"sqlite:///{path}", "--refused")
    assert "it is damaged" in refused.out
    assert len(refused.lines) == 2


async def test_the_outboxes_of_an_app(
    outbox: Outbox, shop: str, running: RunningServer, admin: redis.Redis
) -> None:
    del outbox
    listed = await tampu("outbox", "ls", shop, "-n", "2", url=running.url)
    assert len(listed.lines) == 3
    wrong = await tampu("outbox", "ls", shop, "--table", "other", url=running.url)
    assert (wrong.code, "has no outbox 'other'" in wrong.err) == (2, True)
    del admin


async def test_retry_lets_rows_wait_again(outbox: Outbox, path: str) -> None:
    tried = await tampu("outbox", "retry", f"sqlite:///{path}", "4", "1", "--json")
    assert tried.json == {"outboxes": [{"outbox": "tampu_outbox", "ids": [4]}]}
    assert await row_ids(outbox, refused=True) == []
    again = await tampu("outbox", "retry", f"sqlite:///{path}")
    assert (again.code, again.err) == (1, "tampu: No such row was set aside.\n")


@pytest.mark.parametrize("source", ["app", "database"])
async def test_relay_moves_rows_until_it_is_told_to_stop(
    outbox: Outbox, shop: str, path: str, running: RunningServer, admin: redis.Redis, source: str
) -> None:
    given = shop if source == "app" else f"sqlite:///{path}"
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [*COMMAND, "outbox", "relay", given, "--json"],
        env=environment(running.url),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    assert '"tampu_outbox"' in line

    async def only_the_damaged() -> bool:
        return await row_ids(outbox) == [None]

    await wait_until(only_the_damaged, within=SOON, sentence="three rows were moved")
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 30) == 0
    process.stdout.close()
    assert len(queued_ids(admin)) == 3
    assert admin.keys("*db-outbox:lock*") == []


class TestDoctor:
    async def test_a_table_that_is_well(self, shop: str, path: str, running: RunningServer) -> None:
        await Outbox(App("redis://127.0.0.1:1"), database=f"sqlite:///{path}").create_table()
        assert await self.finding(shop, running) == ("ok", "the table can be read, 0 rows wait")

    async def test_rows_that_were_set_aside(
        self, outbox: Outbox, shop: str, running: RunningServer
    ) -> None:
        del outbox
        grade, sentence = await self.finding(shop, running)
        assert (grade, "1 rows were set aside" in sentence) == ("warn", True)

    async def test_a_missing_table(self, shop: str, running: RunningServer) -> None:
        grade, sentence = await self.finding(shop, running)
        assert grade == "fail"
        assert "no such table; create it" in sentence

    @staticmethod
    async def finding(shop: str, running: RunningServer) -> tuple[str, str]:
        done: Any = (await tampu("doctor", shop, "--json", url=running.url)).json
        (found,) = [each for each in done["findings"] if each["check"].startswith("outbox")]
        return found["grade"], found["sentence"]


async def test_an_app_without_an_outbox_is_told_how_to_have_one(
    tmp_path: Path, shop: str, running: RunningServer
) -> None:
    text = SHOP.replace(', database="sqlite:///{path}"', "")
    (tmp_path / "outbox_shop.py").write_text(text, "utf-8")
    done = await tampu("outbox", "ls", shop, url=running.url)
    assert done.code == 2
    assert "has no outbox with a database" in done.err
