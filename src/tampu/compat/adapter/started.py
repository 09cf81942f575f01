"""Calls that begin at once, as those of a compiled package do."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_running: set[asyncio.Task[Any]] = set()  # the loop itself holds its tasks but loosely


def started(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, asyncio.Future[T]]:
    """Have a call begin when it is made, and give a future: who makes it need not await it."""

    @wraps(call)
    def begin(*args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        task = loop.create_task(call(*args, **kwargs), name=f"tampu-compat-{call.__name__}")
        _running.add(task)
        task.add_done_callback(_running.discard)
        return task

    return begin
