"""Handlers and how each wants to be run."""

import functools
from typing import Any

import pytest

from tampu.backoff import Backoff
from tampu.consumer.handler import Handler, by_name
from tampu.consumer.options import WorkerSettings
from tampu.consumer.runners.local import LoopRunner, ProcessRunner, ThreadRunner, make_plans
from tampu.errors import OptionError
from tampu.job import Job
from tampu.util.functions import is_async
from tests.unit.consumer import child_handlers


async def going(job: Job[Any]) -> None:
    """An async one."""


def plain(job: Job[Any]) -> None:
    """A plain one."""


class AsyncObject:
    async def __call__(self, job: Job[Any]) -> None:
        """An async one."""

    async def method(self, job: Job[Any]) -> None:
        """An async one."""


class PlainObject:
    def __call__(self, job: Job[Any]) -> None:
        """A plain one."""


@functools.wraps(going)
def wrapping(job: Job[Any]) -> Any:  # noqa: ANN401
    return going(job)


@functools.wraps(plain)
async def wrapped(job: Job[Any]) -> None:
    plain(job)


def yielding(job: Job[Any]) -> Any:  # noqa: ANN401
    yield job


async def async_yielding(job: Job[Any]) -> Any:  # noqa: ANN401
    yield job


class TestKinds:
    @pytest.mark.parametrize(
        "function",
        [
            going,
            AsyncObject(),
            AsyncObject().method,
            functools.partial(going),
            functools.partial(functools.partial(AsyncObject())),
            wrapped,
        ],
    )
    def test_what_gives_something_to_await_is_async(self, function: Any) -> None:  # noqa: ANN401
        assert is_async(function)

    @pytest.mark.parametrize(
        "function",
        [plain, PlainObject(), functools.partial(plain), print, wrapping, lambda job: None],
    )
    def test_what_does_not_is_plain(self, function: Any) -> None:  # noqa: ANN401
        assert not is_async(function)

    @pytest.mark.parametrize("function", [yielding, async_yielding, functools.partial(yielding)])
    def test_what_yields_is_no_handler(self, function: Any) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match="must return, not yield"):
            Handler(function)


class TestByName:
    def test_one_function_takes_every_name(self) -> None:
        assert by_name(going) == {None: Handler(going)}
        own = Handler(plain, attempts=2)
        assert by_name(own) == {None: own}

    def test_a_mapping_gives_each_name_its_own(self) -> None:
        own = Handler(plain, attempts=2)
        assert by_name({"a": going, "b": own}) == {"a": Handler(going), "b": own}

    def test_an_empty_mapping_is_refused(self) -> None:
        with pytest.raises(OptionError, match="at least one handler"):
            by_name({})


class TestPlans:
    def test_what_a_handler_leaves_open_is_the_workers(self) -> None:
        own = Handler(going, attempts=2, backoff=Backoff.fixed(1), timeout=3)
        settings = WorkerSettings(attempts=7, backoff=Backoff.fixed(9), timeout="1m")
        plans = make_plans({"own": own, "open": Handler(going)}, settings)
        mine, theirs = plans["own"], plans["open"]
        assert (mine.attempts, mine.backoff, mine.timeout_s) == (2, Backoff.fixed(1), 3.0)
        assert (theirs.attempts, theirs.backoff, theirs.timeout_s) == (7, Backoff.fixed(9), 60.0)

    def test_each_kind_of_function_gets_its_runner(self) -> None:
        isolated = Handler(child_handlers.echo, isolation="process")
        handlers: dict[str | None, Handler] = {
            "going": Handler(going),
            "plain": Handler(plain),
            "isolated": isolated,
        }
        plans = make_plans(handlers, WorkerSettings())
        kinds = [type(plans[name].runner) for name in handlers]
        assert kinds == [LoopRunner, ThreadRunner, ProcessRunner]

    def test_a_worker_may_isolate_all_its_handlers(self) -> None:
        settings = WorkerSettings(isolation="process")
        plans = make_plans({None: Handler(child_handlers.echo_async)}, settings)
        assert type(plans[None].runner) is ProcessRunner
