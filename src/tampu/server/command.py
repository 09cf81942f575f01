"""A command as the server's protocol writes it, and what comes back."""

from typing import TypeAlias

import hiredis

Argument: TypeAlias = "bytes | str | int"
Reply: TypeAlias = "int | bytes | list[Reply] | None"


def pack(*command: Argument) -> bytes:
    """One command, ready to be written."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub knows one
    return packed
