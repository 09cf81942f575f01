"""Plain commands that look at a server as a whole, or at a stream from outside."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct
from redis.asyncio.connection import AbstractConnection

from tampu.errors import AccessDenied, CommandRefused
from tampu.server.connect import Server
from tampu.server.errors import server_errors
from tampu.server.lane import Lane
from tampu.server.protocol import Argument, Reply, pack
from tampu.server.streams import RawEntry

LIMIT_S: Final = 10.0
_KEYS_A_SCAN: Final = 1000
_LINE: Final = re.compile(rb"^([A-Za-z0-9_]+):(.*?)\r?$", re.MULTILINE)


class Node:
    """One node of a server, asked one command after the other."""

    def __init__(self, connection: AbstractConnection, server: Server) -> None:
        self._connection = connection
        self._server = server
        host = getattr(connection, "host", None)
        self.name = f"{host}:{getattr(connection, 'port', '')}" if host else server.name

    async def call(self, *command: Argument) -> Reply:
        """What the node answers; raises a `ServerError` if it will not, or not in time."""
        (reply,) = await self.call_all([command])
        return reply

    async def call_all(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        """The answers to many commands, sent in one go."""
        packed = b"".join(pack(*command) for command in commands)
        with server_errors(self._server.name, sent=True):
            async with asyncio.timeout(LIMIT_S):
                await self._connection.send_packed_command(packed, check_health=False)
                replies: list[Any] = [
                    await self._connection.read_response(disable_decoding=True) for _ in commands
                ]
        return replies

    async def info(self) -> dict[str, str]:
        """What the node tells of itself; empty if it will not."""
        try:
            told: Any = await self.call("INFO")
        except (CommandRefused, AccessDenied):
            return {}
        return {
            name.decode(): value.decode("utf-8", "replace") for name, value in _LINE.findall(told)
        }

    async def setting(self, name: str) -> str | None:
        """A setting of the node; None if it will not say, as in hosted servers."""
        try:
            told: Any = await self.call("CONFIG", "GET", name)
        except (CommandRefused, AccessDenied):
            return None
        return told[1].decode() if told else None

    async def missing(self, commands: Sequence[str]) -> list[str]:
        """Those of the commands that the node does not know; none if it will not say."""
        try:
            told: Any = await self.call("COMMAND", "INFO", *commands)
        except (CommandRefused, AccessDenied):
            return []
        return [name for name, known in zip(commands, told, strict=True) if not known]

    async def time_ms(self) -> float:
        """What the node's clock says."""
        told: Any = await self.call("TIME")
        return int(told[0]) * 1000 + int(told[1]) / 1000

    async def keys(self, pattern: bytes, *, kind: str | None = None) -> AsyncIterator[list[bytes]]:
        """The keys that match, page by page; some may come twice, or be gone by then."""
        cursor = b"0"
        of_kind = () if kind is None else ("TYPE", kind)
        while True:
            command = ("SCAN", cursor, "MATCH", pattern, "COUNT", _KEYS_A_SCAN, *of_kind)
            reply: Any = await self.call(*command)
            cursor = bytes(reply[0])
            if reply[1]:
                yield reply[1]
            if cursor == b"0":
                return

    async def endless(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those of the keys that are there and have no end."""
        left = await self.call_all([("PTTL", key) for key in keys])
        return [key for key, ms in zip(keys, left, strict=True) if ms == -1]

    async def remove(self, keys: Sequence[bytes]) -> int:
        """Remove keys of one queue; how many were there."""
        reply: Any = await self.call("UNLINK", *keys)
        return int(reply)


@asynccontextmanager
async def nodes_of(server: Server) -> AsyncIterator[list[Node]]:
    """Every node that holds keys, each with a connection of its own."""
    connections = await server.open_all()
    try:
        yield [Node(connection, server) for connection in connections]
    finally:
        for connection in connections:
            await connection.disconnect(nowait=True)


# --- streams and sets ---------------------------------------------------------------------------


class Group(Struct, frozen=True):
    """One group of a stream, and the last entry that one of its consumers was given."""

    name: bytes
    pending: int
    last_id: bytes


async def groups_of(lane: Lane, stream: bytes) -> list[Group]:
    """The groups of a stream; none if there is no such stream."""
    try:
        reply: Any = await lane.call("XINFO", "GROUPS", stream, repeatable=True)
    except CommandRefused as refusal:
        if "no such key" in refusal.problem:
            return []
        raise
    facts = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in reply]
    return [Group(each[b"name"], each[b"pending"], each[b"last-delivered-id"]) for each in facts]


async def added_to(lane: Lane, stream: bytes) -> int | None:
    """How many entries a stream was ever given; None where the server does not count them."""
    try:
        reply: Any = await lane.call("XINFO", "STREAM", stream, repeatable=True)
    except CommandRefused as refusal:
        if "no such key" in refusal.problem:
            return 0 if lane.server.dialect.version >= (7, 0) else None
        raise
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    count = facts.get(b"entries-added")
    return None if count is None else int(count)


async def newest_entries(
    lane: Lane, stream: bytes, *, down_to: bytes = b"-", count: int
) -> list[RawEntry]:
    """The newest entries of a stream, not older than an id; newest first."""
    reply: Any = await lane.call("XREVRANGE", stream, "+", down_to, "COUNT", count, repeatable=True)
    return list(reply)


async def exist(lane: Lane, keys: Sequence[bytes]) -> bool:
    """Whether one of the keys of a queue is there."""
    return bool(await lane.call("EXISTS", *keys, repeatable=True))


class EntryHolder(Struct, frozen=True):
    """Who holds an entry, and for how long."""

    consumer: bytes
    idle_ms: int
    deliveries: int


async def holder_of(
    lane: Lane, stream: bytes, *, group: bytes, entry_id: bytes
) -> EntryHolder | None:
    """Who of a group holds an entry; None if nobody does."""
    try:
        reply: Any = await lane.call(
            "XPENDING", stream, group, entry_id, entry_id, 1, repeatable=True
        )
    except CommandRefused as refusal:
        if refusal.code == "NOGROUP":
            return None
        raise
    return EntryHolder(*reply[0][1:]) if reply else None


async def first_due_ms(lane: Lane, delayed: bytes) -> int | None:
    """When the first of the delayed jobs is due."""
    reply: Any = await lane.call("ZRANGE", delayed, 0, 0, "WITHSCORES", repeatable=True)
    return round(float(reply[1])) if reply else None


async def take_delayed(lane: Lane, delayed: bytes, *, count: int) -> list[bytes]:
    """Take delayed members out, the first due first. Not sent again: it would take others."""
    reply: Any = await lane.call("ZPOPMIN", delayed, count)
    return list(reply[::2])
