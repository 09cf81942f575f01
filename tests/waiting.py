"""Waiting for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator

_LOOK_AGAIN_S = 0.005
_LOOK_AGAIN_LATER_S = 0.03


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]], *, within: float, sentence: str
) -> None:
    """Return as soon as the condition holds; fail with the sentence if it does not in time."""
    limit, pauses = time.monotonic() + within, _pauses()
    while not await _holds(condition):
        assert time.monotonic() < limit, f"not within {within} s: {sentence}"
        await asyncio.sleep(next(pauses))


def block_until(condition: Callable[[], bool], *, within: float, sentence: str) -> None:
    """`wait_until` for code without a loop."""
    limit, pauses = time.monotonic() + within, _pauses()
    while not condition():
        assert time.monotonic() < limit, f"not within {within} s: {sentence}"
        time.sleep(next(pauses))


def stays(condition: Callable[[], bool], *, during: float, sentence: str) -> None:
    """Return when the condition has held all the time; fail with the sentence when it does not."""
    limit = time.monotonic() + during
    while time.monotonic() < limit:
        assert condition(), f"no longer so within {during} s: {sentence}"
        time.sleep(_LOOK_AGAIN_S)


def _pauses() -> Iterator[float]:
    """Between two looks: short at first, longer where looking takes its part of the machine."""
    pause_s = _LOOK_AGAIN_S
    while True:
        yield pause_s
        pause_s = min(1.1 * pause_s, _LOOK_AGAIN_LATER_S)


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return await answer if inspect.isawaitable(answer) else answer


def stack_of(task: "asyncio.Task[object]") -> list[str]:
    """Where a task waits, from its outermost coroutine to the innermost."""
    awaited: object = task.get_coro()
    found = []
    while inspect.iscoroutine(awaited) and awaited.cr_frame is not None:
        found.append(f"{awaited.__qualname__}:{awaited.cr_frame.f_lineno}")
        awaited = awaited.cr_await
    return [*found, repr(awaited)]
