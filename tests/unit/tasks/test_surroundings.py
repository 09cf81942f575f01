"""Nobody around a run can change what it ended in, except where that is their right."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest

from tampu.errors import OptionError
from tampu.outcome import Bury, Retry
from tampu.tasks.middleware import ContextStack, check_middleware


@asynccontextmanager
async def swallowing() -> AsyncIterator[None]:
    with suppress(BaseException):
        yield


@asynccontextmanager
async def raising(error: BaseException) -> AsyncIterator[None]:
    try:
        yield
    finally:
        raise error


async def left(
    manager: AbstractAsyncContextManager[None],
    error: BaseException | None,
    *,
    essential: bool = False,
) -> BaseException | None:
    around = ContextStack()
    await around.enter(manager, essential=essential)
    return await around.leave(error)


class TestFailedRuns:
    @pytest.mark.parametrize("error", [ValueError(), Bury(), asyncio.CancelledError()])
    async def test_an_error_cannot_be_swallowed(self, error: BaseException) -> None:
        assert await left(swallowing(), error) is error

    async def test_another_error_does_not_take_its_place(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        error = Bury("hopeless")
        with caplog.at_level(logging.WARNING):
            assert await left(raising(KeyError("a bug")), error, essential=True) is error
        assert "something around a run failed" in caplog.text

    async def test_what_is_to_become_of_it_may_be_said(self) -> None:
        retry = Retry(after=5)
        assert await left(raising(retry), ValueError()) is retry

    async def test_a_cancellation_stays_one(self) -> None:
        cancelled = asyncio.CancelledError()
        assert await left(raising(Retry()), cancelled) is cancelled


class TestRunsThatAreDone:
    async def test_stay_done_if_middleware_fails_behind_them(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            assert await left(raising(Retry()), None) is None
        assert "something around a run failed" in caplog.text

    async def test_fail_if_what_they_depend_on_cannot_be_closed(self) -> None:
        error = ConnectionError("not committed")
        assert await left(raising(error), None, essential=True) is error

    async def test_are_cancelled_by_a_cancellation_behind_them(self) -> None:
        cancelled = asyncio.CancelledError()
        assert await left(raising(cancelled), None) is cancelled


async def test_all_are_left_in_reverse_order_whatever_they_raise() -> None:
    order: list[int] = []

    @asynccontextmanager
    async def noted(number: int) -> AsyncIterator[None]:
        try:
            yield
        finally:
            order.append(number)
            raise KeyError(number)

    around = ContextStack()
    for number in range(3):
        await around.enter(noted(number), essential=False)
    error = ValueError()
    assert await around.leave(error) is error
    assert order == [2, 1, 0]


def test_middleware_that_is_none_is_refused() -> None:
    async def no_manager(job: object) -> None: ...

    async def undecorated(job: object) -> AsyncIterator[None]:
        yield

    for given in (5, [5], no_manager):
        with pytest.raises(OptionError, match="takes a list of functions"):
            check_middleware(given)

    def plain_undecorated(job: object) -> Iterator[None]:
        yield

    class Undecorated:
        async def __call__(self, job: object) -> AsyncIterator[None]:
            yield

    for function in (no_manager, undecorated, plain_undecorated, Undecorated()):
        with pytest.raises(OptionError, match="@asynccontextmanager"):
            check_middleware([function])


async def test_middleware_that_gives_no_context_manager_is_told_so() -> None:
    nothing: Any = None
    with pytest.raises(
        OptionError, match=r"Invalid middleware <class 'NoneType'>.*@asynccontextmanager"
    ):
        await ContextStack().enter(nothing, essential=False)
