"""Tasks: functions that can still be called, and whose calls can be jobs."""

import functools
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from tampu import App, ArgumentError, Batch, Depends, Job, JobBatch, OptionError, Router
from tampu.tasks.signature import INJECTED
from tampu.util.options import is_async

app = App("redis://127.0.0.1:1")


@app.task
async def send(to: str, copies: int = 1) -> int:
    """Send it."""
    return len(to) * copies


@app.task(queue="sums", name="sum", attempts=2)
def add(a: int, b: int) -> int:
    return a + b


class TestCalling:
    async def test_a_task_can_be_called_like_its_function(self) -> None:
        assert await send("ada", copies=2) == 6
        assert add(1, b=2) == 3

    def test_it_looks_like_its_function(self) -> None:
        wrapped: Any = send
        assert (wrapped.__name__, wrapped.__doc__) == ("send", "Send it.")
        assert str(inspect.signature(wrapped)) == "(to: str, copies: int = 1) -> int"
        assert inspect.unwrap(wrapped) is send.function
        assert (is_async(send), is_async(add)) == (True, False)

    def test_a_plain_call_must_pass_what_a_worker_would_inject(self) -> None:
        local = App()

        @local.task
        def task(to: str, db: str = Depends(dict), job: Job[Any] = INJECTED) -> str:
            return to + db

        with pytest.raises(ArgumentError, match="argument 'db': injected only by a worker"):
            task("a")
        given: Any = None
        assert task("a", "b", given) == "ab"

    def test_it_has_the_attributes_of_its_function_unless_a_task_has_its_own(self) -> None:
        def function() -> None: ...

        vars(function).update(name="other", queue="other", call="other", label="kept")
        task: Any = App().task(function)
        assert (task.name, task.queue, task.label) == ("function", "default", "kept")
        assert task.call().arguments == {}

    def test_it_is_pickled_by_its_name(self) -> None:
        assert pickle.loads(pickle.dumps(send)) is send  # noqa: S301 - our own


class TestNames:
    def test_a_task_has_the_short_name_of_its_function_by_default(self) -> None:
        assert (send.name, add.name) == ("send", "sum")
        assert App().task(name="")(send.function).name == ""

    def test_a_second_task_with_the_same_name_is_refused(self) -> None:
        local = App()
        local.task(name="twice")(lambda: None)
        with pytest.raises(
            OptionError, match=r"Invalid name 'twice': used by both .*<lambda> and .*\.twice"
        ):

            @local.task
            def twice() -> None: ...

    def test_a_module_that_is_both_run_and_imported_is_explained(self) -> None:
        local = App()
        code = compile("@app.task\ndef send(): ...", "shop.py", "exec")
        exec(code, {"__name__": "__main__", "app": local})  # noqa: S102 - as an import does
        with pytest.raises(
            OptionError, match=r"__main__.send and shop.send; .*both run and imported"
        ):
            exec(code, {"__name__": "shop", "app": local})  # noqa: S102

    def test_a_function_without_a_name_needs_the_option(self) -> None:
        for function in (lambda: None, functools.partial(print)):
            with pytest.raises(OptionError, match="name"):
                App().task(function)

    def test_partials_and_callable_objects_can_be_tasks(self) -> None:
        local = App()

        class Sender:
            def __call__(self, to: str) -> str:
                return to

        task = local.task(name="object")(Sender())
        assert task("ada") == "ada"
        assert task.call(to="ada").arguments == {"to": "ada"}
        other = local.task(name="partial")(functools.partial(send.function, copies=2))
        assert other.call("ada").arguments == {"to": "ada"}
        with pytest.raises(OptionError, match=r"used by both .*Sender and .*<lambda>"):
            local.task(name="object")(lambda: None)

    def test_the_queue_is_that_of_the_task_or_the_router_or_the_app(self) -> None:
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
            (
                {"atempts": 3},
                r"Invalid atempts 3: unknown option \(did you mean attempts\?\); "
                "a task accepts name, queue, ",
            ),
            ({"attempts": 0}, "Invalid attempts 0"),
            ({"timeout": "soon"}, "Invalid timeout 'soon'"),
            ({"isolation": "thread"}, "Invalid isolation 'thread'"),
            ({"queue": "a b"}, "Invalid queue 'a b'"),
            ({"middleware": [5]}, "Invalid middleware"),
        ],
    )
    def test_an_invalid_option_is_named_at_the_decorator(
        self, options: dict[str, Any], sentence: str
    ) -> None:
        with pytest.raises(OptionError, match=sentence):
            App().task(**options)(send.function)

    def test_options_of_jobs_are_checked_and_combined(self) -> None:
        with pytest.raises(
            OptionError,
            match=r"Invalid dellay 1: unknown option \(did you mean delay\?\); a job accepts",
        ):
            send.options(dellay=1)  # type: ignore[call-arg]
        with pytest.raises(OptionError, match="queue"):
            send.options(queue="a b")
        later = send.options(delay=5).options(attempts=2)
        assert later._options == {"delay": 5, "attempts": 2}
        assert send._options == {}

    async def test_options_and_arguments_do_not_share_names(self) -> None:
        local = App()

        @local.task
        def task(delay: int, queue: str) -> None: ...

        assert task.call(delay=1, queue="a").arguments == {"delay": 1, "queue": "a"}


class TestFunctions:
    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ("emails", r"function 'emails': .*pass options by name, as in @app.task\(queue="),
            (5, "Invalid function 5: expected a function"),
            (send, r"function <Task 'send'>: already a task; write @app.schedule\(...\) above"),
            (max, "function <built-in function max>: its parameters cannot be inspected"),
        ],
    )
    def test_only_a_function_can_be_a_task(self, given: Any, sentence: str) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match=sentence):
            App().task(given)

    def test_a_method_needs_its_object(self) -> None:
        class Sender:
            def send(self, to: str) -> str:
                return to

            @classmethod
            def share(cls, to: str) -> str:
                return to

        with pytest.raises(OptionError, match=r"Invalid parameter 'self': not allowed for a task"):
            App().task(Sender.send)
        assert App().task(Sender().send).call("ada").arguments == {"to": "ada"}
        assert App().task(Sender.share).call("ada").arguments == {"to": "ada"}

    def test_a_generator_stays_callable(self) -> None:
        @App().task(collect=list)
        def several(most: int) -> Iterator[int]:
            yield from range(most)

        assert list(several(3)) == [0, 1, 2]

    @pytest.mark.parametrize(
        "options", [{"collect": list}, {"window": 5}, {"cancel_on_close": True}]
    )
    def test_options_of_streams_need_a_generator(self, options: Any) -> None:  # noqa: ANN401
        def one() -> int:
            return 1

        with pytest.raises(OptionError, match="only possible for a function that yields"):
            App().task(**options)(one)

    def test_a_generator_gets_no_batches(self) -> None:
        def several(batch: JobBatch[Any]) -> Iterator[int]:
            yield len(batch)

        with pytest.raises(OptionError, match="not possible for a function that yields"):
            App().task(batch=Batch(5))(several)

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"collect": "list"}, "expected a function such as list"),
            ({"window": 0}, "must be a whole number from 1 to 10000"),
            ({"cancel_on_close": 1}, "expected True or False"),
        ],
    )
    def test_invalid_options_of_streams(self, options: Any, problem: str) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match=problem):
            App().task(**options)
