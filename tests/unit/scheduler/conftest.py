"""Fixtures of the tests of running schedulers."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tests.waiting import wait_until


@pytest.fixture
async def no_leftovers() -> AsyncIterator[None]:
    """Assert that no task and no thread of a scheduler is left after the test."""
    yield
    names = [each.get_name() for each in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith("tampu")]
    await wait_until(_has_no_thread, within=60, sentence="the threads of blocking functions end")


def _has_no_thread() -> bool:
    return not any(each.name.startswith("tampu-task") for each in threading.enumerate())
