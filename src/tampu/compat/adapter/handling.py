"""Handlers written for chasquimq, as tampu runs them."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar

from tampu.consumer.handler import Function
from tampu.functions import is_async
from tampu.job import Job

J = TypeVar("J")


def adapted(
    handler: Callable[[J], Awaitable[Any]],
    *,
    job_of: Callable[[Job[Any]], J],
    kept: Callable[[object], object],
) -> Function:
    """A function that gets a job of tampu and gives what tampu keeps.

    What is no async function runs in a thread, as everywhere in tampu.
    """

    async def awaited(job: Job[Any]) -> object:
        return kept(await handler(job_of(job)))

    async def finished(value: Awaitable[object]) -> object:
        return kept(await value)

    def called(job: Job[Any]) -> object:
        value: object = handler(job_of(job))
        return finished(value) if isawaitable(value) else kept(value)

    return awaited if is_async(handler) else called
