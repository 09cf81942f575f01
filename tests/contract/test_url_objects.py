"""Objects that stand for a URL, as settings of pydantic have them, wherever a URL is taken."""

from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from pydantic import RedisDsn, SecretStr, TypeAdapter
from redis import Redis

from tampu import App, OptionError, Queue, QueueEvents, SyncQueue, Worker
from tampu.dashboard import Access, Dashboard
from tampu.standalone import Promoter
from tests.conftest import Start
from tests.contract.apps import working
from tests.servers import RunningServer

SECRET = "open-sesame/@"  # noqa: S105 - must not show up anywhere


def dsn_of(url: str) -> RedisDsn:
    return TypeAdapter(RedisDsn).validate_python(url)


async def test_an_app_and_its_worker_take_one(running: RunningServer) -> None:
    app = App(dsn_of(running.url))

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with working(app):
        assert await (await add.enqueue(1, 2)).result(20) == 3
        assert (await add.enqueue_many([add.call(1, 2)]))[0].id
    assert add.enqueue_sync(3, 4).id
    app.close_sync()


async def test_everything_else_that_takes_a_url_takes_one(running: RunningServer) -> None:
    url = httpx.URL(running.url)
    async with Queue("letters", url) as queue, QueueEvents("letters", url):
        job = await queue.add("welcome")
        async with Worker("letters", lambda job: job.name, url, store_results=True):
            assert await job.result(20) == "welcome"
    with SyncQueue("letters", url) as sync_queue:
        assert sync_queue.counts().waiting == 0
    async with Promoter("letters", url):
        pass
    async with Dashboard(url, access=Access.full()) as dashboard:
        await dashboard.close()


@pytest.mark.parametrize("given", [Path("x"), 6379, b"redis://x", object(), SecretStr("redis://x")])
def test_what_is_no_url_is_refused_by_its_type(given: object) -> None:
    with pytest.raises(OptionError) as refused:
        Queue("letters", given)  # type: ignore[arg-type] # wrong
    name = type(given).__name__
    assert name in str(refused.value)
    assert "expected a URL or a redis.asyncio client" in str(refused.value)


def test_a_blocking_client_is_refused_without_its_settings() -> None:
    with pytest.raises(OptionError, match=r"redis\.asyncio client") as refused:
        App(Redis(password=SECRET))  # type: ignore[arg-type] # wrong
    assert SECRET not in str(refused.value)


def test_an_error_shows_no_password() -> None:
    url = httpx.URL("http://me:sesame@localhost/1")
    with pytest.raises(OptionError, match=r"Invalid url 'http://localhost/1'") as refused:
        App(url)
    assert "sesame" not in str(refused.value)


async def test_a_password_arrives_as_it_was_quoted(start: Start) -> None:
    server = start("--requirepass", SECRET)
    url = dsn_of(f"redis://:{quote(SECRET, safe='')}@127.0.0.1:{server.port}/0")
    async with Queue("letters", url) as queue:
        assert (await queue.counts()).waiting == 0
