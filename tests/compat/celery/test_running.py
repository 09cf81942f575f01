"""Tasks in a worker, on a server."""

import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tampu import App, AppWorker, Cron, Every, JobState
from tampu.compat.celery import (
    Celery,
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Task,
    crontab,
    signals,
)
from tampu.errors import ArgumentError
from tests.compat.celery.calls import SOON, call, sent
from tests.contract.worker_command import run_worker
from tests.servers import RunningServer
from tests.waiting import wait_until

CRASHING = """
from functools import partial
from pathlib import Path
from tampu.compat.celery import Celery

import os
app = Celery("shop", broker=os.environ["TAMPU_URL"])

@app.task(bind=True, max_retries=0)
def crash_once(self, path):
    with Path(path).open("a") as file:
        file.write(f"{self.request.retries} {self.request.delivery_info['redelivered']}\\n")
    if Path(path).read_text().count("\\n") == 1:
        os.kill(os.getpid(), 9)
    return "done"
"""


async def test_a_call_may_go_to_any_queue_and_later(app: Celery) -> None:
    @app.task
    def double(x: int) -> int:
        return 2 * x

    async with AppWorker(app.tampu, {"celery": 2, "special": 2}):
        first = await call(lambda: double.apply_async((1,), queue="special", task_id="mine"))
        assert (first.id, await call(lambda: first.get(timeout=SOON))) == ("mine", 2)
        assert "special" in app.known_queues()
        eta = datetime.now(UTC) + timedelta(milliseconds=100)
        later = await call(lambda: double.apply_async((2,), eta=eta))
        assert await call(lambda: later.get(timeout=SOON)) == 4


async def test_a_task_that_only_the_worker_has_is_sent_by_name(
    app: Celery, running: RunningServer
) -> None:
    @app.task(name="shop.add")
    def add(x: int, y: int) -> int:
        return x + y

    def send() -> object:
        with Celery("other", broker=running.url, set_as_current=False) as other:
            return other.send_task("shop.add", kwargs={"x": 1, "y": 2}).get(timeout=SOON)

    async with AppWorker(app.tampu):
        assert await call(send) == 3


async def test_tasks_of_tampu_and_of_celery_call_each_other(app: Celery) -> None:
    @app.task(name="old")
    def old(x: int) -> int:
        return x + 1

    @app.tampu.task(queue="celery")
    async def new(x: int) -> int:
        job = await old.tampu.enqueue(x)
        return int(await job.result(timeout=SOON))

    assert isinstance(app.tampu, App)
    async with AppWorker(app.tampu):
        assert await (await new.enqueue(1)).result(timeout=SOON) == 2


async def test_a_failure_that_is_not_retried_is_buried_as_itself(app: Celery) -> None:
    @app.task
    def fail() -> None:
        raise LookupError("no")

    async with AppWorker(app.tampu):
        job = await call(fail.delay)
        with pytest.raises(LookupError, match="no"):
            await call(lambda: job.get(timeout=SOON))
        (dead,) = await app.tampu.queue("celery").dead.peek(10)
        assert dead.failure is not None
        assert (dead.attempt, dead.failure.error_type) == (1, "LookupError")
        assert "test_running.py" in (await call(lambda: job.traceback) or "")


async def test_retries_end_with_the_error_or_with_their_own(app: Celery) -> None:
    @app.task(bind=True, max_retries=1)
    def flaky(self: Task, text: str | None = None) -> None:
        self.retry(exc=None if text is None else LookupError(text), countdown=0)

    async with AppWorker(app.tampu):
        first = await call(lambda: flaky.delay("no"))
        with pytest.raises(LookupError, match="no"):
            await call(lambda: first.get(timeout=SOON))
        second = await call(flaky.delay)
        with pytest.raises(MaxRetriesExceededError):
            await call(lambda: second.get(timeout=SOON))
        assert await call(lambda: sent(second).retries) == 1


def test_a_crash_of_the_worker_is_no_retry(running: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(CRASHING, "utf-8")
    path = tmp_path / "ran"
    with (
        Celery("client", broker=running.url, set_as_current=False) as client,
        run_worker(running, tmp_path) as worker,
    ):
        worker.until_up()
        job = client.send_task("shop.crash_once", kwargs={"path": str(path)})
        assert worker.wait() == -signal.SIGKILL
        with run_worker(running, tmp_path):
            assert job.get(timeout=SOON) == "done"
    assert path.read_text() == "0 False\n0 True\n"


async def test_ignored_and_rejected_jobs_end_as_in_celery(app: Celery) -> None:
    ran: list[str] = []

    @app.task
    def run(how: str) -> None:
        ran.append(how)
        if how == "ignore":
            raise Ignore
        raise Reject("no", requeue=how == "again" and ran.count("again") == 1)

    async with AppWorker(app.tampu):
        await call(lambda: run.delay("ignore"))
        await call(lambda: run.delay("again"))
        queue = app.tampu.queue("celery")

        async def is_buried() -> bool:
            return (await queue.counts()).dead == 1

        await wait_until(is_buried, within=SOON, sentence="the rejected job is buried")
        assert (await queue.counts()).active == 0
    assert sorted(ran) == ["again", "again", "ignore"]


async def test_links_are_sent_by_the_worker(app: Celery) -> None:
    seen: list[object] = []

    @app.task
    def run(fails: bool = False) -> int:  # noqa: FBT001, FBT002 - a task
        if fails:
            raise LookupError("no")
        return 7

    @app.task(queue="notes")
    def note(value: int, extra: int) -> None:
        seen.append(value + extra)

    @app.task
    def errback(request: Any, exc: BaseException, traceback: str) -> None:
        seen.append((request.id, type(exc), "LookupError" in traceback))

    async with AppWorker(app.tampu):
        await call(lambda: run.apply_async(link=note.s(1)))
        await wait_until(lambda: seen == [8], within=SOON, sentence="the link has run")
        failed = await call(lambda: run.apply_async((True,), link_error=errback.s()))
        await wait_until(lambda: len(seen) == 2, within=SOON, sentence="the errback has run")
    assert seen[1] == (failed.id, LookupError, True)


async def test_a_worker_tells_when_it_starts_and_stops(app: Celery) -> None:
    told: list[str] = []
    names = ("worker_init", "worker_process_init", "worker_ready", "worker_shutdown")

    def follow(name: str) -> Callable[..., None]:
        return lambda sender, **named: told.append(f"{name} {sender}")

    receivers = {name: follow(name) for name in names}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver)

    @app.task
    def run() -> None: ...

    async with AppWorker(app.tampu):
        assert told[-1] == "worker_ready <Celery shop>"
    assert told[-1] == "worker_shutdown <Celery shop>"
    assert told[0] == "worker_init <Celery shop>"


async def test_priorities_are_the_levels_that_celery_has_on_redis(app: Celery) -> None:
    ran: list[int | None] = []

    @app.task
    def run(priority: int | None) -> None:
        ran.append(priority)

    for priority in (9, 6, 3, 0, None):
        await call(lambda: run.apply_async((priority,), priority=priority))  # noqa: B023 - at once
    async with AppWorker(app.tampu, {"celery": 1}):
        await wait_until(lambda: len(ran) == 5, within=SOON, sentence="all have run")
    assert ran[2:] == [3, 6, 9]


async def test_schedules_are_stored_for_the_workers_to_fire(app: Celery) -> None:
    app.conf.update(
        timezone="Europe/Berlin",
        beat_schedule={
            "digest": {
                "task": "digest",
                "schedule": crontab(hour="7,9", minute=30, day_of_week="mon-fri"),
                "args": ("all",),
                "options": {"expires": 60, "queue": "reports"},
            },
            "clean": {"task": "digest", "schedule": 90.0, "kwargs": {"to": "ada"}},
        },
    )

    @app.task(name="digest")
    def digest(to: str) -> None: ...

    @app.on_after_configure.connect
    def set_up(sender: Celery, **named: object) -> None:
        sender.add_periodic_task(timedelta(hours=1), digest.s("bob"), name="hourly")

    async with AppWorker(app.tampu, {"celery": 1, "reports": 1}):
        stored = {each.key: each for each in await app.tampu.queue("celery").schedules.list()}
        (report,) = await app.tampu.queue("reports").schedules.list()
    assert {key: (each.rule, each.data) for key, each in stored.items()} == {
        "clean": (stored["clean"].rule, {"to": "ada"}),
        "hourly": (stored["hourly"].rule, {"to": "bob"}),
    }
    assert isinstance(stored["clean"].rule, Every)
    assert stored["clean"].rule.interval_ms == 90_000
    assert (report.key, report.data) == ("digest", {"to": "all"})
    assert report.rule == Cron("30 7,9 * * mon-fri", tz="Europe/Berlin")


def test_the_job_is_one_of_tampu(app: Celery) -> None:
    @app.task(rate_limit="100/m", priority=6, expires=60)
    def run(x: int, y: int = 2) -> None: ...

    job = sent(run.apply_async((1,), headers={"trace": "abc"}))
    info = job._info()
    assert info is not None
    assert (info.name, info.data, info.priority) == (run.name, {"x": 1}, 2)
    assert (info.headers, info.state) == ({"trace": "abc"}, JobState.WAITING)


def test_hints_convert_arguments_where_they_can(app: Celery) -> None:
    @app.task
    def run(at: datetime, session: Celery, limit: int = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013

    @app.task
    def unknown(number: int, other: "Missing" = None) -> None: ...  # type: ignore[name-defined] # noqa: F821

    at = datetime(2026, 1, 1, tzinfo=UTC)
    info = sent(run.delay(at, 1, None))._info()
    assert info is not None
    assert info.data == {"at": at, "session": 1, "limit": None}
    with pytest.raises(ArgumentError):
        run.delay("no date", 1)
    assert sent(unknown.delay("any text")).id


async def test_a_job_whose_task_fails_around_its_run_is_buried_and_not_repeated(
    app: Celery,
) -> None:
    ran: list[str] = []

    class Broken(Task):
        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            raise LookupError("broken")

    @app.task(base=Broken)
    def run() -> None:
        ran.append("once")

    async with AppWorker(app.tampu):
        job = await call(run.delay)
        with pytest.raises(LookupError, match="broken"):
            await call(lambda: job.get(timeout=SOON))
    assert ran == ["once"]
