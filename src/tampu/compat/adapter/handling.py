"""Handlers written for chasquimq, as tampu runs them."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar

from tampu.consumer.handler import Function
from tampu.job import Job
from tampu.util.functions import is_async

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
        return kept(await _in_its_own_task(handler(job_of(job))))

    async def finished(value: Awaitable[object]) -> object:
        return kept(await _in_its_own_task(value))

    def called(job: Job[Any]) -> object:
        value: object = handler(job_of(job))
        return finished(value) if isawaitable(value) else kept(value)

    return awaited if is_async(handler) else called


async def _in_its_own_task(run: Awaitable[object]) -> object:
    """What a handler gives; its context variables and its current task are its own.

    tampu's workers run one handler after another in the same task, and programs written for
    chasquimq count on a new one: what they set for one job must not be there for the next.
    """
    value, error = await asyncio.create_task(_ended(run), name="tampu-compat-job")
    if error is not None:
        raise error
    return value


async def _ended(run: Awaitable[object]) -> tuple[object, BaseException | None]:
    """What it gave and what it raised: out of a task, an exit would take the whole loop along."""
    try:
        return await run, None
    except BaseException as error:  # noqa: BLE001 - border: raised again by who waits for it
        return None, error
