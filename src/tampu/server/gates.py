"""Plain commands that read the gate of a queue, with typed replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tampu.server.protocol import pack
from tampu.server.streams import server_time_ms
from tampu.util.lifecycle import ignore_outcome
from tampu.wire.control import HoldNotice
from tampu.wire.fields import decode_text
from tampu.wire.lines import BREAKER, FOREVER_MS, ORDERED, PAUSED, escape, parse_line

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

_MOST_HOLDERS: Final = 10_000
_SCAN: Final = 1000
# How many entries hold a resource, and the line that waits for it, after its tag. With - instead of
# + the name of the line goes on with | and the name of the resource. `3*`: several lines wait.
_RUN: Final = re.compile(r"(?P<count>\d+)(?:(?P<mark>[-+])\S+ (?P<line>.*))?", re.DOTALL)


class GateState(Struct, frozen=True):
    """A gate at one moment: jobs that wait in lines, and how many entries workers can have."""

    waiting: int
    room: int
    dropped: int = 0  # so far: for a newer job, or because a line was full


async def read_gate(lane: Lane, keys: QueueKeys) -> GateState | None:
    """The state of the gate; None if the queue has none."""
    fields = ("waiting", "room", "dropped")
    reply: Any = await lane.call("HMGET", keys.gate, *fields, repeatable=True)
    return None if reply[0] is None else GateState(*(int(each or 0) for each in reply))


async def waiting_in_lines(lane: Lane, keys: QueueKeys) -> int:
    """How many jobs wait in the lines of a queue."""
    state = await read_gate(lane, keys)
    return 0 if state is None else state.waiting


class ResourceState(Struct, frozen=True):
    """What one limit counts, as the gate has it."""

    name: str
    definition: str | None  # of its limit
    runs: int
    own: str | None  # its own concurrency, if it has one
    closed_until_ms: int | None
    opens_at_ms: int | None

    @property
    def is_closed_forever(self) -> bool:
        """Whether it stays closed until somebody opens it."""
        return self.closed_until_ms is not None and self.closed_until_ms >= FOREVER_MS


async def read_resource(lane: Lane, keys: QueueKeys, name: str) -> ResourceState:
    """What the gate knows of a resource."""
    limit = name.partition(":")[0]
    commands = [
        ("HGET", keys.gate + b":limits", limit),
        ("HGET", keys.gate + b":run", name),
        ("HGET", keys.gate + b":over", name),
        ("ZSCORE", keys.gate_wake, name),
    ]
    calls = [lane.send(pack(*command), repeatable=True) for command in commands]
    for call in calls:
        call.add_done_callback(ignore_outcome)
    definition, runs, over, opens = [_text(await call) for call in calls]
    own, _, closed = (over or "- 0").partition(" ")
    return ResourceState(
        name,
        definition,
        _count(runs),
        None if own == "-" else own,
        int(float(closed)) or None,
        None if opens is None else int(float(opens)),
    )


async def read_limits(lane: Lane, keys: QueueKeys) -> dict[str, str]:
    """The definitions of all limits of a queue; with a sign before the name, as declared last."""
    return await _hash(lane, keys.gate + b":limits")


async def read_runs(lane: Lane, keys: QueueKeys) -> dict[str, int]:
    """How many entries each resource counts that is in use."""
    found = await _hash(lane, keys.gate + b":run")
    return {name: _count(text) for name, text in found.items() if name}


async def read_overrides(lane: Lane, keys: QueueKeys) -> dict[str, str]:
    """The resources with a limit of their own, or that are closed."""
    return await _hash(lane, keys.gate + b":over")


async def read_pauses(lane: Lane, keys: QueueKeys) -> dict[str, int]:
    """What is paused, and until when."""
    found = await _hash(lane, keys.gate + b":pauses")
    return {what: int(float(until)) for what, until in found.items()}


async def read_holds(lane: Lane, keys: QueueKeys) -> list[HoldNotice]:
    """What is paused now, and what a job has closed that met a rate limit."""
    held = await read_pauses(lane, keys)
    for name, text in (await read_overrides(lane, keys)).items():
        if not name.startswith((ORDERED, BREAKER)):  # workers have nothing to give back for these
            held[f"|{name}"] = int(float(text.partition(" ")[2] or 0))
    if not held:
        return []
    now = await server_time_ms(lane)
    return [
        HoldNotice(what, None) if until >= FOREVER_MS else HoldNotice(what, until - now, until)
        for what, until in held.items()
        if until > now
    ]


async def read_weights(lane: Lane, keys: QueueKeys) -> dict[str, str]:
    """The weights of keys; those set by hand have a sign before them, others a day after them."""
    return await _hash(lane, keys.gate + b":weight")


async def weights_of(lane: Lane, keys: QueueKeys, names: Sequence[str]) -> list[str | None]:
    """The weights of some keys, as they are stored; None for each that has none."""
    if not names:
        return []
    reply: Any = await lane.call("HMGET", keys.gate + b":weight", *names, repeatable=True)
    return [_text(each) for each in reply]


async def holders(lane: Lane, keys: QueueKeys, resource: str, *, most: int) -> list[bytes]:
    """The ids of entries that a resource counts, the oldest first.

    If very many hold something, it does not look at all of them.
    """
    found: list[bytes] = []
    cursor, searched, wanted = b"0", 0, resource.encode()
    while searched < _MOST_HOLDERS and len(found) < most:
        reply: Any = await lane.call(
            "HSCAN", keys.gate + b":held", cursor, "COUNT", _SCAN, repeatable=True
        )
        cursor, flat = bytes(reply[0]), reply[1]
        for entry_id, held in zip(flat[::2], flat[1::2], strict=True):
            if entry_id and wanted in held.split(b"|"):
                found.append(bytes(entry_id))
        searched += len(flat) // 2
        if cursor == b"0":
            break
    found.sort(key=lambda entry_id: [int(part) for part in entry_id.split(b"-")])
    return found[:most]


async def members_of_line(
    lane: Lane, keys: QueueKeys, line: bytes, *, start: int, count: int
) -> list[bytes]:
    """Jobs that wait in a line, from a place on; the next one to pass is the first."""
    key = b"%b:line:%b" % (keys.gate, line)
    reply: Any = await lane.call("LRANGE", key, start, start + count - 1, repeatable=True)
    return list(reply)


async def resource_of_line(lane: Lane, keys: QueueKeys, line: bytes) -> str | None:
    """The resource that a line waits for; None if it waits for its turn."""
    name = decode_text(line)
    parsed = parse_line(name)
    needed = list(parsed.resources)
    if parsed.key is not None:
        needed.append(f"{PAUSED}:/{escape(parsed.key)}")
    if not needed:
        return None
    runs: Any = await lane.call("HMGET", keys.gate + b":run", *needed, repeatable=True)
    for resource, text in zip(needed, map(_text, runs), strict=True):
        if text is None:
            continue
        if _line_that_waits(resource, text) == name:
            return resource
        if text.lstrip("0123456789") == "*":
            waiting = b"%b:wait:%b" % (keys.gate, resource.encode())
            if await lane.call("ZSCORE", waiting, line, repeatable=True) is not None:
                return resource
    return None


async def place_in_line(lane: Lane, keys: QueueKeys, *, line: bytes, member: bytes) -> int | None:
    """How many jobs of its line come before one; None if it is not there."""
    key = b"%b:line:%b" % (keys.gate, line)
    reply: Any = await lane.call("LPOS", key, member, repeatable=True)
    return None if reply is None else int(reply)


async def _hash(lane: Lane, key: bytes) -> dict[str, str]:
    reply: Any = await lane.call("HGETALL", key, repeatable=True)
    flat = [decode_text(each) for each in reply]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _count(text: str | None) -> int:
    found = _RUN.match(text or "")
    return int(found["count"]) if found is not None else 0


def _line_that_waits(resource: str, text: str) -> str | None:
    found = _RUN.match(text)
    if found is None or found["line"] is None:
        return None
    return f"{found['line']}|{resource}" if found["mark"] == "-" else found["line"]


def _text(reply: Any) -> str | None:  # noqa: ANN401 - straight from the server
    return None if reply is None else decode_text(reply)
