"""Results, groups, chains and chords, on a server."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tampu import AppWorker, Job, current_job
from tampu.compat.celery import (
    AsyncResult,
    Celery,
    GroupResult,
    Task,
    chain,
    chord,
    group,
)
from tampu.compat.celery.exceptions import TaskRevokedError, TimeoutError
from tampu.compat.celery.result import allow_join_result
from tests.compat.celery.calls import SOON, call, sent
from tests.waiting import wait_until


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


async def test_an_expired_or_revoked_job_is_revoked(app: Celery) -> None:
    @app.task
    def run() -> None: ...

    gone = await call(lambda: run.apply_async(expires=0.001))
    cancelled = await call(lambda: run.apply_async(countdown=600))
    await call(lambda: app.control.revoke([cancelled.id]))
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


async def test_revoking_leaves_alone_what_runs_unless_it_says_terminate(app: Celery) -> None:
    app.conf.task_track_started = True
    running: dict[str, Job[Any]] = {}
    release = threading.Event()

    @app.task
    def hold(name: str) -> int:
        running[name] = current_job()
        release.wait(SOON)
        return 1

    async with AppWorker(app.tampu, {"celery": 2}):
        first, second = [sent(await call(partial(hold.delay, name))) for name in "ab"]
        await wait_until(lambda: len(running) == 2, within=SOON, sentence="both run")
        assert await call(lambda: first.state) == "STARTED"
        await call(first.revoke)
        await call(lambda: second.revoke(terminate=True))
        await wait_until(lambda: running["b"].cancelled, within=SOON, sentence="the second stops")
        assert not running["a"].cancelled
        release.set()
        assert await call(lambda: first.get(timeout=SOON)) == 1


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


async def test_what_follows_a_failure_does_not_run(app: Celery) -> None:
    ran: list[str] = []

    @app.task
    def run(name: str) -> None:
        ran.append(name)
        if name == "first":
            raise LookupError("no")

    async with AppWorker(app.tampu, {"celery": 1}):
        failed = await call(chain(run.si("first"), run.si("second")).delay)
        with pytest.raises(LookupError, match="no"):
            await call(lambda: failed.get(timeout=SOON))
        later = await call(lambda: run.delay("later"))
        await call(lambda: later.get(timeout=SOON))
    assert ran == ["first", "later"]
