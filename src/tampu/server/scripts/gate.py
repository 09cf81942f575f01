"""The gate of a queue: the scripts that let jobs through, change limits, and look at lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tampu.server.scripts.script import Script, as_number
from tampu.wire.control import KEPT_MS
from tampu.wire.fields import decode_text

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument
    from tampu.wire.keys import QueueKeys

_ADMIT: Final = Script("admit")
_AUDIT: Final = Script("audit")
_CHARGE: Final = Script("charge")
_NOTE_OUTCOMES: Final = Script("note_outcomes")
_LIST_LINES: Final = Script("list_lines")
_PURGE_LINE: Final = Script("purge_line")
_REGATE: Final = Script("regate")
_SEARCH_LINES: Final = Script("search_lines")
_TUNE: Final = Script("tune")
_LINES_A_CALL: Final = 5_000  # some 2 ms of the server
_SEARCHED_A_CALL: Final = 4_000  # some 4 ms


class Admitted(Struct, frozen=True):
    """How many jobs were let through, and when something that is closed opens next."""

    count: int
    next_in_ms: int | None
    first: bytes | None


async def admit(
    lane: Lane, keys: QueueKeys, *, consumer: bytes = b"", room: int = 0
) -> Admitted | None:
    """Say how many entries a worker can have, and let jobs through; None if there is no gate."""
    reply: Any = await _ADMIT.run(lane, (keys.stream, keys.gate), (consumer, room), repeatable=True)
    if not reply[0]:
        return None
    _, count, next_in, first = reply
    return Admitted(count, None if next_in < 0 else next_in, first or None)


async def charge(lane: Lane, keys: QueueKeys, tokens: Sequence[tuple[str, int]]) -> int:
    """Take tokens of rates; returns how many had a rate. Not sent again: they would count twice."""
    args = [text for resource, count in tokens for text in (resource, count)]
    return as_number(await _CHARGE.run(lane, (keys.stream, keys.gate), args))


class NotedOutcome(Struct, frozen=True):
    """How an attempt of a task with a breaker ended."""

    breaker: str  # its resource
    entry_id: bytes
    failed: bool


class BreakerChange(Struct, frozen=True):
    """A breaker that has stopped its task, or lets it go on; `failures` of the last attempts."""

    breaker: str
    stops: bool
    failures: int


async def note_outcomes(
    lane: Lane, keys: QueueKeys, outcomes: Sequence[NotedOutcome]
) -> list[BreakerChange]:
    """Tell breakers how attempts ended. Not sent again: they would count twice."""
    args: list[Argument] = [KEPT_MS]
    for each in outcomes:
        args += each.breaker, each.entry_id, int(each.failed)
    reply: Any = await _NOTE_OUTCOMES.run(lane, (keys.stream, keys.gate, keys.control), args)
    return [
        BreakerChange(decode_text(breaker), failures > 0, failures)
        for breaker, failures in zip(reply[::2], reply[1::2], strict=True)
    ]


class GateAudit(Struct, frozen=True):
    """Where to go on, b"0" at the end, and how many entries were found that held something."""

    cursor: bytes
    freed: int


async def audit(
    lane: Lane, keys: QueueKeys, *, group: bytes, cursor: bytes, count: int
) -> GateAudit | None:
    """Free what settled entries hold that a peer has settled; None if there is no gate."""
    reply: Any = await _AUDIT.run(
        lane, (keys.stream, keys.gate), (group, cursor, count), repeatable=True
    )
    return GateAudit(bytes(reply[0]), as_number(reply[1])) if reply else None


class LineState(Struct, frozen=True):
    """A line, how many jobs wait in it, and the resource that it waits for, b"" for its turn."""

    line: bytes
    length: int
    resource: bytes


async def pages_of_lines(lane: Lane, keys: QueueKeys) -> AsyncGenerator[list[LineState]]:
    """The lines in which jobs wait. One that changes its place between two pages may be missed."""
    cursor, known = b"", set[bytes]()
    while True:
        args = (_LINES_A_CALL, cursor)
        reply: Any = await _LIST_LINES.run(lane, (keys.gate,), args, repeatable=True)
        cursor = bytes(reply[0])
        states = [LineState(*reply[at : at + 3]) for at in range(1, len(reply), 3)]
        page = {each.line: each for each in states if each.line not in known}
        known.update(page)
        yield list(page.values())
        if not cursor:
            return


async def list_lines(lane: Lane, keys: QueueKeys, *, most: int) -> list[LineState]:
    """The lines in which jobs wait, at most so many."""
    found: list[LineState] = []
    async with aclosing(pages_of_lines(lane, keys)) as pages:
        async for page in pages:
            found += page
            if len(found) >= most:
                break
    return found[:most]


async def purge_line(lane: Lane, keys: QueueKeys, line: bytes, *, count: int) -> list[bytes]:
    """Delete up to `count` jobs of a line, the next ones first; returns their members.

    Not sent again after a lost connection: the reply would not name the jobs of the first time.
    """
    reply: Any = await _PURGE_LINE.run(lane, (keys.gate,), (line, count))
    return list(reply)


class LineSearch(Struct, frozen=True):
    """How many lines were searched to their end, and how many jobs of the next one; the hits."""

    lines: int
    place: int
    searched: int
    found: list[tuple[int, bytes]]  # which of the lines, and the member


async def search_lines(
    lane: Lane,
    keys: QueueKeys,
    lines: Sequence[bytes],
    *,
    job_ids: Collection[str],
    place: int | None,
) -> LineSearch:
    """Find jobs in lines; `place` is where to begin in the first one.

    With None, it looks only where a job is that was added in the order of its id.
    """
    start = b"near" if place is None else place
    args = (start, _SEARCHED_A_CALL, len(job_ids), *job_ids, *lines)
    reply: Any = await _SEARCH_LINES.run(lane, (keys.gate,), args, repeatable=True)
    done, stopped_at, searched, *flat = reply
    hits = [(number - 1, member) for number, member in zip(flat[::2], flat[1::2], strict=True)]
    return LineSearch(done, stopped_at, searched, hits)


async def regate(lane: Lane, keys: QueueKeys, *, count: int) -> int:
    """Take entries that nobody has read back into their lines, if there is no room for them."""
    reply = await _REGATE.run(lane, (keys.stream, keys.gate), (count,), repeatable=True)
    return as_number(reply)


class Change(Struct, frozen=True):
    """A change of what the gate lets through; the head of the script lists the kinds."""

    kind: str
    name: str
    value: str = ""


async def tune(lane: Lane, keys: QueueKeys, changes: Sequence[Change]) -> list[str]:
    """Make changes at once; returns for each what was there before, "" for nothing."""
    args: list[Argument] = [KEPT_MS]
    for each in changes:
        args += each.kind, each.name, each.value
    own = (keys.stream, keys.gate, keys.control)
    reply: Any = await _TUNE.run(lane, own, args, repeatable=True)
    return [decode_text(each) for each in reply]
