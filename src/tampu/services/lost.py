"""Jobs of flows that are nowhere: their flows wait for them in vain.

That happens if a program that knows no flows acknowledges or removes such a job.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from tampu.errors import DecodeError
from tampu.server.flows import FlowReader, newest_flows
from tampu.server.gates import members_of_line, read_gate
from tampu.server.scripts.flows import FlowMark, note_lost
from tampu.server.scripts.gate import list_lines
from tampu.server.streams import entries_from, scan_members
from tampu.util.lifecycle import run_all
from tampu.wire.entry import decode_entry, id_of_member
from tampu.wire.envelope import decode_envelope
from tampu.wire.extras import split_extras
from tampu.wire.fields import decode_text
from tampu.wire.flow import AddMessage, EndMessage, MemberId, decode_message, parse_member

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from tampu.server.lane import Lane
    from tampu.server.lanes import QueueLanes
    from tampu.wire.keys import QueueKeys

_Place: TypeAlias = "tuple[int, int | None]"  # a node, and the number of a job of it
_Jobs: TypeAlias = "dict[_Place, MemberId]"

logger = logging.getLogger(__name__)
_PAGE: Final = 500
_MOST_FLOWS: Final = 10_000
_MOST_JOBS: Final = 10_000  # of a flow: if more are missing, it is busy or its queue is long
_MOST_SEARCHED: Final = 20_000  # in each place; where there is more, nothing is concluded
_LONGEST_PAUSE: Final = 64  # sweeps
_MOST_NOTED: Final = 100
_CLOCKS_MS: Final = 3_600_000  # the clocks of servers may differ by so much
_MARK_FIELDS: Final = ("live", "held", "again", "s", "lost")
_NODE_FIELDS: Final = ("k", "z", "m", "p", "q")
_NODES_A_CALL: Final = 200
_OPEN_STATES: Final = (0, 3)  # two bits a job: pending, or replayed


class _TooMany(Exception):
    """There is too much to look at, so nothing can be said."""


class _WatchedFlow(Struct):
    """A flow that did not go on between two sweeps: what was missing, and when to look again."""

    mark: FlowMark
    noted: frozenset[str]  # ids that the flow has already
    missing: frozenset[MemberId] = frozenset()
    pause: int = 1
    left: int = 1


class LostJobs:
    """Looks for lost jobs of the flows of a queue that do not go on.

    A job is lost that was missing in two sweeps. A flow whose jobs are all there is looked at less
    and less often.
    """

    def __init__(self, lane: Lane, keys: QueueKeys, lanes: QueueLanes) -> None:
        self._lane = lane
        self._keys = keys
        self._lanes = lanes
        self._watched: dict[str, _WatchedFlow] = {}
        self._due: list[str] = []

    async def begin_sweep(self) -> None:
        """Find out which flows did not go on since the sweep before."""
        before, self._watched, self._due = self._watched, {}, []
        for first in range(0, _MOST_FLOWS, _PAGE):
            ids = await newest_flows(self._lane, self._keys, first=first, count=_PAGE)
            readers = [FlowReader(self._lane, self._keys, each) for each in ids]
            marks = await run_all(each.fields(_MARK_FIELDS) for each in readers)
            for flow_id, fields in zip(ids, marks, strict=True):
                self._note(flow_id, fields, before.get(flow_id))
            if len(ids) < _PAGE:
                return

    def _note(self, flow_id: str, fields: list[bytes | None], known: _WatchedFlow | None) -> None:
        live, held, again, state, lost = fields
        if state != b"running" or live in {None, b"0"}:
            return
        mark = FlowMark(live or b"", held or b"", again or b"")
        noted = frozenset(decode_text(lost).split("\n")) if lost else frozenset[str]()
        if known is None or known.mark != mark:
            self._watched[flow_id] = _WatchedFlow(mark, noted)
            return
        self._watched[flow_id] = known
        known.left -= 1
        if known.left <= 0:
            self._due.append(flow_id)

    async def look_at_next(self) -> bool:
        """Look for the jobs of one flow; False if there is none to look at in this sweep."""
        if not self._due:
            return False
        flow_id = self._due.pop()
        flow = self._watched[flow_id]
        try:
            missing = frozenset(await _Search(self._lanes, self._keys, flow_id).missing())
        except _TooMany:
            flow.pause = flow.left = min(2 * flow.pause, _LONGEST_PAUSE)
            return True
        lost = missing & flow.missing
        flow.pause = 1 if missing != flow.missing else min(2 * flow.pause, _LONGEST_PAUSE)
        flow.left, flow.missing = flow.pause, missing
        found = frozenset(map(str, sorted(lost, key=str)[:_MOST_NOTED]))
        if found != flow.noted and await note_lost(
            self._lane, self._keys, flow_id, mark=flow.mark, lost=sorted(found)
        ):
            self._report(flow_id, sorted(found - flow.noted))
            flow.noted = found
        return True

    def _report(self, flow_id: str, lost: list[str]) -> None:
        if lost:
            logger.error(
                "flow %s waits in vain for %d of its jobs, such as %s: they are on no queue. A "
                "program that knows no flows acknowledged or removed them",
                *(flow_id, len(lost), lost[0]),
                extra={"queue": self._keys.name, "flow_id": flow_id, "job_ids": lost},
            )


class _Search:
    """One search for the jobs of a flow that have not ended."""

    def __init__(self, lanes: QueueLanes, keys: QueueKeys, flow_id: str) -> None:
        self._lanes = lanes
        self._keys = keys
        self._flow_id = flow_id
        self._reader = FlowReader(lanes.own, keys, flow_id)

    async def missing(self) -> set[MemberId]:
        """Those that are nowhere; `_TooMany` if there is too much to look at."""
        at_ms, by_queue = await self._open_jobs()
        found: set[MemberId] = set()
        for queue, jobs in by_queue.items():
            lane, keys = await self._lanes.to(queue)
            await self._look_in_outbox(self._lanes.own, self._keys, jobs)
            if keys.name != self._keys.name:
                await self._look_in_outbox(lane, keys, jobs)
            await self._look_in_delayed(lane, keys, jobs)
            await self._look_in_lines(lane, keys, jobs)
            await self._look_in_stream(lane, keys, jobs, since_ms=at_ms - _CLOCKS_MS)
            found |= set(jobs.values())
        return found

    # --- what has not ended ---------------------------------------------------------------------

    async def _open_jobs(self) -> tuple[int, dict[str, _Jobs]]:
        """When the flow started, and its jobs that should be somewhere, by their queues."""
        at, count = await self._reader.fields(["at", "nodes"])
        parked = await self._reader.parked_places()
        jobs: dict[str, _Jobs] = {}
        known = 0
        for first in range(0, int(count or 0), _NODES_A_CALL):
            nodes = range(first, min(first + _NODES_A_CALL, int(count or 0)))
            names = [f"{letter}{node}" for node in nodes for letter in _NODE_FIELDS]
            flat, size = await self._reader.fields(names), len(_NODE_FIELDS)
            for at_node, node in enumerate(nodes):
                fields = flat[at_node * size : (at_node + 1) * size]
                queue, numbers = await self._open_of(node, fields)
                home = None if queue == self._keys.name else self._keys.name
                for number in numbers:
                    if _name_place(node, number) not in parked:
                        member = MemberId(self._flow_id, node, number, 0, home)
                        jobs.setdefault(queue, {})[node, number] = member
                known += len(numbers)
                if known > _MOST_JOBS:
                    raise _TooMany
        return int(at or 0), jobs

    async def _open_of(
        self, node: int, fields: Sequence[bytes | None]
    ) -> tuple[str, Sequence[int | None]]:
        """The queue of a node, and the numbers of its jobs that have not ended; None if single."""
        kind, stage, state, added, queue = fields
        name = decode_text(queue or b"") or self._keys.name
        if not stage:
            return name, ()
        if kind == b"m":
            return name, await self._open_numbers(node, int(added or 0))
        return name, (None,) if int(state or 0) in _OPEN_STATES else ()

    async def _open_numbers(self, node: int, added: int) -> list[int]:
        """The numbers of the jobs of a map that have not ended."""
        states = await self._reader.map_states(node)
        found: list[int] = []
        for number in range(added):
            at = number // 4
            state = states[at] >> (6 - 2 * (number % 4)) & 3 if at < len(states) else 0
            if state in _OPEN_STATES:
                found.append(number)
                if len(found) > _MOST_JOBS:
                    raise _TooMany
        return found

    # --- where jobs are: those that are found are taken out of `jobs` ---------------------------

    async def _look_in_stream(
        self, lane: Lane, keys: QueueKeys, jobs: _Jobs, *, since_ms: int
    ) -> None:
        """The jobs that wait on a queue or that workers hold."""
        start = b"%d-0" % max(0, since_ms)
        async for flat in _entries(lane, keys.stream, start=start):
            if not jobs:
                return
            try:
                body, _ = split_extras(decode_entry(flat).envelope or b"")
                self._take_out(decode_envelope(body).id, jobs)
            except DecodeError:
                pass

    async def _look_in_delayed(self, lane: Lane, keys: QueueKeys, jobs: _Jobs) -> None:
        """The jobs that wait for their next attempt."""
        cursor, holding = b"0", self._flow_id.encode()
        for _ in range(5 * _MOST_SEARCHED // _PAGE):  # the server compares: that costs less
            cursor, members = await scan_members(
                lane, keys.delayed, cursor, holding=holding, count=_PAGE
            )
            for member in members:
                self._take_out(id_of_member(member), jobs)
            if cursor == b"0" or not jobs:
                return
        raise _TooMany

    async def _look_in_lines(self, lane: Lane, keys: QueueKeys, jobs: _Jobs) -> None:
        """The jobs that flow control holds."""
        if not jobs or await read_gate(lane, keys) is None:
            return
        lines, searched = await list_lines(lane, keys, most=_MOST_SEARCHED + 1), 0
        if len(lines) > _MOST_SEARCHED:
            raise _TooMany
        for line in lines:
            start = 0
            while members := await members_of_line(lane, keys, line.line, start=start, count=_PAGE):
                for member in members:
                    self._take_out(id_of_member(member), jobs)
                start, searched = start + len(members), searched + len(members)
                if searched > _MOST_SEARCHED:
                    raise _TooMany

    async def _look_in_outbox(self, lane: Lane, keys: QueueKeys, jobs: _Jobs) -> None:
        """The jobs that the relay has to bring, and those whose end it has to tell."""
        async for flat in _entries(lane, keys.outbox, start=b"-"):
            try:
                message = decode_message(flat)
            except DecodeError:
                continue
            if isinstance(message, AddMessage):
                self._take_out(id_of_member(message.member), jobs)
            elif isinstance(message, EndMessage):
                self._take_out(message.job_id, jobs)

    def _take_out(self, job_id: str | None, jobs: _Jobs) -> None:
        found = parse_member(job_id or "")
        if found is not None and found.flow == self._flow_id:
            jobs.pop((found.node, found.number), None)


def _name_place(node: int, number: int | None) -> str:
    return str(node) if number is None else f"{node}.{number}"


async def _entries(lane: Lane, stream: bytes, *, start: bytes) -> AsyncGenerator[Sequence[bytes]]:
    """The entries of a stream; `_TooMany` if there are too many."""
    searched = 0
    while page := await entries_from(lane, stream, start=start, count=_PAGE):
        for _, flat in page:
            yield flat or ()
        start, searched = b"(" + page[-1][0], searched + len(page)
        if searched > _MOST_SEARCHED:
            raise _TooMany
