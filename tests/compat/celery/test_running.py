"""Tasks in a worker, on a server."""

import asyncio
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tampu import App, AppWorker, Cron, Every, JobState
from tampu.compat.celery import (
    AsyncResult,
    Celery,
    GroupResult,
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Task,
    chain,
    chord,
    crontab,
    group,
    signals,
)
from tampu.compat.celery.exceptions import TaskRevokedError, TimeoutError
from tampu.compat.celery.result import allow_join_result
from tests.contract.worker_command import run_worker
from tests.servers import RunningServer
from tests.waiting import wait_until

T = TypeVar("T")
SOON = 60.0
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


async def call(work: Callable[[], T]) -> T:
    """Call something in a thread without an event loop, as programs do."""
    return await asyncio.wait_for(asyncio.to_thread(work), SOON)


def sent(found: Any) -> AsyncResult:
    assert isinstance(found, AsyncResult)
    return found


async def test_results_are_found_by_the_id_of_a_job_alone(app: Celery) -> None:
    @app.task(queue="emails")
    def double(x: int) -> int:
        return 2 * x

    async with AppWorker(app.tampu):
        job = sent(await call(lambda: double.apply_async((4,))))
        other = app.AsyncResult(job.id)
        assert await call(lambda: other.get(timeout=SOON)) == 8
        assert (await call(lambda: other.state), other == job) == ("SUCCESS", True)
        assert await call(lambda: AsyncResult(job.id).result) == 8
        await call(other.forget)
        assert await call(lambda: AsyncResult(job.id).result) is None


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


async def test_while_a_job_waits_for_its_retry_the_state_says_so(app: Celery) -> None:
    @app.task(bind=True)
    def flaky(self: Task) -> None:
        self.retry(exc=LookupError("no"), eta=datetime.now(UTC) + timedelta(hours=1))

    async with AppWorker(app.tampu):
        job = await call(flaky.delay)
        await wait_until(
            lambda: asyncio.to_thread(lambda: job.state == "RETRY"),
            within=SOON,
            sentence="it waits for its retry",
        )
        await call(job.revoke)
        assert await call(lambda: job.state) == "REVOKED"


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


async def test_an_expired_or_revoked_job_is_revoked(app: Celery) -> None:
    @app.task
    def run() -> None: ...

    gone = await call(lambda: run.apply_async(expires=0.001))
    cancelled = await call(lambda: run.apply_async(countdown=600))
    await call(lambda: app.control.revoke([cancelled.id]))
    await asyncio.sleep(0.01)  # past the time at which it expires
    async with AppWorker(app.tampu):
        for job in (gone, cancelled):
            with pytest.raises(TaskRevokedError):
                await call(partial(job.get, timeout=SOON))
            assert await call(partial(getattr, job, "state")) == "REVOKED"


async def test_canvas_runs_as_flows(app: Celery) -> None:
    @app.task(queue="sums")
    def add(x: int, y: int = 1) -> int:
        return x + y

    @app.task
    def total(numbers: list[int], extra: int = 0) -> int:
        return sum(numbers) + extra

    @app.task
    def fail(value: object = None) -> None:
        raise LookupError("no")

    async def get(canvas: Any) -> object:
        result = await call(canvas.delay)
        return await call(lambda: result.get(timeout=SOON))

    async with AppWorker(app.tampu):
        assert await get(chain(add.s(1), add.s(10), add.s(y=100))) == 112
        assert await get(chain(add.s(1), add.si(5, 5))) == 10
        assert await get(chord([add.s(1), add.s(2)], total.s(1000))) == 1005
        assert await get(chain(add.s(1), group(add.s(1), add.s(2)), total.s(), add.s(5))) == 12
        assert await get(chord([chain(add.s(1), add.s(1)), add.s(9)], total.s() | add.s(1))) == 14
        assert await get(chord([], total.s())) == 0
        for canvas in (chain(fail.s(), add.s()), chord([fail.s(), add.s(1)], total.s())):
            with pytest.raises(LookupError, match="no"):
                await get(canvas)
        assert await get(group([add.s(1), add.s(2)])) == [2, 3]
        started = sent(await call(chain(add.s(1), add.s(1)).delay))
        assert await call(lambda: AsyncResult(started.id).get(timeout=SOON)) == 3


async def test_the_results_of_a_group_are_in_its_order(app: Celery) -> None:
    @app.task
    def run(number: int) -> int:
        if number == 2:
            raise LookupError("no")
        return number

    async with AppWorker(app.tampu):
        good = await call(group(run.s(number) for number in (3, 1)))
        assert isinstance(good, GroupResult)
        assert await call(lambda: good.join(timeout=SOON)) == [3, 1]
        ends = await call(
            lambda: (good.ready(), good.successful(), good.completed_count(), good.failed())
        )
        assert ends == (True, True, 2, False)
        bad = await call(group(run.s(number) for number in (3, 2)))
        with pytest.raises(LookupError):
            await call(lambda: bad.get(timeout=SOON))
        assert await call(bad.failed)
        await call(bad.forget)
    assert (len(good), list(good), good[0].id) == (2, good.children, good.results[0].id)


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


async def test_a_task_cannot_wait_for_another_one_unless_it_says_so(app: Celery) -> None:
    @app.task
    def inner() -> int:
        return 1

    @app.task
    def outer(allowed: bool) -> int:  # noqa: FBT001 - a task
        if not allowed:
            return int(inner.delay().get(timeout=SOON))
        with allow_join_result():
            return int(inner.delay().get(timeout=SOON))

    async with AppWorker(app.tampu, {"celery": 4}):
        refused, done = await call(lambda: [outer.delay(False), outer.delay(True)])  # noqa: FBT003 - a task
        with pytest.raises(RuntimeError, match="Never call"):
            await call(lambda: refused.get(timeout=SOON))
        assert await call(lambda: done.get(timeout=SOON)) == 1


async def test_results_that_are_ignored_are_not_there(app: Celery) -> None:
    @app.task(ignore_result=True)
    def quiet() -> int:
        return 1

    async with AppWorker(app.tampu):
        job = await call(quiet.delay)
        assert await call(job.get) is None
        with pytest.raises(TimeoutError):
            await call(lambda: AsyncResult(job.id).get(timeout=0.2))


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


async def test_revoking_stops_what_waits_and_with_terminate_what_runs(app: Celery) -> None:
    app.conf.task_track_started = True
    started, release = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.task
    def hold() -> int:
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(SOON)
        return 1

    async with AppWorker(app.tampu, {"celery": 1}):
        job = sent(await call(hold.delay))
        await asyncio.wait_for(started.wait(), SOON)
        assert await call(lambda: job.state) == "STARTED"
        await call(job.revoke)  # leaves a job alone that runs, as in Celery
        release.set()
        assert await call(lambda: job.get(timeout=SOON)) == 1


def test_waiting_and_unknown_jobs_are_pending(app: Celery) -> None:
    @app.task
    def run() -> None: ...

    job = sent(run.delay())
    assert (job.state, job.ready(), job.result, job.name) == ("PENDING", False, None, run.name)
    with pytest.raises(ValueError, match="before it is ready"):
        job.successful()
    with pytest.raises(TimeoutError):
        job.get(timeout=0.1)
    unknown = app.AsyncResult("unknown")
    assert (unknown.state, unknown.traceback, unknown.name) == ("PENDING", None, None)
    with pytest.raises(TimeoutError):
        unknown.get(timeout=0.1, interval=0.01)
    unknown.forget()
    unknown.revoke()


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
    def run(at: datetime, session: Celery, limit: int = None, other: "Missing" = None) -> None:  # type: ignore[assignment,name-defined] # noqa: F821, RUF013
        ...

    job = sent(run.delay(datetime(2026, 1, 1, tzinfo=UTC), 1, None))
    info = job._info()
    assert info is not None
    assert info.data == {"at": datetime(2026, 1, 1, tzinfo=UTC), "session": 1, "limit": None}
