"""Apps: created without a connection, one queue per name and event loop."""

import asyncio
import gc
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tampu import (
    App,
    OptionError,
    Promoter,
    Queue,
    QueueEvents,
    SyncQueue,
    Worker,
    WrongContext,
)
from tampu.scheduler import RedisGuard, RedisStore

NOWHERE = "redis://127.0.0.1:1"
app = App(NOWHERE)


class TestOptions:
    def test_options_are_checked_when_it_is_created(self) -> None:
        wrong: list[dict[str, Any]] = [
            {"max_lenn": 1},
            {"max_len": 0},
            {"lifespan": 5},
            {"default_queue": ""},
            {"default_queue": None},
            {"credentials": "secret"},
        ]
        for options in wrong:
            with pytest.raises(OptionError, match=f"^Invalid {next(iter(options))} "):
                App(**options)

    def test_an_invalid_url_is_refused_everywhere(self) -> None:
        kinds: list[Any] = [App, *(partial(kind, "a") for kind in (Queue, SyncQueue, QueueEvents))]
        kinds += [partial(Worker, "a", print), partial(Promoter, "a"), RedisStore, RedisGuard]
        for create in kinds:
            for wrong in ("localhost:6379", "shop", 6379):
                with pytest.raises(OptionError, match=r"^Invalid url "):
                    create(wrong)

    def test_a_lifespan_must_be_a_context_manager(self) -> None:
        async def lifespan(app: App) -> Any:  # noqa: ANN401
            yield app

        async def awaited(app: App) -> None: ...

        for given in (lifespan, awaited):
            with pytest.raises(OptionError, match="@asynccontextmanager"):
                App(lifespan=given)  # type: ignore[arg-type]

    def test_options_for_its_workers_are_checked(self) -> None:
        for wrong in ({"store_result": True}, {"attempts": 0}, ["attempts"], {"raw": True}):
            with pytest.raises(OptionError, match=r"store_result|attempts|worker|raw"):
                App(worker=wrong)  # type: ignore[arg-type]


class TestQueues:
    def test_a_queue_needs_an_event_loop(self) -> None:
        with pytest.raises(WrongContext, match="no event loop is running; use enqueue_sync"):
            app.queue()

    async def test_there_is_one_queue_for_each_name_and_loop(self) -> None:
        assert app.queue("a") is app.queue("a")
        assert app.queue().name == "default"
        here = app.queue("a")

        async def elsewhere() -> object:
            return app.queue("a")

        assert await asyncio.to_thread(asyncio.run, elsewhere()) is not here
        with pytest.raises(OptionError, match="Invalid queue ''"):
            app.queue("")

    def test_queues_that_were_not_closed_are_dropped_with_their_loop(self) -> None:
        local = App(NOWHERE)

        async def used() -> weakref.ref[Queue]:
            return weakref.ref(local.queue())

        left = asyncio.run(used())
        asyncio.run(used())
        gc.collect()
        assert left() is None

    def test_the_state_exists_only_while_a_worker_runs(self) -> None:
        with pytest.raises(WrongContext, match=r"app.state"):
            _ = app.state


PROGRAM = """
import socket, sys, threading
socket.socket.connect = None
from datetime import datetime
from tampu import App, AppWorker, Cron, Depends

app = App()

@app.schedule(Cron("0 9 * * *"))
@app.task(queue="a")
async def send(to: str = "x", at: datetime | None = None, db: object = Depends(dict)) -> None: ...

worker = AppWorker(app)
assert threading.active_count() == 1
assert "pydantic" not in sys.modules
"""


def test_declaring_an_app_connects_to_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True, timeout=30)
    assert list(tmp_path.iterdir()) == []
