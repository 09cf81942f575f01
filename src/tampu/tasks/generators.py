"""Tasks that yield: their functions as functions that write a stream and return a result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing, closing
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from tampu.errors import EncodeError, OptionError
from tampu.job import current_job
from tampu.outcome import Bury
from tampu.util.options import yields_async

if TYPE_CHECKING:
    from tampu.wire.output import OutputRules

Collect: TypeAlias = Callable[[list[Any]], Any]
"""Makes the result of a job of all that it has yielded."""


def consume(
    function: Callable[..., Any], collect: Collect | None, rules: OutputRules
) -> Callable[..., Any]:
    """A function that calls a generator, writes what it yields, and returns what that makes.

    Without `collect` that is None, and nothing that was yielded is kept in memory.
    """

    @wraps(function)
    async def run(*args: Any, **kwargs: Any) -> object:  # noqa: ANN401 - the function's own
        given = _Given(collect, rules)
        try:
            async with aclosing(function(*args, **kwargs)) as generator:
                async for value in generator:
                    await given.put(value)
        except Exception:
            await given.output.flush()  # what came before the error is seen before the next attempt
            raise
        except BaseException:
            await given.output.close()
            raise
        await given.output.flush()
        return given.make_result()

    @wraps(function)
    def run_plainly(*args: Any, **kwargs: Any) -> object:  # noqa: ANN401 - the function's own
        given = _Given(collect, rules)
        try:
            with closing(function(*args, **kwargs)) as generator:
                for value in generator:
                    given.put_blocking(value)
        finally:
            given.output.flush_blocking()
        return given.make_result()

    return run if yields_async(function) else run_plainly


def check_collect(given: object) -> None:
    """Refuse anything but a function."""
    if given is not None and not callable(given):
        raise OptionError("collect", given, 'expected a function such as list or "".join')


class _Given:
    """What an attempt has yielded: written to its stream, and kept for its result."""

    def __init__(self, collect: Collect | None, rules: OutputRules) -> None:
        job = current_job()
        self.output = job.host.open_output(job, rules)
        self._collect = collect
        self._kept: list[object] = []

    async def put(self, value: object) -> None:
        try:
            await self.output.put(value)
        except EncodeError as error:  # another attempt would yield the same
            raise Bury(str(error)) from error
        self._keep(value)

    def put_blocking(self, value: object) -> None:
        try:
            self.output.put_blocking(value)
        except EncodeError as error:
            raise Bury(str(error)) from error
        self._keep(value)

    def make_result(self) -> object:
        return None if self._collect is None else self._collect(self._kept)

    def _keep(self, value: object) -> None:
        if self._collect is not None:
            self._kept.append(value)
