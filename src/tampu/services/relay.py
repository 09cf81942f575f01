"""Brings jobs of flows, and how they ended, to other queues; adds the jobs of maps."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from tampu.errors import DecodeError
from tampu.server.flows import FlowReader, forget_flows
from tampu.server.scripts.control import ASK_NOW, Cancel, cancel
from tampu.server.scripts.flows import (
    Growth,
    deliver_members,
    end_members,
    grow_map,
    resume_all,
    stop_flow,
)
from tampu.server.scripts.settling import CANCELLED_TTL_S, NO_MARKERS
from tampu.server.streams import delete_entries, entries_from, first_score
from tampu.services.leader import LeaderContext, LeaderService, Upcoming
from tampu.services.lost import LostJobs
from tampu.util.clock import until_tick
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.entry import id_of_member
from tampu.wire.flow import (
    AddMessage,
    AskMessage,
    EndMessage,
    GrowMessage,
    MemberId,
    ResumeMessage,
    decode_message,
)
from tampu.wire.placeholders import ItemTemplate, decode_map, split_list
from tampu.wire.result import encode_failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from tampu.server.lane import Lane
    from tampu.server.lanes import QueueLanes
    from tampu.server.streams import RawEntry
    from tampu.wire.flow import Message
    from tampu.wire.keys import QueueKeys
    from tampu.wire.placeholders import MapDefinition

logger = logging.getLogger(__name__)
_PAGE: Final = 500
_MOST_A_CALL: Final = 1000
_MOST_BYTES: Final = 1_048_576
_TIDY_S: Final = 60.0


class _Outgoing(NamedTuple):
    """A message and the id of its entry."""

    entry_id: bytes
    message: Message


class MapGrowth:
    """Adds the jobs of one map, a thousand a call. A call that is repeated adds nothing twice."""

    def __init__(self, lane: Lane, keys: QueueKeys, message: GrowMessage) -> None:
        self._lane = lane
        self._keys = keys
        self._flow_id, self._node = message.flow, message.node
        self._reader = FlowReader(lane, keys, message.flow)
        self._definition: MapDefinition | None = None
        self._items: list[Raw] = []
        self._home: str | None = None
        self._added = 0
        self._until = b""  # the last entry of results that the items are read from

    async def grow(self) -> bool:
        """Add some; False if there are no more."""
        if self._definition is None and not await self._begin():
            return False
        part = self._next_part()
        is_last = self._added + len(part) >= len(self._items)
        growth = Growth(self._flow_id, self._node, self._added, part, is_last, self._until)
        self._added = await grow_map(self._lane, self._keys, growth)
        return self._added >= 0 and (not is_last or self._added < len(self._items))

    async def give_up(self, error: DecodeError) -> None:
        """Stop the flow: what the map is made of is no list, and whoever waits learns that."""
        facts = {"flow_id": self._flow_id, "node": self._node}
        logger.error("flow %s is stopped: %s", self._flow_id, error, extra=facts)
        failure = encode_failure(BuryReason.DECODE_FAILED, Failure("tampu.DecodeError", str(error)))
        await stop_flow(self._lane, self._keys, self._flow_id, failure=failure)
        # Of a flow that is stopped, this ends the growth.
        nothing = Growth(self._flow_id, self._node, self._added, (), is_last=False)
        await grow_map(self._lane, self._keys, nothing)

    async def _begin(self) -> bool:
        node = self._node
        names = [f"b{node}", f"p{node}", f"q{node}", f"l{node}"]
        body, added, queue, until = await self._reader.fields(names)
        if body is None:
            return False
        self._definition = definition = decode_map(body)
        self._added = int(added or 0)
        self._home = self._keys.name if queue else None
        if definition.source is None:
            self._items = split_list(definition.items or b"\x90")
        else:
            source = definition.source
            if source.is_map:
                self._until = until or await self._reader.last_result(source.node)
            values = await self._reader.values_for([source], until=self._until)
            self._items = split_list(bytes(values.value_of(source)))
        return True

    def _next_part(self) -> list[bytes]:
        definition = self._definition
        assert definition is not None  # noqa: S101 - it has begun
        template, part, size = ItemTemplate(definition.template), list[bytes](), 0
        for number in range(self._added, min(len(self._items), self._added + _MOST_A_CALL)):
            member_id = MemberId(self._flow_id, self._node, number, home=self._home)
            payload, job = template.fill(self._items[number]), definition.job
            if definition.extras is not None:
                job = replace(job, extras=definition.extras[number])
            part.append(job.to_member(member_id, payload))
            size += len(payload)
            if size >= _MOST_BYTES:
                break
        return part


class RelayService(LeaderService):
    """Empties the outbox of a queue while it leads: what another queue must know, in its order.

    Each message is deleted after it was brought, so it may be brought again. The maps of its flows
    grow in turns.
    """

    name = "relay"
    peer_look_s = 0.5

    def __init__(self, context: LeaderContext, lanes: QueueLanes) -> None:
        super().__init__(context)
        self._lanes = lanes
        self._after = b"-"
        self._growing: dict[bytes, MapGrowth] = {}  # by the entries of their messages
        self._forget_at = 0
        self._lost = LostJobs(self._lane, self._keys, lanes)
        self._tidy_at = 0.0

    @staticmethod
    def lock_key(keys: QueueKeys) -> bytes:
        """A key of our own."""
        return keys.flows_lock

    @staticmethod
    def wakeup_key(keys: QueueKeys) -> bytes:
        """A wakeup arrives after each message."""
        return keys.outbox_wakeup

    @staticmethod
    def due_key(keys: QueueKeys) -> bytes:
        """The flows of the queue."""
        return keys.flows

    async def work(self) -> Upcoming:
        """Bring a page of messages, and let each map grow once."""
        try:
            return await self._work_on()
        except BaseException:
            self._after, self._growing = b"-", {}  # begin again with what is there then
            raise

    async def _work_on(self) -> Upcoming:
        page = await entries_from(self._lane, self._keys.outbox, start=self._after, count=_PAGE)
        if page:
            await self._take(page)
            self._after = b"(" + page[-1][0]
        for entry_id, growth in list(self._growing.items()):
            if not await self._grow(growth):
                del self._growing[entry_id]
                await delete_entries(self._lane, self._keys.outbox, [entry_id])
        if page or self._growing:
            return Upcoming(0.0, None)
        if await self._tidy():
            return Upcoming(0.0, None)
        return Upcoming(until_tick(_TIDY_S), await first_score(self._lane, self._keys.flows))

    async def _tidy(self) -> bool:
        """Forget flows that no longer exist, look for lost jobs; whether there is more to do."""
        if monotonic() >= self._tidy_at:
            self._tidy_at = monotonic() + _TIDY_S / 2
            await self._forget()
            await self._lost.begin_sweep()
        return await self._lost.look_at_next()

    async def _take(self, page: Sequence[RawEntry]) -> None:
        noted: list[_Outgoing] = []
        unreadable: list[bytes] = []
        for entry_id, flat in page:
            try:
                noted.append(_Outgoing(entry_id, decode_message(flat or ())))
            except DecodeError as error:
                facts = {"queue": self._keys.name, "entry_id": entry_id.decode()}
                logger.warning("ignored a message in the outbox: %s", error, extra=facts)
                unreadable.append(entry_id)
        if unreadable:
            await delete_entries(self._lane, self._keys.outbox, unreadable)
        while noted:
            same = [noted[0]]
            while len(same) < len(noted) and _go_together(same[0], noted[len(same)]):
                same.append(noted[len(same)])
            noted = noted[len(same) :]
            await self._bring(same)

    async def _bring(self, noted: Sequence[_Outgoing]) -> None:
        """Bring messages that go together, and delete them."""
        match noted[0].message:
            case AddMessage(to):
                adds = [each.message for each in noted if isinstance(each.message, AddMessage)]
                members = [(id_of_member(each.member) or "", each.member) for each in adds]
                await deliver_members(*await self._lanes.to(to), members)
            case EndMessage(to):
                ends = [each.message for each in noted if isinstance(each.message, EndMessage)]
                lane, keys = await self._lanes.to(to)
                await end_members(lane, keys, [(each, self._keys.name) for each in ends])
            case AskMessage() as message:
                await self._ask(message)
            case ResumeMessage(flow):
                await resume_all(self._lane, self._keys, flow)
            case GrowMessage() as message:
                growth = MapGrowth(self._lane, self._keys, message)
                self._growing[noted[0].entry_id] = growth
                return
        ids = [each.entry_id for each in noted]
        await delete_entries(self._lane, self._keys.outbox, ids)

    async def _ask(self, message: AskMessage) -> None:
        lane, keys = await self._lanes.to(message.to)
        wanted = Cancel(job_id=message.group, latest=ASK_NOW, markers=NO_MARKERS)
        await cancel(lane, keys, [wanted], failure=b"", notice=b"", ttl_s=CANCELLED_TTL_S)

    async def _grow(self, growth: MapGrowth) -> bool:
        try:
            return await growth.grow()
        except DecodeError as error:
            await growth.give_up(error)
            return False

    async def _forget(self) -> None:
        """Take flows that no longer exist out of the index, a part of it each time."""
        kept = await forget_flows(self._lane, self._keys, first=self._forget_at, count=_PAGE)
        self._forget_at = 0 if kept is None else self._forget_at + kept


def _go_together(first: _Outgoing, other: _Outgoing) -> bool:
    one, two = first.message, other.message
    if isinstance(one, AddMessage) and isinstance(two, AddMessage):
        return one.to == two.to
    return isinstance(one, EndMessage) and isinstance(two, EndMessage) and one.to == two.to
