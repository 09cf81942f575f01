"""Apps of the tests."""

from collections.abc import Iterator

import pytest

from tampu.compat.celery import Celery
from tests.servers import RunningServer


@pytest.fixture
def app(running: RunningServer) -> Iterator[Celery]:
    """An app on the server of the test."""
    with Celery("shop", broker=running.url) as made:
        yield made


@pytest.fixture
def eager() -> Iterator[Celery]:
    """An app whose tasks run at once; it has no server."""
    with Celery("shop", broker="redis://127.0.0.1:1", task_always_eager=True) as made:
        yield made
