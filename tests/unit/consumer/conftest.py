"""Loops for the tests."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of child processes run on both loops that users have; the others on asyncio's own."""
    del config
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return loops if item.path.name == "test_children.py" else {"asyncio": loops["asyncio"]}
