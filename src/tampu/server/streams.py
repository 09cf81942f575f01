"""Plain commands on the keys of a queue, and what their replies mean."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from tampu.errors import CommandRefused
from tampu.server.command import Argument, Reply, pack
from tampu.server.lane import Lane

RawEntry: TypeAlias = "tuple[bytes, list[bytes] | None]"
"""An entry's id and its fields in turn; None if it was deleted while it was pending."""

NO_GROUP = "NOGROUP"
_PAGE = 1000


class Pending(Struct, frozen=True, gc=False):
    """One entry that a consumer holds."""

    entry_id: bytes
    idle_ms: int
    deliveries: int


class Consumer(Struct, frozen=True):
    """One consumer of a group."""

    name: bytes
    pending: int
    idle_ms: int


async def create_group(lane: Lane, stream: bytes, group: bytes) -> bool:
    """Make the group, and the stream if need be; whether it was not there yet."""
    try:
        await lane.call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM", repeatable=True)
    except CommandRefused as refusal:
        if refusal.code == "BUSYGROUP":
            return False
        raise
    return True


def packed_read(
    stream: bytes, *, group: bytes, consumer: bytes, count: int, block_ms: int
) -> bytes:
    """A read of new entries, packed; its reply is for `read_entries`."""
    who = (b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", count)
    wait: tuple[Argument, ...] = (b"BLOCK", block_ms) if block_ms else ()
    return pack(*who, *wait, b"STREAMS", stream, b">")


def read_entries(reply: Reply) -> Any:  # noqa: ANN401 - list[RawEntry], straight from the server
    """The entries in a reply to a read of one stream; none for an empty one."""
    return reply[0][1] if reply else ()  # type: ignore[index]


async def pending_of(lane: Lane, stream: bytes, *, group: bytes, consumer: bytes) -> list[Pending]:
    """All that a consumer holds, oldest first."""
    found: list[Pending] = []
    start = b"-"
    while True:
        page: Any = await lane.call(
            "XPENDING", stream, group, start, "+", _PAGE, consumer, repeatable=True
        )
        found += [Pending(entry_id, idle_ms, count) for entry_id, _, idle_ms, count in page]
        if len(page) < _PAGE:
            return found
        start = b"(" + page[-1][0]


async def fields_of(
    lane: Lane, stream: bytes, entry_ids: Sequence[bytes]
) -> list[list[bytes] | None]:
    """The fields of each entry, in order; None for one that is not there."""
    calls = [
        lane.send(pack("XRANGE", stream, entry_id, entry_id), repeatable=True)
        for entry_id in entry_ids
    ]
    replies: list[Any] = [await call for call in calls]
    return [reply[0][1] if reply else None for reply in replies]


async def consumers(lane: Lane, stream: bytes, group: bytes) -> list[Consumer]:
    """The group's consumers; none if there is no such group."""
    try:
        reply: Any = await lane.call("XINFO", "CONSUMERS", stream, group, repeatable=True)
    except CommandRefused as refusal:
        if refusal.code == NO_GROUP or "no such key" in refusal.problem:
            return []
        raise
    facts = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in reply]
    return [Consumer(each[b"name"], each[b"pending"], each[b"idle"]) for each in facts]


async def last_id(lane: Lane, stream: bytes) -> bytes:
    """The id of the newest entry, to read on from; b"0-0" for an empty stream."""
    newest: Any = await lane.call("XREVRANGE", stream, "+", "-", "COUNT", 1, repeatable=True)
    return newest[0][0] if newest else b"0-0"


async def read_after(
    lane: Lane, stream: bytes, after: bytes, *, count: int, block_ms: int
) -> list[RawEntry]:
    """Entries behind an id, as soon as there are any; none when the time is up."""
    reply = await lane.call(
        "XREAD",
        "COUNT",
        count,
        "BLOCK",
        block_ms,
        "STREAMS",
        stream,
        after,
        repeatable=True,
        block_s=block_ms / 1000,
    )
    return list(read_entries(reply))


async def entries_between(
    lane: Lane, stream: bytes, *, start: bytes = b"-", count: int
) -> list[RawEntry]:
    """Entries from an id on, oldest first; b"(ID" starts behind it."""
    reply: Any = await lane.call("XRANGE", stream, start, "+", "COUNT", count, repeatable=True)
    return list(reply)


async def values_of(lane: Lane, keys: Sequence[bytes]) -> list[bytes | None]:
    """What keys of one queue hold."""
    reply: Any = await lane.call("MGET", *keys, repeatable=True)
    return list(reply)
