"""Each server is recognised."""

import pytest

from tampu.server.connect import Server
from tampu.server.dialect import Product
from tests.servers import Backend

pytestmark = pytest.mark.every_version


async def test_product_version_and_newer_commands_are_detected(
    server: Server, backend: Backend
) -> None:
    dialect = server.dialect
    assert dialect.version[0] == backend.version[0]
    assert (dialect.product is Product.VALKEY) == backend.name.startswith("valkey")
    assert dialect.script_flags == (dialect.version >= (7, 0))
    assert dialect.wait_for_fsync == (dialect.version >= (7, 2))
    assert dialect.ack_and_delete == (backend.name == "redis8")
    assert dialect.read_and_claim == (backend.name == "redis8")
    assert dialect.add_once == (backend.name == "redis8")
