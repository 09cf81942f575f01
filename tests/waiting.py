"""Waiting for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

_LOOK_AGAIN_S = 0.005


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]], *, within: float, sentence: str
) -> None:
    """Return as soon as the condition holds; fail with the sentence if it does not in time."""
    limit = time.monotonic() + within
    while not await _holds(condition):
        assert time.monotonic() < limit, f"not within {within} s: {sentence}"
        await asyncio.sleep(_LOOK_AGAIN_S)


def block_until(condition: Callable[[], bool], *, within: float, sentence: str) -> None:
    """`wait_until` for code without a loop."""
    limit = time.monotonic() + within
    while not condition():
        assert time.monotonic() < limit, f"not within {within} s: {sentence}"
        time.sleep(_LOOK_AGAIN_S)


def stays(condition: Callable[[], bool], *, during: float, sentence: str) -> None:
    """Return when the condition has held all the time; fail with the sentence when it does not."""
    limit = time.monotonic() + during
    while time.monotonic() < limit:
        assert condition(), f"no longer so within {during} s: {sentence}"
        time.sleep(_LOOK_AGAIN_S)


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return await answer if inspect.isawaitable(answer) else answer
