"""Loops and children for the tests."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from tampu.consumer.handler import Function
from tampu.consumer.runners.children import Children
from tests.unit.consumer.runners.child_runs import Make

_ON_BOTH = {"test_children.py", "test_children_ending.py"}


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of child processes run on both loops that users have; the others on asyncio's own."""
    del config
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return loops if item.path.name in _ON_BOTH else {"asyncio": loops["asyncio"]}


@pytest.fixture
async def make(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    """Make children for a handler; all are closed after the test."""
    # A child imports the main module again, and pytest is a large one.
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    async with contextlib.AsyncExitStack() as stack:

        def made(function: Function, *, limit: int = 1) -> Children:
            made = Children(function, limit=limit)
            stack.push_async_callback(made.close)
            return made

        yield made


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "pid"
