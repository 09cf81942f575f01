"""Calls as programs of Celery make them: from threads without an event loop."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tampu.compat.celery import AsyncResult

T = TypeVar("T")
SOON: Final = 60.0


async def call(work: Callable[[], T]) -> T:
    """Call something in a thread without an event loop, as programs do."""
    return await asyncio.wait_for(asyncio.to_thread(work), SOON)


def sent(found: Any) -> AsyncResult:
    assert isinstance(found, AsyncResult)
    return found
