"""Apps, routers and tasks as they are declared; no server is there."""

import asyncio
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import weakref
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tampu import (
    App,
    AppWorker,
    ArgumentError,
    Depends,
    Every,
    Job,
    OptionError,
    Queue,
    Router,
    WrongContext,
)
from tampu.tasks.signature import INJECTED
from tampu.util.functions import is_async

NOWHERE = "redis://127.0.0.1:1"
app = App(NOWHERE)


@app.task
async def send(to: str, copies: int = 1) -> int:
    """Send it."""
    return len(to) * copies


@app.task(queue="sums", name="sum", attempts=2)
def add(a: int, b: int) -> int:
    return a + b


class TestCalling:
    async def test_a_task_is_called_as_its_function_was(self) -> None:
        assert await send("ada", copies=2) == 6
        assert add(1, b=2) == 3

    def test_it_looks_like_its_function(self) -> None:
        wrapped: Any = send
        assert (wrapped.__name__, wrapped.__doc__) == ("send", "Send it.")
        assert str(inspect.signature(wrapped)) == "(to: str, copies: int = 1) -> int"
        assert inspect.unwrap(wrapped) is send.function
        assert (is_async(send), is_async(add)) == (True, False)

    def test_a_plain_call_must_give_what_a_worker_would_fill(self) -> None:
        local = App()

        @local.task
        def task(to: str, db: str = Depends(dict), job: Job[Any] = INJECTED) -> str:
            return to + db

        with pytest.raises(ArgumentError, match="argument db is filled by a worker only"):
            task("a")
        given: Any = None
        assert task("a", "b", given) == "ab"

    def test_attributes_of_the_function_are_the_tasks_too_but_for_its_own(self) -> None:
        def function() -> None: ...

        vars(function).update(name="other", queue="other", call="other", label="kept")
        task: Any = App().task(function)
        assert (task.name, task.queue, task.label) == ("function", "default", "kept")
        assert task.call().arguments == {}

    def test_it_is_pickled_by_its_name(self) -> None:
        assert pickle.loads(pickle.dumps(send)) is send  # noqa: S301 - our own


class TestNames:
    def test_the_functions_short_name_unless_given(self) -> None:
        assert (send.name, add.name) == ("send", "sum")
        assert App().task(name="")(send.function).name == ""

    def test_a_second_task_of_a_name_is_refused_with_both_functions(self) -> None:
        local = App()
        local.task(name="twice")(lambda: None)
        with pytest.raises(OptionError, match=r"names both .*<lambda> and .*\.twice"):

            @local.task
            def twice() -> None: ...

    def test_a_module_that_is_run_and_imported_is_told_so(self) -> None:
        local = App()
        code = compile("@app.task\ndef send(): ...", "shop.py", "exec")
        exec(code, {"__name__": "__main__", "app": local})  # noqa: S102 - as an import does
        with pytest.raises(OptionError, match=r"__main__.send and shop.send: .*run and imported"):
            exec(code, {"__name__": "shop", "app": local})  # noqa: S102

    def test_a_function_without_a_name_needs_one(self) -> None:
        for function in (lambda: None, functools.partial(print)):
            with pytest.raises(OptionError, match="name"):
                App().task(function)

    def test_partials_and_objects_are_tasks_under_a_name(self) -> None:
        local = App()

        class Sender:
            def __call__(self, to: str) -> str:
                return to

        task = local.task(name="object")(Sender())
        assert task("ada") == "ada"
        assert task.call(to="ada").arguments == {"to": "ada"}
        other = local.task(name="partial")(functools.partial(send.function, copies=2))
        assert other.call("ada").arguments == {"to": "ada"}
        with pytest.raises(OptionError, match=r"names both .*Sender and .*<lambda>"):
            local.task(name="object")(lambda: None)

    def test_a_task_goes_to_its_own_queue_then_the_routers_then_the_apps(self) -> None:
        local = App(default_queue="main")
        router = Router(queue="routed")
        named = local.task(name="a", queue="own")(lambda: None)
        plain = local.task(name="b")(lambda: None)
        routed = router.task(name="c")(lambda: None)
        both = router.task(name="d", queue="own")(lambda: None)
        local.include(router)
        assert [each.queue for each in (named, plain, routed, both)] == [
            "own",
            "main",
            "routed",
            "own",
        ]
        assert local.queues == ["main", "own", "routed"]
        assert plain.options(queue="other").queue == "other"


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"atempts": 3}, "atempts=3.*is no option of a task, which takes name, queue"),
            ({"attempts": 0}, "attempts=0"),
            ({"timeout": "soon"}, "timeout='soon'"),
            ({"isolation": "thread"}, "isolation"),
            ({"queue": "a b"}, "queue='a b'"),
            ({"middleware": [5]}, "middleware"),
        ],
    )
    def test_one_that_cannot_be_is_named_at_the_decorator(
        self, options: dict[str, Any], sentence: str
    ) -> None:
        with pytest.raises(OptionError, match=sentence):
            App().task(**options)(send.function)

    def test_of_a_call_are_named_and_add_up(self) -> None:
        with pytest.raises(OptionError, match=r"Invalid dellay 1.*is no option of a job"):
            send.options(dellay=1)  # type: ignore[call-arg]
        with pytest.raises(OptionError, match="queue"):
            send.options(queue="a b")
        later = send.options(delay=5).options(attempts=2)
        assert later._options == {"delay": 5, "attempts": 2}
        assert send._options == {}

    async def test_options_and_arguments_have_names_of_their_own(self) -> None:
        local = App()

        @local.task
        def task(delay: int, queue: str) -> None: ...

        assert task.call(delay=1, queue="a").arguments == {"delay": 1, "queue": "a"}


class TestRouters:
    def test_a_task_of_a_router_needs_an_app_to_be_enqueued(self) -> None:
        router = Router()
        task = router.task(name="a")(lambda: None)
        with pytest.raises(WrongContext, match="include the router first"):
            task.enqueue_sync()

    def test_a_router_belongs_to_one_app(self) -> None:
        router = Router()
        App().include(router)
        with pytest.raises(OptionError, match="is a part of an app already"):
            App().include(router)

    def test_only_a_router_can_be_included(self) -> None:
        with pytest.raises(OptionError, match="Invalid router 'shop': expected a Router"):
            App().include("shop")  # type: ignore[arg-type]

    def test_a_clash_leaves_the_app_as_it_was(self) -> None:
        local, router = App(), Router()
        local.task(name="b")(lambda: None)
        router.task(name="a")(lambda: None)
        router.task(name="b")(lambda: None)
        with pytest.raises(OptionError, match="names both"):
            local.include(router)
        assert list(local.tasks) == ["b"]

    def test_tasks_declared_later_are_the_apps_too(self) -> None:
        local, router = App(), Router()
        local.include(router)
        router.task(name="late")(lambda: None)
        assert list(local.tasks) == ["late"]


class TestSchedules:
    def test_are_declared_over_a_task_or_a_function(self) -> None:
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
    def test_arguments_that_do_not_fit_keep_a_worker_from_starting(
        self, args: dict[str, object] | None
    ) -> None:
        local = App(NOWHERE)

        @local.schedule(Every("1h"), args=args)
        def task(n: int) -> None: ...

        with pytest.raises(ArgumentError, match="task task: argument"):
            AppWorker(local)

    def test_two_of_a_task_need_keys(self) -> None:
        local = App(NOWHERE)

        @local.schedule(Every("1h"))
        @local.schedule(Every("2h"))
        def task() -> None: ...

        with pytest.raises(OptionError, match=r"Invalid key 'task'.*is declared twice on default"):
            AppWorker(local)

    def test_a_task_of_another_app_keeps_a_worker_from_starting(self) -> None:
        local = App(NOWHERE)
        local.task(name="own")(lambda: None)
        local.schedule(Every("1h"))(App().task(name="other")(lambda: None))
        with pytest.raises(OptionError, match=r"<Task 'other'>.*none of the app's"):
            AppWorker(local)

    def test_options_of_a_call_are_none_of_a_schedules(self) -> None:
        local = App(NOWHERE)
        task = local.task(name="a")(lambda: None)
        local.schedule(Every("1h"))(task.options(queue="slow"))
        assert [each.task.queue for each in local.schedules] == ["slow"]
        with pytest.raises(OptionError, match=r"Invalid attempts 2.*a schedule has its own"):
            local.schedule(Every("1h"))(task.options(attempts=2))

    def test_options_are_checked_at_the_decorator(self) -> None:
        with pytest.raises(OptionError, match="Invalid limit 0"):
            App().schedule(Every("1h"), limit=0)
        with pytest.raises(OptionError, match="rule"):
            App().schedule("hourly")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="args"):
            App().schedule(Every("1h"), args=["a"])  # type: ignore[arg-type]


class TestWorkers:
    def test_an_app_without_tasks_has_nothing_to_run(self) -> None:
        with pytest.raises(OptionError, match="has no task to run"):
            AppWorker(App())
        with pytest.raises(OptionError, match="Invalid app 'shop:app': expected an App"):
            AppWorker("shop:app")  # type: ignore[arg-type]

    @pytest.mark.parametrize("queues", [{}, {"a": 0}, {"a b": 1}, ["a"]])
    def test_queues_are_names_with_their_slots(self, queues: Any) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match="queue"):
            AppWorker(app, queues)

    def test_what_both_sides_of_a_queue_share_is_said_once(self) -> None:
        local = App(max_payload=5_000_000, group="blue", events=True, worker={"attempts": 2})
        assert local.worker == {"max_payload": 5_000_000, "group": "blue", "attempts": 2}
        assert App(max_payload=5, worker={"max_payload": 7}).worker == {"max_payload": 7}

    def test_all_queues_of_the_tasks_unless_told(self) -> None:
        assert dict(AppWorker(app, concurrency=7).queues) == {"default": 7, "sums": 7}
        assert dict(AppWorker(app, {"sums": 3}).queues) == {"sums": 3}

    def test_what_is_app_wide_is_not_in_a_child_process(self) -> None:
        local = App()

        @local.task(isolation="process")
        def task(db: str = Depends(dict, scope="app")) -> None: ...

        with pytest.raises(OptionError, match="is not to be had for task: dict"):
            AppWorker(local)

    def test_a_task_in_a_child_process_must_be_importable(self) -> None:
        local = App()

        @local.task(isolation="process")
        def task() -> None: ...

        with pytest.raises(OptionError, match="importable by a child process"):
            AppWorker(local)


class TestPlaces:
    def test_without_a_loop_there_is_no_queue(self) -> None:
        with pytest.raises(WrongContext, match="without one there is enqueue_sync"):
            app.queue()

    async def test_one_queue_for_each_name_and_loop(self) -> None:
        assert app.queue("a") is app.queue("a")
        assert app.queue().name == "default"
        here = app.queue("a")

        async def elsewhere() -> object:
            return app.queue("a")

        assert await asyncio.to_thread(asyncio.run, elsewhere()) is not here
        with pytest.raises(OptionError, match="Invalid queue ''"):
            app.queue("")

    def test_what_was_not_closed_goes_with_its_loop(self) -> None:
        local = App(NOWHERE)

        async def used() -> weakref.ref[Queue]:
            return weakref.ref(local.queue())

        left = asyncio.run(used())
        asyncio.run(used())
        gc.collect()
        assert left() is None

    def test_a_state_is_there_while_a_worker_runs(self) -> None:
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


def test_nothing_is_done_at_import(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True, timeout=30)
    assert list(tmp_path.iterdir()) == []


def test_a_middleware_of_an_app_comes_before_the_routers_and_the_tasks() -> None:
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
