"""Context managers around an attempt: entered before it, left in reverse order after it."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, TypeAlias

from tampu.errors import OptionError, text_of
from tampu.job import Job
from tampu.outcome import Decision
from tampu.util.options import is_async, yields

logger = logging.getLogger(__name__)
Middleware: TypeAlias = Callable[
    [Job[Any]], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
]
"""A function that takes a job and returns a context manager for its attempt.

A plain one is entered where the task's own code runs: for a plain task, in its thread.
"""
_NOT_DECORATED: Final = (
    "must return an async context manager; decorate it with @asynccontextmanager"
)
_ContextManager: TypeAlias = AbstractAsyncContextManager[object] | AbstractContextManager[object]


def check_middleware(given: object) -> tuple[Middleware, ...]:
    """The middleware, outermost first; `OptionError` if it is invalid."""
    expected = "expected a list of functions that take a job and return an async context manager"
    if not isinstance(given, list | tuple) or not all(map(callable, given)):
        raise OptionError("middleware", given, expected)
    for each in given:
        if is_async(each) or yields(each):
            raise OptionError("middleware", each, _NOT_DECORATED)
    return tuple(given)


class ContextStack:
    """The context managers around an attempt, or around a worker. None can hide an error."""

    def __init__(self, job: Job[Any] | None = None) -> None:
        self._job = job
        self._entered: list[tuple[_ContextManager, bool]] = []

    async def enter(self, manager: _ContextManager, *, essential: bool) -> object:
        """Enter one. If leaving an `essential` one raises, the attempt fails."""
        if isinstance(manager, AbstractAsyncContextManager):
            value = await manager.__aenter__()
        elif isinstance(manager, AbstractContextManager):
            value = manager.__enter__()
        else:
            raise OptionError("middleware", type(manager), _NOT_DECORATED)
        self._entered.append((manager, essential))
        return value

    async def leave(self, error: BaseException | None) -> BaseException | None:
        """Leave all, the last one first; the error that the attempt ends with, if any."""
        while self._entered:
            manager, essential = self._entered.pop()
            raised = await _exit(manager, error)
            chosen = _choose_error(error, raised, essential=essential)
            if raised is not None and raised is not error and raised is not chosen:
                self._log(manager, raised)
            error = chosen
        return error

    def _log(self, manager: _ContextManager, raised: BaseException) -> None:
        """Log an error that does not count."""
        # What `@asynccontextmanager` decorates is named by its generator.
        name = getattr(getattr(manager, "gen", None), "__qualname__", type(manager).__qualname__)
        logger.warning(
            "ignored an error of %s after %s: %s: %s",
            name,
            "the worker" if self._job is None else f"job {self._job.id} ({self._job.name})",
            type(raised).__name__,
            text_of(raised),
            exc_info=raised,
            extra={"job_id": None if self._job is None else self._job.id},
        )


async def _exit(manager: _ContextManager, error: BaseException | None) -> BaseException | None:
    """The error that leaving raises, if any."""
    kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
    try:
        if isinstance(manager, AbstractAsyncContextManager):
            await manager.__aexit__(kind, error, trace)
        else:
            manager.__exit__(kind, error, trace)
    except BaseException as raised:  # noqa: BLE001 - the others must be left as well
        return raised
    return None


def _choose_error(
    error: BaseException | None, raised: BaseException | None, *, essential: bool
) -> BaseException | None:
    """Which of two counts: the error of the attempt, or the one raised on leaving."""
    if raised is None or raised is error:
        return error  # a context manager cannot suppress it
    if not isinstance(raised, Exception):
        return raised  # usually a cancellation
    if error is None and essential:
        return raised  # for example a transaction that could not be committed
    if isinstance(error, Exception) and isinstance(raised, Decision):
        return raised  # it decides what happens to a failed attempt
    return error
