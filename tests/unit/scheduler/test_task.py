"""Scheduled tasks: their options, and the function that adds jobs."""

import functools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

import pytest

from tampu.errors import OptionError
from tampu.job import Job, JobOptions
from tampu.scheduler import AddJob, RunStatus, ScheduledTask, Scope, TaskRun
from tampu.timing import At, Cron, Every, Missed, Overlap, TimeWindow
from tests.unit.scheduler.harness import Harness, finish, task
from tests.unit.scheduler.plans import MINUTE, START_MS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOURLY = Every("1h")
WINDOW = TimeWindow(days="mon")


def plain(run: TaskRun[None]) -> None:
    del run


async def asynchronous(run: TaskRun[None]) -> None:
    del run


def no_argument() -> None: ...


def two_arguments(run: object, more: object) -> None: ...


def keyword_only(run: object, *, more: object) -> None: ...


def generator(run: object) -> Iterator[object]:
    yield run


async def async_generator(run: object) -> AsyncIterator[object]:
    yield run


class Callable:
    def __call__(self, run: object) -> None: ...


class AsyncCallable:
    async def __call__(self, run: object) -> None: ...


class YieldingCallable:
    def __call__(self, run: object) -> Iterator[object]:
        yield run


class Methods:
    async def work(self, run: object) -> None: ...


def make_task(options: dict[str, Any]) -> ScheduledTask[Any]:
    given: dict[str, Any] = {"id": "t", "rule": HOURLY, "function": plain, **options}
    return ScheduledTask(given.pop("id"), given.pop("rule"), given.pop("function"), **given)


INVALID: list[tuple[str, dict[str, Any]]] = [
    *[("id", {"id": given}) for given in ("", " ", "a{b", "a}b", "x" * 257, "ü" * 129, "a\nb")],
    *[("id", {"id": given}) for given in (None, 5, b"t")],
    *[("rule", {"rule": given}) for given in ("5s", 5, None, Every, [HOURLY], timedelta(1))],
    *[("function", {"function": given}) for given in (None, 5, "f", HOURLY)],
    ("function", {"function": no_argument}),
    ("function", {"function": two_arguments}),
    ("function", {"function": keyword_only}),
    ("function", {"function": lambda: None}),
    ("function", {"function": functools.partial(two_arguments, None, None)}),
    ("function", {"function": generator}),
    ("function", {"function": async_generator}),
    ("function", {"function": YieldingCallable()}),
    ("function", {"function": functools.partial(generator)}),
    ("blocking", {"function": asynchronous, "blocking": True}),
    ("blocking", {"function": AsyncCallable(), "blocking": True}),
    ("blocking", {"function": functools.partial(asynchronous), "blocking": True}),
    ("blocking", {"function": Methods().work, "blocking": True}),
    *[("blocking", {"blocking": given}) for given in (None, 1, "yes")],
    *[("window", {"window": given}) for given in ("mon", True, [("09:00", "17:00")])],
    ("align", {"align": True}),
    ("align", {"align": 1, "window": WINDOW}),
    *[("missed", {"missed": given}) for given in (None, "once", Missed, Overlap.SKIP)],
    *[("overlap", {"overlap": given}) for given in (None, "skip", 1, Overlap)],
    ("overlap", {"overlap": Overlap.CANCEL_RUNNING, "blocking": True}),
    ("overlap", {"overlap": Overlap.CANCEL_RUNNING, "missed": Missed.all()}),
    *[
        (limit, {limit: given})
        for limit in ("max_runs", "max_fires")
        for given in (-1, True, 1.5, "3", float("inf"))
    ],
    *[("stagger", {"stagger": given}) for given in (None, 1, 0, b"seed")],
    ("stagger", {"stagger": True, "rule": Cron("* * * * *")}),
    ("stagger", {"stagger": "seed", "rule": At(EPOCH)}),
    ("stagger", {"stagger": True, "rule": Every("1h", anchor=EPOCH)}),
    ("stagger", {"stagger": "seed", "rule": Every("1h", anchor=EPOCH + timedelta(1))}),
    *[("jitter", {"jitter": given}) for given in (0, -1, "soon", True, float("nan"))],
    ("jitter", {"jitter": "61m"}),
    ("jitter", {"jitter": timedelta(hours=1, milliseconds=1)}),
    *[("resource", {"resource": given}) for given in ("", "  ", "{x}", 5, "x" * 257)],
    *[("scope", {"scope": given}) for given in (None, "occurrence", Overlap.SKIP)],
]


@pytest.mark.parametrize(
    ("field", "options"), INVALID, ids=[f"{f}-{n}" for n, (f, _) in enumerate(INVALID)]
)
def test_an_invalid_option_is_refused_by_name(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        make_task(options)
    assert caught.value.option == field
    assert str(caught.value).startswith(f"Invalid {field} ")


VALID: list[dict[str, Any]] = [
    {"id": "x" * 256},
    {"id": "a b:ü*"},
    {"function": asynchronous},
    {"function": lambda run: asynchronous(run) if run else None},
    {"function": Callable()},
    {"function": AsyncCallable()},
    {"function": Methods().work},
    {"function": functools.partial(two_arguments, more=1)},
    {"function": lambda *args: None},
    {"function": print},
    {"function": int},  # functions in C may have no signature
    {"blocking": True},
    {"window": WINDOW, "align": True},
    {"window": WINDOW, "align": True, "rule": At()},
    {"max_runs": 0, "max_fires": 0},
    {"stagger": True},
    {"stagger": "seed"},
    {"jitter": "1h"},
    {"jitter": 0.001},
    {"jitter": "1d", "rule": Cron("* * * * *")},
    {"overlap": Overlap.CANCEL_RUNNING, "function": asynchronous},
    {"resource": "printer", "scope": Scope.RESOURCE},
]


@pytest.mark.parametrize("options", VALID, ids=range(len(VALID)))
def test_a_valid_option_is_accepted(options: dict[str, Any]) -> None:
    assert make_task(options).id == options.get("id", "t")


def test_defaults() -> None:
    made = make_task({})
    assert (made.missed, made.overlap, made.scope) == (
        Missed.ONCE,
        Overlap.SKIP,
        Scope.OCCURRENCE,
    )
    assert (made.max_runs, made.max_fires, made.window, made.deps) == (None, None, None, None)
    assert (made.blocking, made.align, made.stagger, made.jitter) == (False, False, False, None)


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        ScheduledTask("t", HOURLY, print, "deps")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"align": True}, "Invalid align True: needs a window."),
        (
            {"function": asynchronous, "blocking": True},
            "Invalid blocking True: cannot be combined with an async function.",
        ),
        (
            {"stagger": True, "rule": Cron("* * * * *")},
            "Invalid stagger True: needs an interval, Every(...).",
        ),
        ({"jitter": "2h"}, "Invalid jitter '2h': must not be longer than the interval."),
        ({"max_runs": -1}, "Invalid max_runs -1: must be a whole number of at least 0."),
        (
            {"rule": "5s"},
            "Invalid rule '5s': expected Every(...), Cron(...) or At(...).",
        ),
        (
            {"function": 5},
            "Invalid function 5: expected a function that takes one argument, the run.",
        ),
        (
            {"overlap": Overlap.CANCEL_RUNNING, "blocking": True},
            "Invalid overlap <Overlap.CANCEL_RUNNING: 4>: CANCEL_RUNNING is not supported for a "
            "blocking function.",
        ),
        (
            {"overlap": Overlap.CANCEL_RUNNING, "missed": Missed.all(max=3)},
            "Invalid overlap <Overlap.CANCEL_RUNNING: 4>: CANCEL_RUNNING cannot be combined with "
            "missed=Missed.all(max=3).",
        ),
    ],
)
def test_error_messages(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_task(options)
    assert str(caught.value) == text


class FakeQueue:
    """Keeps the jobs that are added."""

    def __init__(self) -> None:
        self.added: list[tuple[str, object, JobOptions]] = []
        self.error: Exception | None = None

    async def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> Job[Any]:
        if self.error is not None:
            raise self.error
        self.added.append((name, data, options))
        return Job(id=str(options.get("job_id")), name=name, data=data)  # type: ignore[call-arg]


async def run_twice(function: AddJob) -> list[RunStatus]:
    harness = Harness()
    running = await harness.start_run(task(function, max_runs=2))
    await harness.turn(2 * MINUTE)
    return [record.status for record in (await finish(running)).history]


@pytest.mark.usefixtures("no_leftovers")
class TestAddJob:
    async def test_each_occurrence_adds_a_job_with_its_own_id(self) -> None:
        queue = FakeQueue()
        function = AddJob(queue, "digest", {"to": "ada"}, delay=timedelta(seconds=5), attempts=3)
        await run_twice(function)
        assert queue.added == [
            (
                "digest",
                {"to": "ada"},
                {
                    "delay": timedelta(seconds=5),
                    "attempts": 3,
                    "job_id": f"t@{START_MS + n * MINUTE}",
                },
            )
            for n in (1, 2)
        ]

    async def test_the_data_may_be_a_function_of_the_run(self) -> None:
        queue = FakeQueue()

        def make_data(run: TaskRun[Any]) -> object:
            return {"minute": (run.at_ms - START_MS) // MINUTE}

        await run_twice(AddJob(queue, "digest", make_data))
        assert [data for _, data, _ in queue.added] == [{"minute": 1}, {"minute": 2}]

    async def test_the_data_is_optional(self) -> None:
        queue = FakeQueue()
        await run_twice(AddJob(queue, "digest"))
        assert [data for _, data, _ in queue.added] == [None, None]

    async def test_a_run_fails_if_the_queue_fails_and_the_task_continues(self) -> None:
        queue = FakeQueue()
        queue.error = RuntimeError("full")
        assert await run_twice(AddJob(queue, "digest")) == [RunStatus.FAILED] * 2

    def test_invalid_arguments_are_refused_by_name(self) -> None:
        with pytest.raises(OptionError, match="Invalid queue 'emails': expected a Queue"):
            AddJob("emails", "digest")  # type: ignore[arg-type]
        with pytest.raises(
            OptionError, match="AddJob makes the id from the task's id and the instant"
        ):
            AddJob(FakeQueue(), "digest", job_id="x")
        with pytest.raises(OptionError, match="Invalid name "):
            AddJob(FakeQueue(), "x" * 10_000)

    def test_it_cannot_be_blocking(self) -> None:
        with pytest.raises(OptionError) as refused:
            task(AddJob(FakeQueue(), "digest"), blocking=True)
        assert refused.value.option == "blocking"
