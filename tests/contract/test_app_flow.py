"""Flow control as tasks of an app declare it: who waits, who runs, and in which order."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tampu import (
    INJECTED,
    App,
    Backoff,
    BuryReason,
    Concurrency,
    Every,
    Job,
    JobState,
    Limit,
    NewJob,
    OptionError,
    Priority,
    Rate,
    RateLimited,
    UnknownLimit,
    Verdict,
)
from tampu.wire.keys import QueueKeys
from tests.contract import isolated_tasks
from tests.contract.apps import dead, working
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = QueueKeys("default")


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


class Counting:
    """How many are inside at the same time, and at most, by name; kept outside of the queue."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []

    @asynccontextmanager
    async def enter(self, name: str) -> AsyncIterator[None]:
        self.order.append(name)
        self.inside[name] += 1
        self.most[name] = max(self.most[name], self.inside[name])
        try:
            await asyncio.sleep(0.005)
            yield
        finally:
            self.inside[name] -= 1

    async def until(self, count: int) -> None:
        """Wait until so many have entered, and all have left."""
        await wait_until(
            lambda: len(self.order) >= count and not self.inside.total(),
            within=SOON,
            sentence=f"{count} jobs have run",
        )


class TestRunning:
    async def test_a_tenant_has_at_most_its_number_over_all_workers(self, app: App) -> None:
        counting = Counting()

        @app.task(key="tenant", limits=[Concurrency(2, by="tenant")])
        async def work(tenant: str = "default") -> None:
            async with counting.enter(tenant):
                pass

        calls = [work.call(tenant) for tenant in ("a", "b") for _ in range(15)]
        await work.enqueue_many([*calls, *[work.call()] * 15])
        async with working(app), working(app):
            await counting.until(45)
        assert counting.most == {"a": 2, "b": 2, "default": 2}

    async def test_more_urgent_jobs_run_first(self, app: App) -> None:
        order: list[str] = []

        @app.task(priority=Priority.LOW)
        async def low(name: str, job: Job[Any] = INJECTED) -> None:
            order.append(f"{name} {job.priority}")

        @app.task
        async def normal(job: Job[Any] = INJECTED) -> None:
            order.append(f"normal {job.priority}")

        await low.enqueue("low")
        await normal.enqueue()
        last = await low.enqueue("low again")
        await low.options(priority=9).enqueue("raised")
        async with working(app, concurrency=1):
            await last.result()
        assert order == ["raised 9", "normal 5", "low 3", "low again 3"]

    async def test_ordered_jobs_keep_their_order_over_retries(self, app: App) -> None:
        order: dict[str, list[int]] = {"a": [], "b": []}

        @app.task(key="account", ordered=True, attempts=3, backoff=Backoff.fixed("30ms"))
        async def move(account: str, step: int, job: Job[Any] = INJECTED) -> None:
            order[account].append(step)
            if step == 0 and job.attempt < 3:
                raise ValueError("not yet")

        jobs = [await move.enqueue(account, step) for step in range(4) for account in "ab"]
        async with working(app), working(app):
            await asyncio.gather(*(job.result() for job in jobs))
        assert order == {"a": [0, 0, 0, 1, 2, 3], "b": [0, 0, 0, 1, 2, 3]}

    async def test_a_key_gets_its_share_by_its_weight(self, app: App) -> None:
        order: list[str] = []

        def weight_of(tenant: str) -> float:
            return 3 if tenant == "large" else 1

        @app.task(key="tenant", weight=weight_of)
        async def work(tenant: str) -> None:
            order.append(tenant)

        calls = [work.call(tenant) for tenant in ("large", "small") for _ in range(40)]
        jobs = await work.enqueue_many(calls)
        async with working(app, concurrency=1):
            await asyncio.gather(*(job.result() for job in jobs))
        assert 29 <= order[:40].count("large") <= 31

    async def test_tasks_share_a_named_limit(self, app: App) -> None:
        counting = Counting()
        stripe = app.limit("stripe", Concurrency(1))

        @app.task(limits=[stripe])
        async def charge() -> None:
            async with counting.enter("stripe"):
                pass

        @app.task(limits=[Limit("stripe")])
        async def refund() -> None:
            async with counting.enter("stripe"):
                pass

        await charge.enqueue_many([charge.call()] * 10)
        await refund.enqueue_many([refund.call()] * 10)
        async with working(app), working(app):
            await counting.until(20)
        assert counting.most == {"stripe": 1}

    async def test_a_job_uses_up_its_cost_of_a_rate(self, app: App) -> None:
        @app.task(limits=[Rate("60/m")], cost="tokens")
        async def ask(tokens: int) -> int:
            return tokens

        @app.task
        async def other() -> str:
            return "done"

        first, second = await ask.enqueue(50), await ask.enqueue(1)
        async with working(app):
            assert await first.result() == 50
            assert await (await other.enqueue()).result() == "done"
            assert (await second.info()).state is JobState.WAITING

    async def test_a_burst_is_of_tokens_not_of_jobs(self, app: App) -> None:
        ran: list[int] = []

        @app.task(limits=[Rate("10/h", burst=10)], cost=6)
        async def ask(number: int) -> None:
            ran.append(number)

        @app.task
        async def other() -> str:
            return "done"

        jobs = await ask.enqueue_many([ask.call(number) for number in range(5)])
        async with working(app):
            await asyncio.gather(*(job.result() for job in jobs[:2]))
            assert await (await other.enqueue()).result() == "done"
            states = [(await job.info()).state for job in jobs[2:]]
        assert ran == [0, 1]
        assert states == [JobState.WAITING] * 3

    async def test_a_job_expires_after_the_time_of_its_task(self, app: App) -> None:
        @app.task(expires=0.001)
        async def late() -> None: ...

        await late.enqueue()
        await late.options(expires="1h", key="k").enqueue()
        async with working(app):
            (letter,) = await dead(app)
        assert letter.reason is BuryReason.EXPIRED


class TestRateLimited:
    @pytest.mark.parametrize("kind", ["async", "thread", "returned"])
    async def test_it_closes_the_limit_and_the_job_runs_first_again(
        self, app: App, kind: str
    ) -> None:
        order: list[tuple[str, int]] = []
        app.limit("api", Concurrency(1))

        def call(name: str, job: Job[Any]) -> object:
            order.append((name, job.attempt))
            if len(order) > 1:
                return name
            error = RateLimited("100ms", limit="api")
            if kind == "returned":
                return error
            raise error

        async def call_async(name: str, job: Job[Any] = INJECTED) -> object:
            return call(name, job)

        def call_in_thread(name: str, job: Job[Any] = INJECTED) -> object:
            return call(name, job)

        task: Any = app.task(limits=[Limit("api")])(
            call_in_thread if kind == "thread" else call_async
        )
        one, two = await task.enqueue("one"), await task.enqueue("two")
        async with working(app):
            assert [await one.result(), await two.result()] == ["one", "two"]
        assert order == [("one", 1), ("one", 1), ("two", 1)]

    async def test_a_child_process_can_raise_it(
        self, running: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        child_app, task = isolated_tasks.app, isolated_tasks.call_api
        monkeypatch.setattr(child_app, "url", running.url)
        mark = str(tmp_path / "mark")
        async with working(child_app):
            one, two = await task.enqueue("one", mark), await task.enqueue("two", mark)
            assert await one.result() == ["one", 1]
            assert await two.result() == ["two", 1]


class TestRefusals:
    async def test_a_key_function_that_fails_adds_nothing(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task(key=lambda call: call["tenant"].strip())
        async def work(tenant: str | None = None) -> None: ...

        async with app:
            wrong = pytest.raises(OptionError, match=r"Invalid key .*: the function raised Attr")
            with wrong:
                await work.enqueue()
            with wrong:
                await work.enqueue_many([work.call("a"), work.call()])
            with wrong:
                other = work.options(queue="other")
                await work.enqueue_many([other.call("a"), work.call()])
            with pytest.raises(OptionError, match="Invalid key ''"):
                await work.enqueue(" ")
        assert admin.keys("*") == []

    @pytest.mark.every_server
    async def test_a_limit_that_a_queue_does_not_have_refuses_the_job(
        self, app: App, admin: redis.Redis
    ) -> None:
        app.limit("stripe", Concurrency(1))
        async with app:
            queue, wrong = app.queue(), Limit("strpe")
            for delay, job_id in ((None, None), ("1h", None), (None, "one")):
                new = NewJob("work", delay=delay, job_id=job_id, limits=[Limit("stripe"), wrong])
                with pytest.raises(UnknownLimit, match="NOLIMIT the queue has no limit 'strpe'"):
                    await queue.add_many([NewJob("work"), new])
            with pytest.raises(UnknownLimit) as refused:
                await queue.schedules.add("work", Every("1h"), limits=[wrong])
            assert admin.keys("*") == []
            assert (refused.value.limit, refused.value.verdict) == ("strpe", Verdict.GIVE_UP)
            await queue.add("work", limits=[Limit("stripe")])

    async def test_it_does_not_refuse_jobs_that_were_added_at_the_same_time(self, app: App) -> None:
        app.limit("stripe", Concurrency(1))
        async with app:
            queue = app.queue()
            names = ["stripe", "strpe", "stripe"]
            adds = [queue.add("work", limits=[Limit(name)]) for name in names]
            first, refused, last = await asyncio.gather(*adds, return_exceptions=True)
            assert isinstance(refused, UnknownLimit)
            assert isinstance(first, Job)
            assert isinstance(last, Job)


class TestSchedules:
    @pytest.mark.every_server
    async def test_a_job_that_a_schedule_fires_waits_in_the_line_of_its_task(
        self, app: App, admin: redis.Redis
    ) -> None:
        counting, seen = Counting(), set[tuple[str | None, int]]()
        app.limit("stripe", Concurrency(1))

        @app.schedule(Every("20ms"), args={"tenant": "a"}, key="often")
        @app.schedule(Every("20ms"), args={"tenant": "b"}, key="with jitter", jitter="15ms")
        @app.task(key="tenant", priority=7, limits=[Limit("stripe")])
        async def charge(tenant: str, job: Job[Any] = INJECTED) -> None:
            seen.add((job.key, job.priority))
            async with counting.enter("stripe"):
                pass

        async with working(app), working(app):
            await wait_until(
                lambda: len(counting.order) >= 10 and len(seen) == 2,
                within=SOON,
                sentence="both schedules fire",
            )
        assert seen == {("a", 7), ("b", 7)}
        assert counting.most == {"stripe": 1}
        assert admin.hget(KEYS.gate + b":limits", "stripe") == b"1 0 0 1 0"

    async def test_a_schedule_of_a_bare_queue_takes_the_options_of_jobs(self, app: App) -> None:
        seen: list[Job[Any]] = []

        @app.task
        async def work(n: int, job: Job[Any] = INJECTED) -> None:
            seen.append(job)

        async with app:
            stored = await app.queue().schedules.add(
                "work",
                Every("1h"),
                {"n": 1},
                key="hourly",
                job_key="t1",
                priority=8,
                weight=2,
                ordered=True,
                cost=3,
                expires="10m",
                limits=[Rate("10/s", by="n")],
            )
            settings = stored.settings
            assert (settings.job_key, settings.priority, settings.ordered) == ("t1", 8, True)
            (again,) = await app.queue().schedules.list()
            assert again.settings == settings
            job = await app.queue().schedules.trigger("hourly")
            async with working(app):
                await job.result()
        (run,) = seen
        assert (run.key, run.priority, run.extras.cost) == ("t1", 8, 3)
        assert run.extras.line == "8/t1|work(n):1|>:t1"
        assert run.extras.deadline_ms is not None

    async def test_one_that_is_stored_again_without_a_line_has_none(self, app: App) -> None:
        async with app:
            schedules = app.queue().schedules
            await schedules.add("work", Every("1h"), key="k", priority=8, expires="1m")
            stored = await schedules.add("work", Every("1h"), key="k")
            assert (stored.settings.priority, stored.settings.expires) == (None, None)
            job = await schedules.trigger("k")
            assert job.extras.line is None
