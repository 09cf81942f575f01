"""Plain commands that inspect a server, or a stream from outside."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from tampu.errors import AccessDenied, CommandRefused
from tampu.server.connect import Server
from tampu.server.errors import server_errors
from tampu.server.lane import Lane
from tampu.server.protocol import Argument, Reply, pack
from tampu.server.redis_py import Connection, place_of
from tampu.server.streams import RawEntry

LIMIT_S: Final = 10.0
_KEYS_A_SCAN: Final = 1000
_LINE: Final = re.compile(rb"^([A-Za-z0-9_]+):(.*?)\r?$", re.MULTILINE)


class NodeServer:
    """One node of a server; it gets one command after the other."""

    def __init__(self, connection: Connection, server: Server) -> None:
        self._connection = connection
        self._server = server
        place = place_of(connection)
        self.name = server.name if place is None else f"{place[0]}:{place[1]}"

    async def call(self, *command: Argument) -> Reply:
        """The node's reply; raises a `ServerError` if it refuses or does not answer in time."""
        (reply,) = await self.call_all([command])
        return reply

    async def call_all(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        """The replies to many commands, sent together."""
        packed = b"".join(pack(*command) for command in commands)
        with server_errors(self._server.name, sent=True):
            async with asyncio.timeout(LIMIT_S):
                await self._connection.send_packed_command(packed, check_health=False)
                replies: list[Any] = [
                    await self._connection.read_response(disable_decoding=True) for _ in commands
                ]
        return replies

    async def info(self) -> dict[str, str]:
        """The reply to INFO; empty if the node does not tell."""
        try:
            reply: Any = await self.call("INFO")
        except (CommandRefused, AccessDenied):
            return {}
        return _read_info(reply)

    async def setting(self, name: str) -> str | None:
        """A setting of the node; None if it does not tell, as hosted servers do not."""
        try:
            reply: Any = await self.call("CONFIG", "GET", name)
        except (CommandRefused, AccessDenied):
            return None
        return reply[1].decode() if reply else None

    async def missing_commands(self, commands: Sequence[str]) -> list[str]:
        """The commands that the node does not know; empty if it does not tell."""
        try:
            reply: Any = await self.call("COMMAND", "INFO", *commands)
        except (CommandRefused, AccessDenied):
            return []
        return [name for name, known in zip(commands, reply, strict=True) if not known]

    async def time_ms(self) -> float:
        """The time of the node's clock."""
        reply: Any = await self.call("TIME")
        return int(reply[0]) * 1000 + int(reply[1]) / 1000

    async def keys(self, pattern: bytes, *, kind: str | None = None) -> AsyncIterator[list[bytes]]:
        """Pages of the keys that match; a key may come twice, or be deleted by then."""
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

    async def keys_without_expiry(self, keys: Sequence[bytes]) -> list[bytes]:
        """The keys that exist and never expire."""
        ttls = await self.call_all([("PTTL", key) for key in keys])
        return [key for key, ttl_ms in zip(keys, ttls, strict=True) if ttl_ms == -1]

    async def delete(self, keys: Sequence[bytes]) -> int:
        """Delete keys of one queue; returns how many existed."""
        reply: Any = await self.call("UNLINK", *keys)
        return int(reply)


@asynccontextmanager
async def nodes_of(server: Server) -> AsyncIterator[list[NodeServer]]:
    """Every node that holds keys, each with its own connection."""
    connections = await server.open_all()
    try:
        yield [NodeServer(connection, server) for connection in connections]
    finally:
        for connection in connections:
            await connection.disconnect(nowait=True)


def _read_info(reply: bytes) -> dict[str, str]:
    return {name.decode(): value.decode("utf-8", "replace") for name, value in _LINE.findall(reply)}


async def info_of(lane: Lane, section: str) -> dict[str, str]:
    """A section of INFO of the node that a lane leads to."""
    reply: Any = await lane.call("INFO", section, repeatable=True)
    return _read_info(reply)


# --- streams and sets ---------------------------------------------------------------------------


class Group(Struct, frozen=True):
    """A group of a stream, and the last entry that was delivered to it."""

    name: bytes
    pending: int
    last_id: bytes


async def groups_of(lane: Lane, stream: bytes) -> list[Group]:
    """The groups of a stream; empty if there is no such stream."""
    try:
        reply: Any = await lane.call("XINFO", "GROUPS", stream, repeatable=True)
    except CommandRefused as refusal:
        if "no such key" in refusal.problem:
            return []
        raise
    facts = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in reply]
    return [Group(each[b"name"], each[b"pending"], each[b"last-delivered-id"]) for each in facts]


async def entries_added(lane: Lane, stream: bytes) -> int | None:
    """How many entries were ever added to a stream; None if the server does not count them."""
    try:
        reply: Any = await lane.call("XINFO", "STREAM", stream, repeatable=True)
    except CommandRefused as refusal:
        if "no such key" in refusal.problem:
            return 0 if lane.server.dialect.version >= (7, 0) else None
        raise
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    count = facts.get(b"entries-added")
    return None if count is None else int(count)


async def entries_down_from(
    lane: Lane, stream: bytes, *, start: bytes = b"+", down_to: bytes = b"-", count: int
) -> list[RawEntry]:
    """Entries from an id down to another, newest first; b"(ID" leaves out that one."""
    command = ("XREVRANGE", stream, start, down_to, "COUNT", count)
    reply: Any = await lane.call(*command, repeatable=True)
    return list(reply)


def last_delivered(groups: Sequence[Group]) -> bytes:
    """The last entry that any group has been given; the entries after it are waiting."""
    return max((each.last_id for each in groups), key=_order_of, default=b"0-0")


def was_delivered(groups: Sequence[Group], entry_id: bytes) -> bool:
    """Whether any group has been given an entry."""
    return _order_of(entry_id) <= _order_of(last_delivered(groups))


def _order_of(entry_id: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split(b"-")))


class EntryHolder(Struct, frozen=True):
    """The consumer that holds an entry, and since when."""

    consumer: bytes
    idle_ms: int
    deliveries: int


async def holders_from(
    lane: Lane, stream: bytes, group: bytes, *, start: bytes, count: int
) -> list[tuple[bytes, EntryHolder]]:
    """Pending entries of a group from an id on, with the consumers that hold them."""
    reply: Any = await lane.call("XPENDING", stream, group, start, "+", count, repeatable=True)
    return [(bytes(each[0]), EntryHolder(*each[1:])) for each in reply]


async def delayed_from(
    lane: Lane, delayed: bytes, place: int, *, count: int, latest_first: bool
) -> list[tuple[bytes, int]]:
    """Members of the delayed set with their due times, from a place in their order on."""
    order = ("REV",) if latest_first else ()
    command = ("ZRANGE", delayed, place, place + count - 1, *order, "WITHSCORES")
    reply: Any = await lane.call(*command, repeatable=True)
    return [
        (bytes(member), round(float(score)))
        for member, score in zip(reply[::2], reply[1::2], strict=True)
    ]


async def delayed_since(
    lane: Lane, delayed: bytes, since_ms: int | None, *, skip: int, count: int
) -> list[tuple[bytes, int]]:
    """Members of the delayed set that are due then or later, without the first `skip`."""
    start = "-inf" if since_ms is None else since_ms
    bounds = (start, "+inf", "WITHSCORES", "LIMIT", skip, count)
    reply: Any = await lane.call("ZRANGEBYSCORE", delayed, *bounds, repeatable=True)
    return [
        (bytes(member), round(float(score)))
        for member, score in zip(reply[::2], reply[1::2], strict=True)
    ]


async def any_exists(lane: Lane, keys: Sequence[bytes]) -> bool:
    """Whether any of these keys of a queue exists."""
    return bool(await lane.call("EXISTS", *keys, repeatable=True))


async def holder_of(
    lane: Lane, stream: bytes, *, group: bytes, entry_id: bytes
) -> EntryHolder | None:
    """The consumer of a group that holds an entry; None if it is not pending."""
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
    """When the first delayed job is due; None if there is none."""
    reply: Any = await lane.call("ZRANGE", delayed, 0, 0, "WITHSCORES", repeatable=True)
    return round(float(reply[1])) if reply else None


async def scored_members(lane: Lane, key: bytes) -> list[tuple[bytes, float]]:
    """All members of a sorted set with their scores, the lowest first; for small sets."""
    reply: Any = await lane.call("ZRANGE", key, 0, -1, "WITHSCORES", repeatable=True)
    return [(member, float(score)) for member, score in zip(reply[::2], reply[1::2], strict=True)]
