"""Values that JSON has no room for travel as the hex of their MessagePack."""

from typing import Any

import msgpack


def packed(value: object) -> str:
    """The value as text; values are the same if, and only if, their texts are."""
    data: bytes = msgpack.packb(value, use_bin_type=True)
    return data.hex()


def unpacked(text: str) -> Any:  # noqa: ANN401 - any value
    """The value of a text."""
    return msgpack.unpackb(bytes.fromhex(text), raw=False, strict_map_key=False)
