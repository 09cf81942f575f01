"""Flow control as tasks, routers and apps declare it: what is refused before any job is added."""

from typing import Any

import pytest
from msgspec.structs import replace

from tampu import (
    INJECTED,
    App,
    AppWorker,
    Concurrency,
    Depends,
    Every,
    Job,
    Limit,
    OptionError,
    Rate,
    Router,
)
from tampu.producer.request import JobRules
from tampu.wire.lines import LimitDefinition

NOWHERE = "redis://127.0.0.1:1"
RULES = JobRules(max_payload=1024, max_delay_ms=0, unique_ms=0)


def charge(
    tenant: str, doc: str = "none", db: str = Depends(dict), job: Job[Any] = INJECTED
) -> None:
    """A function that can be a task."""


class TestTasks:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"priority": 10}, "Invalid priority 10"),
            ({"key": "tenent"}, r"Invalid key 'tenent': .*\(did you mean tenant\?\)"),
            ({"key": "db"}, "Invalid key 'db': the task has no such argument"),
            ({"key": "job"}, "Invalid key 'job': the task has no such argument"),
            ({"ordered": True}, "Invalid ordered True: needs a key"),
            ({"weight": 2}, "Invalid weight 2: needs a key"),
            ({"cost": "tokens"}, "Invalid cost 'tokens': the task has no such argument"),
            ({"limits": [Limit("api", by="x")]}, "Invalid by 'x': the task has no such argument"),
            ({"limits": ["api"]}, "Invalid limits 'api': expected Concurrency"),
            ({"expires": 0}, "Invalid expires 0"),
            ({"expires": "soon"}, "Invalid expires 'soon'"),
        ],
    )
    def test_an_invalid_option_is_refused_when_the_task_is_declared(
        self, options: dict[str, Any], problem: str
    ) -> None:
        app = App(NOWHERE)
        with pytest.raises(OptionError, match=problem):
            app.task(**options)(charge)
        assert app.tasks == {}

    async def test_a_limit_that_is_not_declared_is_refused_when_a_job_is_added(self) -> None:
        app = App(NOWHERE)
        task = app.task(limits=[Limit("strpe")])(charge)
        other = app.task(name="other")(charge)
        app.limit("stripe", Rate("25/s"))
        wrong = pytest.raises(OptionError, match=r"Invalid limit 'strpe': .*\(did you mean stripe")
        with wrong:
            await task.enqueue("t1")
        with wrong:
            await task.enqueue_many([task.call("t1")])
        with wrong:
            task.enqueue_sync("t1")
        with wrong:
            await other.options(limits=[Limit("strpe")]).enqueue("t1")
        app.close_sync()
        await app.close()

    def test_a_worker_refuses_tasks_with_a_limit_that_is_not_declared(self) -> None:
        app = App(NOWHERE)
        app.task(limits=[Limit("strpe", by="tenant")])(charge)
        with pytest.raises(OptionError, match="Invalid limit 'strpe'"):
            AppWorker(app)
        app.limit("strpe", Rate("25/s"))
        AppWorker(app)


class TestLimits:
    def test_a_limit_is_declared_under_a_name_which_tasks_use(self) -> None:
        app = App(NOWHERE)
        assert app.limit("stripe", Rate("25/s", burst=5), Concurrency(10)) == Limit("stripe")
        made = LimitDefinition(concurrency=10, count=25, per_us=1_000_000, burst=5)
        assert app.limits == {"stripe": made}

    def test_limits_of_a_router_are_limits_of_its_app(self) -> None:
        app, router = App(NOWHERE), Router()
        router.limit("early", Concurrency(1))
        app.include(router)
        router.limit("late", Concurrency(2))
        assert list(app.limits) == ["early", "late"]
        assert app.limits == router.limits

    def test_the_same_limit_may_be_declared_twice_but_not_another_one(self) -> None:
        app, router = App(NOWHERE), Router()
        app.limit("stripe", Rate("25/s"))
        app.limit("stripe", Rate("25/s"))
        twice = pytest.raises(OptionError, match="Invalid limit 'stripe': declared twice, with")
        with twice:
            app.limit("stripe", Rate("26/s"))
        router.task(charge)
        router.limit("stripe", Rate("26/s"))
        with twice:
            app.include(router)
        assert app.tasks == {}

    def test_a_late_limit_of_a_router_is_checked_against_those_of_the_app(self) -> None:
        app, router = App(NOWHERE), Router()
        app.include(router)
        app.limit("stripe", Rate("25/s"))
        with pytest.raises(OptionError, match="declared twice"):
            router.limit("stripe", Rate("26/s"))
        assert router.limits == {}

    @pytest.mark.parametrize(
        ("limits", "problem"),
        [
            ((), "expected a Concurrency, a Rate, or one of each"),
            ((Limit("other"),), "expected a Concurrency, a Rate, or one of each"),
            ((Rate("1/s"), Rate("2/m")), "expected a Concurrency, a Rate, or one of each"),
            ((Rate("1/s", by="tenant"),), r'tasks write Limit\("stripe", by=...\)'),
        ],
    )
    def test_an_invalid_declaration_is_refused(self, limits: Any, problem: str) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match=problem):
            App(NOWHERE).limit("stripe", *limits)

    def test_an_invalid_name_is_refused(self) -> None:
        with pytest.raises(OptionError, match="Invalid limit 'a b'"):
            App(NOWHERE).limit("a b", Rate("1/s"))


class TestSchedules:
    @pytest.mark.parametrize(
        ("options", "line"),
        [
            ({}, "7/t1|stripe|>:t1"),
            ({"priority": 2}, "2/t1|stripe|>:t1"),
            ({"job_key": "nightly"}, "7/nightly|stripe|>:nightly"),
            ({"job_key": None}, "7|stripe"),
            ({"ordered": False}, "7/t1|stripe"),
            ({"limits": []}, "7/t1|>:t1"),
            ({"key": "the schedule's own"}, "7/t1|stripe|>:t1"),
        ],
    )
    def test_their_jobs_wait_where_the_task_says_unless_they_say_otherwise(
        self, options: dict[str, Any], line: str
    ) -> None:
        app = App(NOWHERE)
        stripe = app.limit("stripe", Rate("25/s"))
        task = app.task(priority=7, key="tenant", ordered=True, limits=[stripe])(charge)
        app.schedule(Every("1h"), args={"tenant": "t1"}, **options)(task)
        stored = app.schedules[0].to_store(replace(RULES, limits=app.limits))
        assert stored.place is not None
        assert stored.place.line == line

    def test_their_jobs_expire_as_those_of_the_task_unless_they_say_otherwise(self) -> None:
        app = App(NOWHERE)
        task = app.task(expires="10m")(charge)
        app.schedule(Every("1h"), args={"tenant": "t"})(task)
        app.schedule(Every("1h"), args={"tenant": "t"}, key="b", expires="1m")(task)
        app.schedule(Every("1h"), args={"tenant": "t"}, key="c", expires=None)(task)
        stored = [each.to_store(RULES) for each in app.schedules]
        assert [each.settings.expires for each in stored] == ["10m", "1m", None]
        assert [each.place for each in stored] == [None] * 3

    @pytest.mark.parametrize(
        "options", [{"priority": 10}, {"job_key": ""}, {"cost": 0}, {"expires": 0}, {"limits": 5}]
    )
    def test_an_invalid_option_is_refused_when_the_schedule_is_declared(
        self, options: dict[str, Any]
    ) -> None:
        app = App(NOWHERE)
        with pytest.raises(OptionError, match=f"Invalid {'key' if 'job_key' in options else ''}"):
            app.schedule(Every("1h"), **options)(charge)
        assert app.schedules == []

    def test_a_worker_refuses_one_whose_jobs_cannot_have_a_place(self) -> None:
        app = App(NOWHERE)
        task = app.task(charge)
        app.schedule(Every("1h"), args={"tenant": "t"}, ordered=True)(task)
        with pytest.raises(OptionError, match="Invalid ordered True: needs a key"):
            AppWorker(app)
