"""Tasks that run at once: no server is needed."""

from collections.abc import Callable
from typing import Any

import pytest

from tampu.compat.celery import (
    Celery,
    EagerResult,
    Ignore,
    MaxRetriesExceededError,
    NotSupported,
    Reject,
    Task,
    chain,
    chord,
    current_app,
    current_task,
    group,
    shared_task,
    signals,
    signature,
)
from tampu.compat.celery._running import ExceptionInfo
from tampu.compat.celery.exceptions import NotRegistered, Retry
from tampu.errors import ArgumentError, OptionError


def result_of(found: Any) -> Any:
    assert isinstance(found, EagerResult)
    return found.get()


def declare_add(app: Celery) -> Task:
    @app.task
    def add(x: int, y: int = 1) -> int:
        return x + y

    assert isinstance(add, Task)
    return add


def test_sending_runs_at_once(eager: Celery) -> None:
    add = declare_add(eager)
    result = add.delay(1)
    assert (result.get(), result.state, result.ready(), result.successful()) == (
        *(2, "SUCCESS", True, True),
    )
    assert result_of(add.apply_async((1,), {"y": 5}, countdown=60)) == 6
    assert result_of(eager.send_task(add.name, (2,))) == 3
    with pytest.raises(ArgumentError):
        add.delay(1, 2, 3)


def test_canvas_runs_at_once(eager: Celery) -> None:
    add = declare_add(eager)

    @eager.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    assert result_of(chain(add.s(1), add.s(10), add.s(y=5))()) == 17
    assert result_of((add.s(1) | add.si(5, 5)).delay()) == 10
    assert chain(add.s(1)).delay().get() == 2
    assert group([add.s(1), add.s(2)])(10).get() == [11, 12]
    assert chord([add.s(1), add.s(2)])(total.s()).get() == 5
    assert chord([add.s(1), add.s(2)], total.s()).delay().get() == 5
    assert (group(add.s(1), add.s(2)) | total.s() | add.s(100)).delay().get() == 105
    assert chain([add.s(1), group(add.s(1), add.s(2)), total.s()]).delay().get() == 7
    assert signature(add.name, (1,), app=eager).delay().get() == 2


def test_a_chain_stops_at_the_first_failure(eager: Celery) -> None:
    ran = []

    @eager.task
    def fail() -> None:
        raise LookupError("no")

    @eager.task
    def after(value: object) -> None:
        ran.append(value)

    result = (fail.s() | after.s()).delay()
    with pytest.raises(LookupError, match="no"):
        result.get()
    assert (result.state, ran) == ("FAILURE", [])


def test_a_signature_is_a_call_with_options(eager: Celery) -> None:
    add = declare_add(eager)
    sig = add.s(1)
    assert (sig.task, sig.args, sig.kwargs, sig.immutable) == (
        "tests.compat.celery.test_eager.add",
        (1,),
        {},
        False,
    )
    longer = sig.clone((5,), queue="other").set(priority=3)
    assert (longer.args, longer.options) == ((5, 1), {"queue": "other", "priority": 3})
    assert sig() == 2
    assert add.si(1).clone((5,)).args == (1,)
    assert "1" not in repr(add.s(1)), "arguments may be private"
    with pytest.raises(TypeError):
        chain(1, 2)
    with pytest.raises(TypeError):
        sig | 1
    with pytest.raises(ValueError, match="at least one"):
        chain()


def test_retries_run_at_once_up_to_the_last(eager: Celery) -> None:
    retries = []

    @eager.task(bind=True, max_retries=2)
    def flaky(self: Task, error: str | None) -> None:
        retries.append(self.request.retries)
        raise self.retry(exc=None if error is None else LookupError(error), countdown=60)

    with pytest.raises(LookupError, match="no"):
        flaky.delay("no").get()
    assert retries == [0, 1, 2]
    with pytest.raises(MaxRetriesExceededError):
        flaky.delay(None).get()


def test_autoretry_retries_the_named_errors_alone(eager: Celery) -> None:
    ran = []

    @eager.task(
        autoretry_for=(LookupError,),
        dont_autoretry_for=(KeyError,),
        retry_kwargs={"max_retries": 1, "countdown": 5},
    )
    def run(kind: str) -> None:
        ran.append(kind)
        raise {"index": IndexError, "key": KeyError, "value": ValueError}[kind](kind)

    for kind in ("index", "key", "value"):
        assert run.delay(kind).state == "FAILURE"
    assert ran == ["index", "index", "key", "value"]


def test_a_retry_with_a_limit_of_its_own_is_possible_as_far_as_attempts_reach(
    eager: Celery,
) -> None:
    ran = []

    @eager.task(bind=True)
    def run(self: Task, most: int) -> None:
        ran.append(self.request.retries)
        self.retry(max_retries=most, countdown=0)

    assert run.delay(5).state == "FAILURE"
    assert ran == list(range(6))
    with pytest.raises(NotSupported, match="declare the task with max_retries=50"):
        run.apply((50,), throw=True)
    with pytest.raises(NotSupported, match="declare the task"):
        run.apply((1000,), throw=True)


def test_a_retry_that_changes_the_job_is_refused(eager: Celery) -> None:
    @eager.task(bind=True)
    def run(self: Task, options: dict[str, Any]) -> None:
        self.retry(**options)

    refused: list[dict[str, Any]] = [{"args": [1]}, {"kwargs": {}}, {"throw": False}]
    for options in [*refused, {"queue": "other"}]:
        with pytest.raises(NotSupported, match="a job is run again as it is"):
            run.apply((options,), throw=True)


def test_a_retry_of_a_direct_call_raises_the_error(eager: Celery) -> None:
    @eager.task(bind=True)
    def run(self: Task, exc: Any = None) -> None:
        self.retry(exc=exc)

    with pytest.raises(LookupError):
        run(LookupError())
    with pytest.raises(Retry):
        run()


def test_a_task_may_ignore_or_reject_its_job(eager: Celery) -> None:
    @eager.task
    def run(error: str) -> None:
        raise Ignore if error == "ignore" else Reject("no", requeue=False)

    assert run.delay("ignore").state == "IGNORED"
    assert run.delay("reject").state == "REJECTED"
    assert str(Reject("no", requeue=True)) == "reject requeue=True: no"


def test_errors_are_raised_at_once_if_the_app_wants_it(eager: Celery) -> None:
    @eager.task
    def fail() -> None:
        raise LookupError("no")

    assert fail.delay().failed()
    eager.conf.task_eager_propagates = True
    with pytest.raises(LookupError):
        fail.delay()
    assert fail.apply(throw=False).failed()
    assert isinstance(fail.apply(throw=False).get(propagate=False), LookupError)


def test_links_follow_success_and_errbacks_failure(eager: Celery) -> None:
    seen: list[Any] = []

    @eager.task
    def run(fails: bool) -> int:  # noqa: FBT001 - a task
        if fails:
            raise LookupError("no")
        return 7

    @eager.task
    def note(*, value: object = None, first: object = None) -> None:
        seen.append((first, value))

    @eager.task
    def take(first: object, second: int = 0) -> None:
        seen.append((first, second))

    @eager.task
    def errback(request: Any, exc: BaseException, traceback: str) -> None:
        seen.append((request.task, str(exc), "LookupError: no" in traceback))

    run.apply_async((False,), link=[take.s(1), note.si(value=2)], link_error=errback.s())
    assert seen == [(7, 1), (None, 2)]
    seen.clear()

    @eager.task
    def old_errback(task_id: str) -> None:
        seen.append(task_id)

    failed = run.apply_async((True,), link=take.s(1), link_error=[errback.s(), old_errback.s()])
    assert seen == [(run.name, "no", True), failed.id]


class Recorded(Task):
    """A base class that records what is called, and calls the function itself."""

    calls: list[tuple[object, ...]] = []  # noqa: RUF012 - of all its tasks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(("call", self.request.called_directly))
        return super().__call__(*args, **kwargs)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        self.calls.append(("before", list(args), dict(kwargs)))

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        self.calls.append(("success", retval))

    def on_retry(
        self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: ExceptionInfo
    ) -> None:
        self.calls.append(("retry", type(exc).__name__))

    def on_failure(
        self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: ExceptionInfo
    ) -> None:
        self.calls.append(("failure", str(exc), einfo.type.__name__, str(einfo)[:9]))

    def after_return(
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        self.calls.append(("after", status))


def test_the_methods_of_a_base_class_are_called_around_the_run(eager: Celery) -> None:
    @eager.task(base=Recorded, bind=True, max_retries=1)
    def run(self: Task, value: int) -> int:
        if value < 0:
            self.retry(exc=ValueError("low"), countdown=0)
        return value

    Recorded.calls.clear()
    assert run.delay(3).get() == 3
    expected: list[tuple[object, ...]] = [("before", [3], {}), ("call", False), ("success", 3)]
    assert Recorded.calls == [*expected, ("after", "SUCCESS")]
    Recorded.calls.clear()
    run.delay(-1)
    names = [each[0] for each in Recorded.calls]
    assert names == ["before", "call", "retry", "before", "call", "failure", "after"]
    assert ("failure", "low", "ValueError", "Traceback") in Recorded.calls
    Recorded.calls.clear()
    assert run(4) == 4
    assert Recorded.calls == [("call", True)]


def test_the_base_of_an_app_is_that_of_all_tasks(eager: Celery) -> None:
    eager.Task = Recorded

    @eager.task
    def one() -> None: ...

    @shared_task
    def two() -> None: ...

    assert isinstance(one, Recorded)
    assert isinstance(two, Recorded)


def test_signals_tell_about_runs(eager: Celery) -> None:
    seen: list[tuple[str, object]] = []
    add = declare_add(eager)

    @eager.task(bind=True, max_retries=1)
    def fail(self: Task) -> None:
        self.retry(exc=LookupError("no"), countdown=0)

    def follow(name: str, key: str) -> Callable[..., None]:
        def receive(sender: Task, **named: Any) -> None:
            seen.append((f"{name} {sender.name.rpartition('.')[2]}", named[key]))

        return receive

    keys = {"prerun": "args", "success": "result", "retry": "reason", "failure": "exception"}
    receivers = {name: follow(name, key) for name, key in [*keys.items(), ("postrun", "state")]}
    for name, receiver in receivers.items():
        getattr(signals, f"task_{name}").connect(receiver)
    add.delay(1)
    fail.delay()
    told = [(name, str(value)) for name, value in seen]
    assert told == [
        ("prerun add", "(1,)"),
        ("success add", "2"),
        ("postrun add", "SUCCESS"),
        ("prerun fail", "()"),
        ("retry fail", "Retry: LookupError: no"),
        ("postrun fail", "RETRY"),
        ("prerun fail", "()"),
        ("failure fail", "no"),
        ("postrun fail", "FAILURE"),
    ]


def test_the_current_task_and_app_can_be_asked(eager: Celery) -> None:
    @eager.task
    def who() -> list[str]:
        return [current_task.name, current_app.main, eager.current_task.name]  # type: ignore[union-attr] # it runs

    assert who.delay().get() == [who.name, "shop", who.name]
    assert not current_task
    assert eager.current_task is None


def test_a_shared_task_belongs_to_the_app_that_is_created_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tampu.compat.celery._current._current", [])

    @shared_task
    def early(x: int) -> int:
        return x

    with pytest.raises(NotSupported, match="create"):
        early.delay(1)
    with pytest.raises(NotSupported, match="create"):
        early.s(1).delay()
    with Celery("later", task_always_eager=True) as app:
        assert early.app is app
        assert early.delay(1).get() == 1
        assert early.s(2).delay().get() == 2


def test_a_task_can_be_a_class(eager: Celery) -> None:
    class Greet(Task):
        name = "greet"

        def run(self, who: str = "you") -> str:
            return f"hello {who}"

    greet = eager.register_task(Greet())
    assert greet.delay("ada").get() == "hello ada"
    assert eager.tasks["greet"] is greet
    with pytest.raises(NotImplementedError):
        Task()()


def test_an_unknown_task_is_not_registered(eager: Celery) -> None:
    with pytest.raises(NotRegistered):
        signature("nothing", app=eager).apply()


def test_names_are_those_of_celery(eager: Celery) -> None:
    @eager.task(name="own")
    def named() -> None: ...

    assert named.name == "own"
    assert declare_add(eager).name == f"{__name__}.add"
    assert eager.gen_task_name("add", "__main__") == "shop.add"
    with pytest.raises(OptionError, match="used by both"):
        eager.task(name="own")(declare_add)
