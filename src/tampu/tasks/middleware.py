"""What is entered around a run and left behind it, in reverse order, however the run ends."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, TypeAlias

from tampu.errors import OptionError
from tampu.job import Job
from tampu.outcome import Retry, Snooze, Unrecoverable
from tampu.util.functions import is_async, yields

logger = logging.getLogger(__name__)
Middleware: TypeAlias = Callable[[Job[Any]], AbstractAsyncContextManager[object]]
"""Called with the job, gives what is entered before its run and left behind it."""
_DECORATED: Final = "must give an async context manager: decorate it with @asynccontextmanager"
_Entered: TypeAlias = AbstractAsyncContextManager[object] | AbstractContextManager[object]


def check_middleware(given: object) -> tuple[Middleware, ...]:
    """The middleware, outermost first."""
    accepted = "expected a list of functions that take a job and give an async context manager"
    if not isinstance(given, list | tuple) or not all(map(callable, given)):
        raise OptionError("middleware", given, accepted)
    for each in given:
        if is_async(each) or yields(each):
            raise OptionError("middleware", each, _DECORATED)
    return tuple(given)


class ContextStack:
    """Around one run. Nobody in there can turn a run that failed into one that did not."""

    def __init__(self) -> None:
        self._entered: list[tuple[_Entered, bool]] = []

    async def enter(self, manager: _Entered, *, essential: bool) -> object:
        """Enter; `essential` is what makes the run fail if it cannot be left well."""
        if isinstance(manager, AbstractAsyncContextManager):
            value = await manager.__aenter__()
        elif isinstance(manager, AbstractContextManager):
            value = manager.__enter__()
        else:
            raise OptionError("middleware", type(manager), _DECORATED)
        self._entered.append((manager, essential))
        return value

    async def leave(self, error: BaseException | None) -> BaseException | None:
        """Leave all, the last one first; what the run ends in now."""
        while self._entered:
            manager, essential = self._entered.pop()
            raised = await _left(manager, error)
            error = _judged(error, raised, essential=essential)
        return error


async def _left(manager: _Entered, error: BaseException | None) -> BaseException | None:
    """What leaving raises."""
    kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
    try:
        if isinstance(manager, AbstractAsyncContextManager):
            await manager.__aexit__(kind, error, trace)
        else:
            manager.__exit__(kind, error, trace)
    except BaseException as raised:  # noqa: BLE001 - the others are to be left as well
        return raised
    return None


def _judged(
    error: BaseException | None, raised: BaseException | None, *, essential: bool
) -> BaseException | None:
    """Of what the run ended in and what was raised behind it, that which counts."""
    if raised is None or raised is error:
        return error  # also if it would have been swallowed
    if not isinstance(raised, Exception):
        return raised  # a cancellation, mostly
    if error is None and essential:
        return raised  # such as a transaction that could not be committed
    if isinstance(error, Exception) and isinstance(raised, Retry | Snooze | Unrecoverable):
        return raised  # it says what is to become of a run that failed
    logger.warning("something around a run failed", exc_info=raised)
    return error
