"""Handlers, and how to run each of them."""

import functools
from typing import Any

import pytest

from tampu.backoff import Backoff
from tampu.consumer.handler import Handler, handlers_by_name
from tampu.consumer.options import WorkerSettings
from tampu.consumer.runners.local import LoopRunner, ProcessRunner, ThreadRunner, make_plans
from tampu.errors import OptionError
from tampu.job import Job
from tampu.util.options import is_async
from tests.unit.consumer.runners import child_handlers


async def async_function(job: Job[Any]) -> None:
    """An async one."""


def plain_function(job: Job[Any]) -> None:
    """A plain one."""


class AsyncObject:
    async def __call__(self, job: Job[Any]) -> None:
        """An async one."""

    async def method(self, job: Job[Any]) -> None:
        """An async one."""


class PlainObject:
    def __call__(self, job: Job[Any]) -> None:
        """A plain one."""


@functools.wraps(async_function)
def plain_wrapper(job: Job[Any]) -> Any:  # noqa: ANN401
    return async_function(job)


@functools.wraps(plain_function)
async def async_wrapper(job: Job[Any]) -> None:
    plain_function(job)


def generator(job: Job[Any]) -> Any:  # noqa: ANN401
    yield job


async def async_generator(job: Job[Any]) -> Any:  # noqa: ANN401
    yield job


class TestKinds:
    @pytest.mark.parametrize(
        "function",
        [
            async_function,
            AsyncObject(),
            AsyncObject().method,
            functools.partial(async_function),
            functools.partial(functools.partial(AsyncObject())),
            async_wrapper,
        ],
    )
    def test_a_function_that_returns_an_awaitable_is_async(self, function: Any) -> None:  # noqa: ANN401
        assert is_async(function)

    @pytest.mark.parametrize(
        "function",
        [
            plain_function,
            PlainObject(),
            functools.partial(plain_function),
            print,
            plain_wrapper,
            lambda job: None,
        ],
    )
    def test_other_functions_are_plain(self, function: Any) -> None:  # noqa: ANN401
        assert not is_async(function)

    @pytest.mark.parametrize("function", [generator, async_generator, functools.partial(generator)])
    def test_a_generator_is_not_a_handler(self, function: Any) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match="must return, not yield"):
            Handler(function)


class TestByName:
    def test_one_function_takes_every_name(self) -> None:
        assert handlers_by_name(async_function) == {None: Handler(async_function)}
        own = Handler(plain_function, attempts=2)
        assert handlers_by_name(own) == {None: own}

    def test_a_mapping_gives_each_name_its_own(self) -> None:
        own = Handler(plain_function, attempts=2)
        assert handlers_by_name({"a": async_function, "b": own}) == {
            "a": Handler(async_function),
            "b": own,
        }

    def test_an_empty_mapping_is_refused(self) -> None:
        with pytest.raises(OptionError, match="at least one handler"):
            handlers_by_name({})


class TestPlans:
    def test_options_that_a_handler_lacks_come_from_the_worker(self) -> None:
        own = Handler(async_function, attempts=2, backoff=Backoff.fixed(1), timeout=3)
        settings = WorkerSettings(attempts=7, backoff=Backoff.fixed(9), timeout="1m")
        plans = make_plans({"own": own, "other": Handler(async_function)}, settings)
        own_plan, other_plan = plans["own"], plans["other"]
        assert (own_plan.attempts, own_plan.backoff, own_plan.timeout_s) == (
            2,
            Backoff.fixed(1),
            3.0,
        )
        expected = (7, Backoff.fixed(9), 60.0)
        assert (other_plan.attempts, other_plan.backoff, other_plan.timeout_s) == expected

    def test_each_kind_of_function_gets_its_runner(self) -> None:
        isolated = Handler(child_handlers.echo, isolation="process")
        handlers: dict[str | None, Handler] = {
            "async_function": Handler(async_function),
            "plain": Handler(plain_function),
            "isolated": isolated,
        }
        plans = make_plans(handlers, WorkerSettings())
        kinds = [type(plans[name].runner) for name in handlers]
        assert kinds == [LoopRunner, ThreadRunner, ProcessRunner]

    def test_a_worker_can_isolate_all_its_handlers(self) -> None:
        settings = WorkerSettings(isolation="process")
        plans = make_plans({None: Handler(child_handlers.echo_async)}, settings)
        assert type(plans[None].runner) is ProcessRunner
