"""Plain commands that read flows, with typed replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tampu.server.protocol import pack
from tampu.server.streams import entries_from, last_id
from tampu.util.lifecycle import ignore_outcome
from tampu.wire.fields import decode_text
from tampu.wire.placeholders import FlowValues

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.streams import RawEntry
    from tampu.wire.keys import QueueKeys
    from tampu.wire.placeholders import Placeholder

_PAGE: Final = 200
_OWN_FIELDS: Final = ("s", "halt", "name", "at", "end", "res", "why", "lost")
_NODE_FIELDS: Final = ("k", "n", "q", "u", "x", "p", "z", "c", "o", "f", "d", "g")


class FlowReader:
    """Reads the state and the results of one flow."""

    def __init__(self, lane: Lane, keys: QueueKeys, flow_id: str) -> None:
        self._lane = lane
        self._keys = keys
        self._key = keys.flow(flow_id)
        self._flow_id = flow_id

    async def fields(self, names: Sequence[str]) -> list[bytes | None]:
        """Some fields of its state."""
        reply: Any = await self._lane.call("HMGET", self._key, *names, repeatable=True)
        return list(reply)

    async def state(self) -> dict[str, bytes]:
        """Its state without jobs and results, which may be large; nothing if there is no flow."""
        count, *values = await self.fields(["nodes", *_OWN_FIELDS])
        found = dict(zip(_OWN_FIELDS, values, strict=True)) | {"nodes": count}
        for first in range(0, int(count or 0), _PAGE):
            nodes = range(first, min(first + _PAGE, int(count or 0)))
            names = [f"{letter}{node}" for node in nodes for letter in _NODE_FIELDS]
            found |= zip(names, await self.fields(names), strict=True)
        return {name: value for name, value in found.items() if value is not None}

    async def dead_letters(self) -> dict[str, tuple[str, str]]:
        """The dead letters of its jobs, by their places: the queue ("" for its own), and the id."""
        found = await self._read_hash(self._key + b":dead")
        parts = {place: decode_text(text).partition(" ") for place, text in found.items()}
        return {place: (queue, dead_id) for place, (dead_id, _, queue) in parts.items()}

    async def parked_places(self) -> set[str]:
        """The places of jobs that were taken out before they started."""
        reply: Any = await self._lane.call("HKEYS", self._key + b":parked", repeatable=True)
        return {decode_text(each) for each in reply}

    async def map_states(self, node: int) -> bytes:
        """The states of the jobs of a node that has many, two bits each."""
        reply: Any = await self._lane.call("GET", b"%b:%d" % (self._key, node), repeatable=True)
        return bytes(reply or b"")

    async def results(self, node: int, *, start: bytes = b"-") -> list[RawEntry]:
        """Entries with results of a node that has many: number, value, number, value."""
        key = self._keys.map_results(self._flow_id, node)
        return await entries_from(self._lane, key, start=start, count=_PAGE)

    async def last_result(self, node: int) -> bytes:
        """The id of the last entry with results of a node."""
        return await last_id(self._lane, self._keys.map_results(self._flow_id, node))

    async def all_results(self, node: int, *, until: bytes = b"") -> Mapping[int, bytes]:
        """The stored values of a node that has many, by the numbers of its jobs.

        With `until`, those up to this entry.
        """
        found: dict[int, bytes] = {}
        start = b"-"
        while page := await self.results(node, start=start):
            for entry_id, flat in page:
                found.update(pair_results(flat or ()))
                if entry_id == until:
                    return found
            start = b"(" + page[-1][0]
        return found

    async def values_for(
        self, placeholders: Iterable[Placeholder], *, until: bytes = b""
    ) -> FlowValues:
        """The values that placeholders stand for; those of nodes with many up to an entry."""
        values = FlowValues(self._flow_id, self._keys.name)
        wanted = {each.node: each.is_map for each in placeholders if each.needs_value}
        single = [node for node, is_map in wanted.items() if not is_map]
        if single:
            found = await self.fields([f"y{node}" for node in single])
            for node, value in zip(single, found, strict=True):
                if value is not None:
                    values.note(node, value)
        for node, is_map in wanted.items():
            if is_map:
                values.note_many(node, await self.all_results(node, until=until))
                (fired,) = await self.fields([f"c{node}"])
                if b"s" not in (fired or b""):
                    values.note_failed(node)
        return values

    async def _read_hash(self, key: bytes) -> dict[str, bytes]:
        reply: Any = await self._lane.call("HGETALL", key, repeatable=True)
        return {decode_text(name): value for name, value in zip(*[iter(reply)] * 2, strict=True)}


def pair_results(flat: Sequence[bytes]) -> dict[int, bytes]:
    """The results in an entry, by the numbers of their jobs."""
    return {int(number): value for number, value in zip(flat[::2], flat[1::2], strict=True)}


async def newest_flows(lane: Lane, keys: QueueKeys, *, first: int, count: int) -> list[str]:
    """The ids of flows, newest first."""
    last = first + count - 1
    reply: Any = await lane.call("ZREVRANGE", keys.flows, first, last, repeatable=True)
    return [decode_text(each) for each in reply]


async def forget_flows(lane: Lane, keys: QueueKeys, *, first: int, count: int) -> int | None:
    """Take flows that no longer exist out of the index; how many stay of so many oldest ones.

    None at the end of the index.
    """
    ids: Any = await lane.call("ZRANGE", keys.flows, first, first + count - 1, repeatable=True)
    if not ids:
        return None
    calls = [
        lane.send(pack("EXISTS", keys.flow(decode_text(each))), repeatable=True) for each in ids
    ]
    for call in calls:
        call.add_done_callback(ignore_outcome)
    over = [each for each, call in zip(ids, calls, strict=True) if not await call]
    if over:
        await lane.call("ZREM", keys.flows, *over, repeatable=True)
    return len(ids) - len(over)
