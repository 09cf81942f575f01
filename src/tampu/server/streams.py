"""Plain commands on the keys of a queue, with typed replies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from tampu.errors import AccessDenied, CommandRefused, ConnectionLost, OptionError, QueueFull
from tampu.server.protocol import Ids, pack
from tampu.util.clock import frozen_ms
from tampu.util.lifecycle import ignore_outcome
from tampu.wire.keys import escape_glob

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument, Reply
    from tampu.wire.keys import QueueKeys

RawEntry: TypeAlias = "tuple[bytes, list[bytes] | None]"
"""An id and a flat list of fields and values; None if the entry was deleted while pending."""

NO_GROUP = "NOGROUP"
MAX_ACKS = 1000
_PAGE = 1000


class Pending(Struct, frozen=True, gc=False):
    """One entry that a consumer holds."""

    entry_id: bytes
    idle_ms: int
    deliveries: int


class ConsumerInfo(Struct, frozen=True):
    """One consumer of a group."""

    name: bytes
    pending: int
    idle_ms: int


async def create_group(lane: Lane, stream: bytes, group: bytes) -> bool:
    """Create a group, and its stream if needed; False if the group existed.

    A server at its memory limit refuses the command, whether or not the group exists.
    """
    try:
        await lane.call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM", repeatable=True)
    except QueueFull as refusal:
        try:
            await lane.call("XPENDING", stream, group, repeatable=True)
        except CommandRefused:
            raise refusal from None
        return False  # it existed
    except CommandRefused as refusal:
        if refusal.code == "BUSYGROUP":
            return False
        raise
    except ConnectionLost as lost:
        if "BUSYGROUP" in lost.problem:  # created when it was sent first, or earlier
            return False
        raise
    return True


async def create_consumer(lane: Lane, stream: bytes, group: bytes, *, consumer: bytes) -> None:
    """Create a consumer, so that others see it before it has read anything.

    At its memory limit the server refuses that; then its first read creates it.
    """
    with suppress(QueueFull):
        await lane.call("XGROUP", "CREATECONSUMER", stream, group, consumer, repeatable=True)


def pack_read(stream: bytes, *, group: bytes, consumer: bytes, count: int, block_ms: int) -> bytes:
    """A packed read of new entries; `read_entries` takes its reply."""
    head = (b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", count)
    wait: tuple[Argument, ...] = (b"BLOCK", block_ms) if block_ms else ()
    return pack(*head, *wait, b"STREAMS", stream, b">")


def read_entries(reply: Reply) -> Any:  # noqa: ANN401 - list[RawEntry], straight from the server
    """The entries in the reply to a read of one stream."""
    return reply[0][1] if reply else ()  # type: ignore[index]


async def ack_plainly(
    lane: Lane, entry_ids: Sequence[bytes], *, stream: bytes, group: bytes
) -> int:
    """Acknowledge and delete 1 to 1000 finished entries; returns how many were pending.

    Sent again after a lost reply, and then counts only what is left. A server without XACKDEL gets
    two commands, XDEL first: if only that is carried out, the entry stays pending without fields,
    whoever takes it over drops it, and nothing runs twice. A script would do both in one step, but
    takes a sixth more of the server's time.
    """
    if not 1 <= len(entry_ids) <= MAX_ACKS:
        raise OptionError("entry_ids", f"{len(entry_ids)} ids", f"expected 1 to {MAX_ACKS} ids")
    ids = Ids(entry_ids)
    if lane.server.dialect.ack_and_delete:
        command = ids.pack_after(b"XACKDEL", stream, group, b"IDS", ids.count)
        codes: Any = await lane.send(command, repeatable=True)
        return int(codes.count(1))
    deleting = lane.send(ids.pack_after(b"XDEL", stream), repeatable=True)
    acking = lane.send(ids.pack_after(b"XACK", stream, group), repeatable=True)
    acking.add_done_callback(ignore_outcome)
    await deleting
    acked: Any = await acking
    return int(acked)


async def pending_of(lane: Lane, stream: bytes, *, group: bytes, consumer: bytes) -> list[Pending]:
    """The entries that a consumer holds, oldest first."""
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
    """The fields of each entry, in order; None for an entry that does not exist."""
    calls = [
        lane.send(pack("XRANGE", stream, entry_id, entry_id), repeatable=True)
        for entry_id in entry_ids
    ]
    replies: list[Any] = [await call for call in calls]
    return [reply[0][1] if reply else None for reply in replies]


async def consumers(lane: Lane, stream: bytes, group: bytes) -> list[ConsumerInfo]:
    """The consumers of a group; empty if there is no such group."""
    try:
        reply: Any = await lane.call("XINFO", "CONSUMERS", stream, group, repeatable=True)
    except CommandRefused as refusal:
        if refusal.code == NO_GROUP or "no such key" in refusal.problem:
            return []
        raise
    facts = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in reply]
    return [ConsumerInfo(each[b"name"], each[b"pending"], each[b"idle"]) for each in facts]


async def last_id(lane: Lane, stream: bytes, *, limit_s: float | None = None) -> bytes:
    """The id of the newest entry, to read from there on; b"0-0" for an empty stream."""
    command = ("XREVRANGE", stream, "+", "-", "COUNT", 1)
    newest: Any = await lane.call(*command, repeatable=True, limit_s=limit_s)
    return newest[0][0] if newest else b"0-0"


async def read_after(
    lane: Lane, stream: bytes, after: bytes, *, count: int, block_ms: int
) -> list[RawEntry]:
    """Entries after an id, as soon as there are any; none when the time is up.

    Not sent again after a lost connection: whoever follows a stream must know of the gap.
    """
    reply = await lane.call(
        "XREAD",
        "COUNT",
        count,
        "BLOCK",
        block_ms,
        "STREAMS",
        stream,
        after,
        block_s=block_ms / 1000,
    )
    return list(read_entries(reply))


async def read_streams(
    lane: Lane, after: Mapping[bytes, bytes], *, count: int, block_s: float
) -> dict[bytes, list[RawEntry]]:
    """Entries of several streams after an id of each, as soon as there are any.

    Not sent again after a lost connection: whoever follows a stream must know of the gap.
    """
    head = ("XREAD", "COUNT", count, "BLOCK", round(block_s * 1000), "STREAMS")
    reply: Any = await lane.call(*head, *after, *after.values(), block_s=block_s)
    return {bytes(key): entries for key, entries in reply or ()}


async def entries_from(
    lane: Lane, stream: bytes, *, start: bytes = b"-", count: int
) -> list[RawEntry]:
    """Entries from an id on, oldest first; b"(ID" starts after that id."""
    reply: Any = await lane.call("XRANGE", stream, start, "+", "COUNT", count, repeatable=True)
    return list(reply)


async def values_of(
    lane: Lane, keys: Sequence[bytes], *, limit_s: float | None = None
) -> list[bytes | None]:
    """The values of keys of one queue."""
    reply: Any = await lane.call("MGET", *keys, repeatable=True, limit_s=limit_s)
    return list(reply)


async def store_for(lane: Lane, key: bytes, value: bytes, *, ttl_ms: int) -> None:
    """Let a key hold a value for that long."""
    await lane.call("SET", key, value, "PX", ttl_ms, repeatable=True)


async def delete_entries(lane: Lane, stream: bytes, entry_ids: Sequence[bytes]) -> int:
    """Delete entries; returns how many existed. Not sent again: the number would be wrong."""
    reply: Any = await lane.call("XDEL", stream, *entry_ids)
    return int(reply)


async def trim_before(lane: Lane, stream: bytes, entry_id: bytes) -> int:
    """Delete the entries before an id; returns how many. Not sent again, for the number."""
    reply: Any = await lane.call("XTRIM", stream, "MINID", "=", entry_id)
    return int(reply)


async def drop_all(lane: Lane, stream: bytes) -> int:
    """Delete every entry; returns how many. Not sent again, for the number."""
    reply: Any = await lane.call("XTRIM", stream, "MAXLEN", "=", 0)
    return int(reply)


async def score_of(lane: Lane, key: bytes, member: bytes) -> float | None:
    """The score of a member of a sorted set; None if it is not a member."""
    reply: Any = await lane.call("ZSCORE", key, member, repeatable=True)
    return None if reply is None else float(reply)


async def scan_members(
    lane: Lane, key: bytes, cursor: bytes, *, holding: bytes = b"", count: int
) -> tuple[bytes, list[bytes]]:
    """The next cursor, b"0" at the end, and some members that contain the text `holding`."""
    pattern = b"*%b*" % escape_glob(holding)
    match = ("MATCH", pattern) if holding else ()
    reply: Any = await lane.call("ZSCAN", key, cursor, *match, "COUNT", count, repeatable=True)
    return bytes(reply[0]), reply[1][::2]


async def wait_for_wakeup(lane: Lane, keys: Iterable[bytes], *, wait_s: float) -> bytes | None:
    """The key that a wakeup arrives on within that time; it reaches one waiter only."""
    reply: Any = await lane.call("BLPOP", *keys, str(wait_s), block_s=wait_s)
    return None if reply is None else bytes(reply[0])


async def first_score(lane: Lane, key: bytes) -> bytes | None:
    """The lowest score of a sorted set, as text; None if the set is empty."""
    reply: Any = await lane.call("ZRANGE", key, 0, 0, "WITHSCORES", repeatable=True)
    return bytes(reply[1]) if reply else None


async def server_time_ms(lane: Lane) -> int:
    """The time of the server's clock."""
    return read_time_ms(await lane.call("TIME", repeatable=True))


def read_time_ms(reply: Any) -> int:  # noqa: ANN401 - straight from the server
    """The time in the reply to TIME; in the test kit, the time at which all clocks stand still."""
    frozen, (seconds, micros) = frozen_ms(), reply
    return int(seconds) * 1000 + int(micros) // 1000 if frozen is None else frozen


# --- sizes --------------------------------------------------------------------------------------


class Sizes(Struct, frozen=True):
    """The sizes of a queue, and how much of its stream is pending in a group."""

    stream: int
    pending: int
    delayed: int
    dead: int
    schedules: int
    lines: int  # jobs that wait in front of the stream


async def sizes(lane: Lane, keys: QueueKeys, group: bytes) -> Sizes:
    """All sizes of a queue at about the same time; a missing group has nothing pending."""
    commands = [
        ("XLEN", keys.stream),
        ("ZCARD", keys.delayed),
        ("XLEN", keys.dead),
        ("ZCARD", keys.repeat),
        ("ZCARD", keys.paused),
        ("HGET", keys.gate, "waiting"),
    ]
    calls = [lane.send(pack(*command), repeatable=True) for command in commands]
    pending = lane.send(pack("XPENDING", keys.stream, group), repeatable=True)
    try:
        found = [int(await call or 0) for call in calls]  # type: ignore[arg-type]
        stream, delayed, dead, *schedules, lines = found
        pending_count = await _pending_count(pending)
        return Sizes(stream, pending_count, delayed, dead, sum(schedules), lines)
    finally:
        for call in (*calls, pending):
            call.add_done_callback(ignore_outcome)


async def _pending_count(call: asyncio.Future[Reply]) -> int:
    try:
        reply: Any = await call
    except CommandRefused as refusal:
        if refusal.code == NO_GROUP:
            return 0
        raise
    return int(reply[0])


# --- copies -------------------------------------------------------------------------------------


class Copies(Enum):
    """Where a job must be stored besides the server's memory."""

    FSYNC = "fsync"  # on the server's disk
    REPLICA = "replica"  # in the memory of another server


class Confirmation(Enum):
    """The answer to whether writes are safe."""

    SAFE = auto()
    TOO_FEW = auto()  # not within the time given
    FORGOTTEN = auto()  # the key is missing: the server has lost the writes
    ELSEWHERE = auto()  # another node carried out the write: ask again


async def confirm(
    lane: Lane, key: bytes, copies: Copies, *, keep_ms: int, wait_s: float
) -> Confirmation:
    """Whether all earlier writes are safe; `key` is one that they wrote and that expires.

    The server waits for the last write of the same connection. So this sends a write and then the
    question. Raises `ConnectionLost` if the connection breaks.
    """
    touched = lane.send(pack("PEXPIRE", key, keep_ms), repeatable=True)
    touched.add_done_callback(ignore_outcome)
    reply: Any = await lane.send(_pack_wait(copies, wait_s), block_s=wait_s)
    if not touched.done():
        # Replies come in order, so the node that answered did not carry out the write.
        return Confirmation.ELSEWHERE
    if not await touched:
        return Confirmation.FORGOTTEN
    confirmed = reply[0] if copies is Copies.FSYNC else reply
    return Confirmation.SAFE if confirmed >= 1 else Confirmation.TOO_FEW


async def probe_copies(lane: Lane, copies: Copies) -> None:
    """Raise `CommandRefused` if the server cannot confirm copies of this kind."""
    await lane.send(_pack_wait(copies, 0.001), block_s=0.001)


def _pack_wait(copies: Copies, wait_s: float) -> bytes:
    wait_ms = max(1, int(wait_s * 1000))  # 0 would wait forever
    if copies is Copies.FSYNC:
        return pack("WAITAOF", 1, 0, wait_ms)
    return pack("WAIT", 1, wait_ms)


def delete(lane: Lane, keys: Sequence[bytes]) -> asyncio.Future[Reply]:
    """Delete keys of one queue; missing keys do not matter."""
    return lane.send(Ids(keys).pack_after(b"UNLINK"), repeatable=True)


def note_place(lane: Lane, marker: bytes, entry_id: bytes) -> asyncio.Future[Reply]:
    """Let the marker of a job's id, if it still exists, hold the job's entry."""
    return lane.send(pack("SET", marker, entry_id, "XX", "KEEPTTL"), repeatable=True)


async def ttl_ms(lane: Lane, key: bytes) -> int:
    """The time until a key expires; below 0 if it never does or does not exist."""
    reply: Any = await lane.call("PTTL", key, repeatable=True)
    return int(reply)


async def extend(lane: Lane, key: bytes, *, ttl_ms: int) -> bool:
    """Let a key expire later; False if it has expired."""
    return bool(await lane.call("PEXPIRE", key, ttl_ms, repeatable=True))


async def is_connected(lane: Lane, client_id: int) -> bool | None:
    """Whether the server has a connection of that id; None if it does not tell."""
    try:
        clients: Any = await lane.call("CLIENT", "LIST", "ID", client_id, repeatable=True)
    except (CommandRefused, AccessDenied):
        return None
    return bytes(clients).startswith(b"id=%d " % client_id)
