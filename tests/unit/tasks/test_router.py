"""Routers: tasks and schedules that are declared together."""

from contextlib import asynccontextmanager
from typing import Any

import pytest

from tampu import App, AppWorker, ArgumentError, Every, OptionError, Router, WrongContext

NOWHERE = "redis://127.0.0.1:1"


class TestRouters:
    def test_a_task_can_be_enqueued_only_after_its_router_is_included(self) -> None:
        router = Router()
        task = router.task(name="a")(lambda: None)
        with pytest.raises(WrongContext, match="its router is not included in an app yet"):
            task.enqueue_sync()

    def test_a_router_belongs_to_one_app(self) -> None:
        router = Router()
        App().include(router)
        with pytest.raises(OptionError, match="already included in an app"):
            App().include(router)

    def test_only_a_router_can_be_included(self) -> None:
        with pytest.raises(OptionError, match="Invalid router 'shop': expected a Router"):
            App().include("shop")  # type: ignore[arg-type]

    def test_a_task_whose_name_is_taken_leaves_the_app_unchanged(self) -> None:
        local, router = App(), Router()
        local.task(name="b")(lambda: None)
        router.task(name="a")(lambda: None)
        router.task(name="b")(lambda: None)
        with pytest.raises(OptionError, match="used by both"):
            local.include(router)
        assert list(local.tasks) == ["b"]

    def test_tasks_declared_later_belong_to_the_app_too(self) -> None:
        local, router = App(), Router()
        local.include(router)
        router.task(name="late")(lambda: None)
        assert list(local.tasks) == ["late"]


class TestSchedules:
    def test_a_schedule_decorates_a_task_or_a_function(self) -> None:
        local = App()

        @local.schedule(Every("1h"))
        @local.task(name="a")
        def first() -> None: ...

        @local.schedule(Every("1h"), key="k", args={"n": 1})
        def second(n: int) -> int:
            return n

        assert second(2) == 2
        assert [(each.key, each.data()) for each in local.schedules] == [("a", {}), ("k", {"n": 1})]

    @pytest.mark.parametrize("args", [None, {"n": "one"}, {"n": 1, "m": 1}])
    def test_arguments_that_do_not_fit_are_refused_when_a_worker_is_created(
        self, args: dict[str, object] | None
    ) -> None:
        local = App(NOWHERE)

        @local.schedule(Every("1h"), args=args)
        def task(n: int) -> None: ...

        with pytest.raises(ArgumentError, match="Task 'task', argument"):
            AppWorker(local)

    def test_two_schedules_of_a_task_need_keys(self) -> None:
        local = App(NOWHERE)

        @local.schedule(Every("1h"))
        @local.schedule(Every("2h"))
        def task() -> None: ...

        with pytest.raises(
            OptionError, match=r"Invalid key 'task': declared twice for queue default"
        ):
            AppWorker(local)

    def test_a_task_of_another_app_is_refused_when_a_worker_is_created(self) -> None:
        local = App(NOWHERE)
        local.task(name="own")(lambda: None)
        local.schedule(Every("1h"))(App().task(name="other")(lambda: None))
        with pytest.raises(
            OptionError, match=r"<Task 'other'>: its task does not belong to the app"
        ):
            AppWorker(local)

    def test_a_schedule_does_not_take_options_of_jobs(self) -> None:
        local = App(NOWHERE)
        task = local.task(name="a")(lambda: None)
        local.schedule(Every("1h"))(task.options(queue="slow"))
        assert [each.task.queue for each in local.schedules] == ["slow"]
        with pytest.raises(
            OptionError, match=r"Invalid attempts 2: a schedule does not use task.options"
        ):
            local.schedule(Every("1h"))(task.options(attempts=2))

    def test_options_are_checked_at_the_decorator(self) -> None:
        with pytest.raises(OptionError, match="Invalid limit 0"):
            App().schedule(Every("1h"), limit=0)
        with pytest.raises(OptionError, match="rule"):
            App().schedule("hourly")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="args"):
            App().schedule(Every("1h"), args=["a"])  # type: ignore[arg-type]


def test_middleware_of_the_app_comes_before_that_of_the_router_and_the_task() -> None:
    @asynccontextmanager
    async def a(job: object) -> Any:  # noqa: ANN401
        yield

    @asynccontextmanager
    async def b(job: object) -> Any:  # noqa: ANN401
        yield

    @asynccontextmanager
    async def c(job: object) -> Any:  # noqa: ANN401
        yield

    local, router = App(middleware=[a]), Router(middleware=[b])
    task = router.task(name="a", middleware=[c])(lambda: None)
    local.include(router)
    assert task.middleware == (a, b, c)
