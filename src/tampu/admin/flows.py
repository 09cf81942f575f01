"""Flows of a queue: started, looked at, cancelled, retried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from tampu.admin.flow_info import STATE_FIELDS, FlowInfo, RunState, read_flow, state_of
from tampu.errors import OptionError
from tampu.server.flows import FlowReader, newest_flows, pair_results
from tampu.server.scripts.flows import (
    FlowStart,
    GateNeeds,
    Growth,
    grow_map,
    prepare_gate,
    resume_all,
    start_flow,
    stop_flow,
)
from tampu.util.lifecycle import run_all
from tampu.util.options import at_least, check_choice
from tampu.util.pauses import Pauses
from tampu.wire.placeholders import split_value
from tampu.wire.result import decode_result, encode_cancelled

if TYPE_CHECKING:
    from tampu.admin.control import OpenQueue
    from tampu.producer.connection import QueueConnection
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

_LOOK_S: Final = 0.2
_MOST_LOOKED_AT: Final = 10_000
_LOOKED_AT_A_TIME: Final = 200
_SOON_S: Final = 0.01
_RELAYED_S: Final = 5.0  # without a worker nobody brings it
_OVER: Final = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)


class NodeResult(NamedTuple):
    """A job of a map that is done: its number, its result, and where to go on after it."""

    number: int
    value: object
    cursor: str


class Flows:
    """The flows whose home is a queue."""

    def __init__(
        self, keys: QueueKeys, connect: Callable[[], Awaitable[OpenQueue | QueueConnection]]
    ) -> None:
        self._keys = keys
        self._connect = connect

    async def newest(
        self, count: int = 20, *, after: int = 0, state: RunState | str | None = None
    ) -> Sequence[FlowInfo]:
        """The newest flows, or those in a state, without the first `after` of them.

        With a state, it looks at the 10 000 newest flows.
        """
        at_least("count", count, 1)
        at_least("after", after, 0)
        lane = (await self._connect()).lane
        if state is None:
            ids = await newest_flows(lane, self._keys, first=after, count=count)
        else:
            check_choice("state", str(state), [str(each) for each in RunState])
            ids = (await self._in_state(lane, RunState(state), after + count))[after:]
        found = await run_all(self.info(each) for each in ids)
        return [each for each in found if each is not None]

    async def _in_state(self, lane: Lane, state: RunState, count: int) -> list[str]:
        """The ids of so many flows in a state, newest first."""
        found: list[str] = []
        for first in range(0, _MOST_LOOKED_AT, _LOOKED_AT_A_TIME):
            ids = await newest_flows(lane, self._keys, first=first, count=_LOOKED_AT_A_TIME)
            readers = [FlowReader(lane, self._keys, each) for each in ids]
            states = await run_all(each.fields(STATE_FIELDS) for each in readers)
            found += [
                each for each, fields in zip(ids, states, strict=True) if state_of(*fields) is state
            ]
            if len(found) >= count or len(ids) < _LOOKED_AT_A_TIME:
                break
        return found[:count]

    async def info(self, flow_id: str) -> FlowInfo | None:
        """What is known about a flow; None if there is none, or none any more."""
        fields = await (await self._reader(flow_id)).state()
        return read_flow(flow_id, self._keys.name, fields) if fields else None

    async def cancel(self, flow_id: str) -> bool:
        """Cancel a flow: nothing more of it starts, and what runs is cancelled.

        False if it was done or cancelled before, or if there is none. If the connection is lost,
        this raises, and the flow may have been cancelled.
        """
        lane = (await self._connect()).lane
        before = await stop_flow(lane, self._keys, flow_id, failure=encode_cancelled())
        return before in {"running", "failed"}

    async def resume(self, flow_id: str) -> bool:
        """Let a flow go on that was halted; False if it cannot."""
        return await resume_all((await self._connect()).lane, self._keys, flow_id)

    async def retry(
        self, flow_id: str, replay: Callable[[str, Sequence[str]], Awaitable[int]]
    ) -> int:
        """Run its dead letters again, and let it go on; returns how many there were.

        `replay` puts dead letters of a queue back.
        """
        count, elsewhere = 0, list[str]()
        for queue, ids in (await self.dead_letters(flow_id)).items():
            replayed = await replay(queue, ids)
            count += replayed
            if replayed == len(ids) and queue != self._keys.name:
                elsewhere += ids
        await self._await_replays(flow_id, elsewhere)
        await self.resume(flow_id)
        return count

    async def dead_letters(self, flow_id: str) -> dict[str, list[str]]:
        """The dead letters of its jobs by their queues."""
        found: dict[str, list[str]] = {}
        for queue, dead_id in (await self.letter_places(flow_id)).values():
            found.setdefault(queue, []).append(dead_id)
        return found

    async def letter_places(self, flow_id: str) -> dict[str, tuple[str, str]]:
        """The queue and the id of each dead letter, by the node of its job or `node.number`."""
        found = await (await self._reader(flow_id)).dead_letters()
        own = self._keys.name
        return {place: (queue or own, dead_id) for place, (queue, dead_id) in found.items()}

    async def _await_replays(self, flow_id: str, dead_ids: Collection[str]) -> None:
        """Return when the flow knows that these dead letters run again, or soon after.

        Those of other queues it learns from their relay.
        """
        pauses, limit_at = Pauses(_SOON_S, _LOOK_S), monotonic() + _RELAYED_S
        while dead_ids and monotonic() < limit_at:
            known = await self.dead_letters(flow_id)
            if not any(dead_id in ids for ids in known.values() for dead_id in dead_ids):
                return
            await asyncio.sleep(pauses.next_s())

    async def start(self, flow: FlowStart) -> bool:
        """Store a flow and add its first jobs; False if it was there already."""
        return await start_flow((await self._connect()).lane, self._keys, flow)

    async def grow(self, growth: Growth) -> int:
        """Add jobs to a batch; how many it has now, -1 if it takes no more."""
        return await grow_map((await self._connect()).lane, self._keys, growth)

    async def prepare_gate(self, needs: GateNeeds) -> None:
        """Make known what flow control needs for jobs that a flow adds."""
        await prepare_gate((await self._connect()).lane, self._keys, needs)

    async def map_result(self, flow_id: str, node: int) -> Sequence[object]:
        """The results of a node with many jobs, in the order of their numbers."""
        values = await (await self._reader(flow_id)).all_results(node)
        found = (split_value(values[number]) for number in sorted(values))
        return [decode_result(value) for value, is_result in found if is_result]

    async def follow_map(
        self, flow_id: str, node: int, *, after: str | None = None
    ) -> AsyncIterator[NodeResult]:
        """The results of a node with many jobs, as they come, until all of them have ended."""
        start, skip = _parse_cursor(after)
        reader = await self._reader(flow_id)
        while True:
            info = await self.info(flow_id)
            while page := await reader.results(node, start=start):
                for entry_id, flat in page:
                    for place, (number, stored) in enumerate(pair_results(flat or ()).items(), 1):
                        value, is_result = split_value(stored)
                        if is_result and place > skip:
                            cursor = f"{entry_id.decode()}.{place}"
                            yield NodeResult(number, decode_result(value), cursor)
                    skip = 0
                start = b"(" + page[-1][0]
            if info is None or info.state in _OVER or info.nodes[node].is_over:
                return
            await self._wait_for_more(flow_id)

    async def _wait_for_more(self, flow_id: str) -> None:
        """Return when there may be more results of a flow."""
        del flow_id
        await asyncio.sleep(_LOOK_S)

    async def _reader(self, flow_id: str) -> FlowReader:
        return FlowReader((await self._connect()).lane, self._keys, flow_id)


def _parse_cursor(after: str | None) -> tuple[bytes, int]:
    """Where to read on: the entry to begin with, and how many of its results to leave out."""
    if after is None:
        return b"-", 0
    entry_id, _, place = after.partition(".")
    ms, _, number = entry_id.partition("-")
    if not (ms.isdigit() and number.isdigit() and place.isdigit()):
        raise OptionError("after", after, "expected the cursor of a result")
    return entry_id.encode(), int(place)
