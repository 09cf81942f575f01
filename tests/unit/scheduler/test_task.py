"""What cannot be is refused when it is built, and the field is named."""

import functools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tampu.errors import OptionError
from tampu.scheduler import LogObserver, MemoryStore, ScheduledTask, Scheduler, Scope, TaskRun
from tampu.scheduler.guard import Guard, Lease, Refusal, Slot
from tampu.scheduler.stores.coordinated import CoordinatedStore
from tampu.timing import At, Cron, Every, Missed, Overlap, TimeWindow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOURLY = Every("1h")
WINDOW = TimeWindow(days="mon")


def plain(run: TaskRun[None]) -> None:
    del run


async def asynchronous(run: TaskRun[None]) -> None:
    del run


def no_argument() -> None: ...


def two_arguments(run: object, more: object) -> None: ...


def named_too(run: object, *, more: object) -> None: ...


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


def task(options: dict[str, Any]) -> ScheduledTask[Any]:
    given: dict[str, Any] = {"id": "t", "rule": HOURLY, "function": plain, **options}
    return ScheduledTask(given.pop("id"), given.pop("rule"), given.pop("function"), **given)


IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    *[("id", {"id": given}) for given in ("", " ", "a{b", "a}b", "x" * 257, "ü" * 129, "a\nb")],
    *[("id", {"id": given}) for given in (None, 5, b"t")],
    *[("rule", {"rule": given}) for given in ("5s", 5, None, Every, [HOURLY], timedelta(1))],
    *[("function", {"function": given}) for given in (None, 5, "f", HOURLY)],
    ("function", {"function": no_argument}),
    ("function", {"function": two_arguments}),
    ("function", {"function": named_too}),
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
    ("field", "options"), IMPOSSIBLE, ids=[f"{f}-{n}" for n, (f, _) in enumerate(IMPOSSIBLE)]
)
def test_what_cannot_be_is_refused_by_its_name(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as refused:
        task(options)
    assert refused.value.option == field
    assert str(refused.value).startswith(f"{field}=")


POSSIBLE: list[dict[str, Any]] = [
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
    {"function": int},  # C does not always tell what it takes
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
    {"resource": "house", "scope": Scope.RESOURCE},
]


@pytest.mark.parametrize("options", POSSIBLE, ids=range(len(POSSIBLE)))
def test_what_can_be_is_taken(options: dict[str, Any]) -> None:
    assert task(options).id == options.get("id", "t")


def test_the_defaults() -> None:
    made = task({})
    assert (made.missed, made.overlap, made.scope) == (
        Missed.ONCE,
        Overlap.SKIP,
        Scope.OCCURRENCE,
    )
    assert (made.max_runs, made.max_fires, made.window, made.deps) == (None, None, None, None)
    assert (made.blocking, made.align, made.stagger, made.jitter) == (False, False, False, None)


def test_options_are_keywords_only() -> None:
    with pytest.raises(TypeError):
        ScheduledTask("t", HOURLY, print, "deps")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"align": True}, "Invalid align True: needs a window to align with."),
        (
            {"function": asynchronous, "blocking": True},
            "Invalid blocking True: is for plain functions, and this one is async.",
        ),
        (
            {"stagger": True, "rule": Cron("* * * * *")},
            "Invalid stagger True: is for intervals, Every(...).",
        ),
        ({"jitter": "2h"}, "Invalid jitter '2h': must not be longer than the interval."),
        ({"max_runs": -1}, "Invalid max_runs -1: must be a whole number of at least 0."),
        (
            {"rule": "5s"},
            "Invalid rule '5s': expected Every(...), Cron(...) or At(...).",
        ),
        (
            {"function": 5},
            "Invalid function 5: must be a function that takes one argument, the run.",
        ),
        (
            {"overlap": Overlap.CANCEL_RUNNING, "blocking": True},
            "Invalid overlap <Overlap.CANCEL_RUNNING: 4>: cannot be had for a blocking "
            "function: a thread cannot be cancelled.",
        ),
        (
            {"overlap": Overlap.CANCEL_RUNNING, "missed": Missed.all(max=3)},
            "Invalid overlap <Overlap.CANCEL_RUNNING: 4>: would cancel each of the missed "
            "runs for the next one under Missed.all(max=3).",
        ),
    ],
)
def test_the_texts_read_well(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as refused:
        task(options)
    assert str(refused.value) == text


class NoGuard(Guard):
    lease_s = renew_every_s = 1.0

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        return Lease(slot, "")

    async def renew(self, lease: Lease) -> bool:
        return bool(lease)

    async def release(self, lease: Lease) -> bool:
        return bool(lease)


class TestScheduler:
    @pytest.mark.parametrize(
        ("option", "given"),
        [
            ("store", {}),
            *[("store", given) for given in (None, MemoryStore, "redis://x")],
            *[("guard", given) for given in (5, NoGuard, MemoryStore())],
            *[("timezone", given) for given in ("Mars/Base", None, 5, UTC)],
            *[("history", given) for given in (-1, None, True, 1.5)],
            *[("threads", given) for given in (0, -1, None, 2.5)],
            *[("keep_ended", given) for given in (None, 1, "yes")],
            *[("grace", given) for given in (-1, "soon", True)],
            *[("clock", given) for given in (None, 5, datetime)],
            *[
                ("observers", given)
                for given in (None, LogObserver(), [5], [LogObserver], iter([LogObserver()]))
            ],
            ("colour", "red"),
        ],
    )
    def test_an_option_that_cannot_be_is_refused_by_its_name(
        self, option: str, given: object
    ) -> None:
        with pytest.raises(OptionError) as refused:
            Scheduler(**{option: given})  # type: ignore[arg-type]
        assert refused.value.option == option

    def test_a_guard_beside_a_store_that_guards_by_itself_is_refused(self) -> None:
        with pytest.raises(OptionError) as refused:
            Scheduler(store=CoordinatedStore("redis://127.0.0.1:1"), guard=NoGuard())
        assert refused.value.option == "guard"

    def test_an_option_that_there_is_none_of_is_told_what_there_is(self) -> None:
        with pytest.raises(OptionError, match="which takes store, guard, timezone, history"):
            Scheduler(zone="UTC")  # type: ignore[call-arg]

    def test_all_defaults_will_do(self) -> None:
        Scheduler()
        Scheduler(grace=0, history=0, guard=None, observers=())
