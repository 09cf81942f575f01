"""The plugin for pytest: the fixture `tampu`. Registered by the package; imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tampu.testing.kit import Kit


@pytest.fixture(scope="session")
def tampu_url() -> Iterator[str]:
    """The URL of the server for tests: an embedded one of this process, until the session ends.

    Override it in your `conftest.py` to use another one. Tests delete everything in its database.
    """
    from tampu.testing.server import start_server, stop_server  # noqa: PLC0415 - only if needed

    yield start_server()
    stop_server()


@pytest.fixture
def tampu(tampu_url: str) -> Kit:
    """The test kit: `async with tampu.use(app) as jobs:`."""
    from tampu.testing.kit import Kit  # noqa: PLC0415 - only if needed

    return Kit(tampu_url)
