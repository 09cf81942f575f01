"""Context managers around an attempt cannot change its outcome, with few exceptions."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tampu.errors import OptionError
from tampu.outcome import Bury, Retry
from tampu.tasks.middleware import ContextStack, check_middleware


@asynccontextmanager
async def suppressing() -> AsyncIterator[None]:
    with suppress(BaseException):
        yield


@asynccontextmanager
async def raising(error: BaseException) -> AsyncIterator[None]:
    try:
        yield
    finally:
        raise error


async def leave(
    manager: AbstractAsyncContextManager[None],
    error: BaseException | None,
    *,
    essential: bool = False,
) -> BaseException | None:
    stack = ContextStack()
    await stack.enter(manager, essential=essential)
    return await stack.leave(error)


class TestFailedAttempts:
    @pytest.mark.parametrize("error", [ValueError(), Bury(), asyncio.CancelledError()])
    async def test_an_error_cannot_be_suppressed(self, error: BaseException) -> None:
        assert await leave(suppressing(), error) is error

    async def test_another_error_does_not_replace_it(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        error = Bury("no use")
        with caplog.at_level(logging.WARNING):
            assert await leave(raising(KeyError("a bug")), error, essential=True) is error
        assert "ignored an error of raising after " in caplog.text

    async def test_middleware_may_raise_retry(self) -> None:
        retry = Retry(after=5)
        assert await leave(raising(retry), ValueError()) is retry

    async def test_a_cancellation_is_not_replaced(self) -> None:
        cancelled = asyncio.CancelledError()
        assert await leave(raising(Retry()), cancelled) is cancelled


class TestSuccessfulAttempts:
    async def test_an_error_of_middleware_is_ignored(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            assert await leave(raising(Retry()), None) is None
        assert "ignored an error of raising after " in caplog.text

    async def test_an_error_of_an_essential_one_fails_the_attempt(self) -> None:
        error = ConnectionError("not committed")
        assert await leave(raising(error), None, essential=True) is error

    async def test_a_cancellation_on_leaving_counts(self) -> None:
        cancelled = asyncio.CancelledError()
        assert await leave(raising(cancelled), None) is cancelled


async def test_all_are_left_in_reverse_order_even_if_they_raise() -> None:
    order: list[int] = []

    @asynccontextmanager
    async def recording(number: int) -> AsyncIterator[None]:
        try:
            yield
        finally:
            order.append(number)
            raise KeyError(number)

    stack = ContextStack()
    for number in range(3):
        await stack.enter(recording(number), essential=False)
    error = ValueError()
    assert await stack.leave(error) is error
    assert order == [2, 1, 0]


def test_invalid_middleware_is_refused() -> None:
    async def no_manager(job: object) -> None: ...

    async def undecorated(job: object) -> AsyncIterator[None]:
        yield

    for given in (5, [5], no_manager):
        with pytest.raises(OptionError, match="expected a list of functions"):
            check_middleware(given)

    def plain_undecorated(job: object) -> Iterator[None]:
        yield

    class Undecorated:
        async def __call__(self, job: object) -> AsyncIterator[None]:
            yield

    for function in (no_manager, undecorated, plain_undecorated, Undecorated()):
        with pytest.raises(OptionError, match="@asynccontextmanager"):
            check_middleware([function])


async def test_middleware_must_return_a_context_manager() -> None:
    nothing: Any = None
    with pytest.raises(
        OptionError, match=r"Invalid middleware <class 'NoneType'>.*@asynccontextmanager"
    ):
        await ContextStack().enter(nothing, essential=False)


async def test_an_ignored_error_is_logged_with_its_job_and_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job: Any = SimpleNamespace(id="01M7", name="send")
    stack = ContextStack(job)
    await stack.enter(raising(KeyError("a bug")), essential=False)
    await stack.leave(None)
    (record,) = caplog.records
    expected = "ignored an error of raising after job 01M7 (send): KeyError: 'a bug'"
    assert record.message == expected
    assert record.exc_info is not None
    assert vars(record)["job_id"] == "01M7"
